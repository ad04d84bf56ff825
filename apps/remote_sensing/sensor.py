"""A coarser sensor that looks at the same land: blur by its MTF, sampling, shift, noise.

The point spread of each band is a Gaussian whose modulation transfer at the Nyquist frequency of
the coarse grid is given, as for real instruments; a coarse pixel is centred on the fine pixels that
it contains, so that neither is shifted against the other (``align_corners=False``).

Suffixes: C band, H row, W column, K tap of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scadl_core.errors import ConfigError

Array = NDArray[np.float32]
REACH = 4.0  # standard deviations at which the kernel is cut off
SCALES = (2, 3, 4)


@dataclass(frozen=True)
class Sensor:
    """How the low-resolution image comes from a high-resolution one.

    Attributes:
        scale: Fine pixels a coarse pixel, in each direction: 2, 3 or 4.
        mtf: Modulation transfer at the coarse Nyquist frequency, one for all bands, or one a band.
        snr: Signal to noise at the mean level of a band, half of the variance from reading, half
            from photons, whose part grows with the signal; null: no noise.
        shift: Rows and columns, in coarse pixels, by which the coarse image looks further on.

    Raises:
        ConfigError: Another scale, or an impossible MTF or noise.
    """

    scale: int = 4
    mtf: float | Sequence[float] = 0.25
    snr: float | None = 120.0
    shift: Sequence[float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if self.scale not in SCALES or isinstance(self.scale, bool):
            raise ConfigError(f"data.scale: expected 2, 3 or 4, got {self.scale!r}")
        for mtf in np.atleast_1d(self.mtf):
            if not 0 < mtf < 1:
                raise ConfigError(f"data.sensor.mtf: expected shares between 0 and 1, got {mtf!r}")
        if self.snr is not None and not self.snr > 0:
            raise ConfigError(f"data.sensor.snr: expected more than 0 or null, got {self.snr!r}")
        if len(self.shift) != 2 or not all(abs(it) <= 1 for it in self.shift):
            raise ConfigError(f"data.sensor.shift: expected two of -1..1, got {self.shift!r}")

    def check_bands(self, bands: int) -> None:
        """A ConfigError if the MTF is given for another number of bands."""
        if np.ndim(self.mtf) and len(np.atleast_1d(self.mtf)) != bands:
            raise ConfigError(f"data.sensor.mtf: expected one number or {bands}, got {self.mtf!r}")

    @property
    def margin(self) -> int:
        """Coarse pixels around a window that take part in it."""
        widest = self._sigma(float(np.min(self.mtf)))
        return math.ceil((REACH * widest + 1) / self.scale + max(map(abs, self.shift)))

    def _sigma(self, mtf: float) -> float:
        """Of the point spread, in fine pixels; exp(-2 (pi sigma f)^2) at f = 1 / (2 scale)."""
        return self.scale * math.sqrt(-2 * math.log(mtf)) / math.pi

    def kernel(self, mtf: float, shift: float) -> NDArray[np.float64]:
        """Weights of the fine pixels of a coarse one and of `margin` coarse ones on both sides."""
        position_K = np.arange((2 * self.margin + 1) * self.scale) + 0.5
        centre = (self.margin + 0.5 + shift) * self.scale
        weight_K = np.exp(-0.5 * ((position_K - centre) / self._sigma(mtf)) ** 2)
        return weight_K / weight_K.sum()

    def observe(self, fine_CHW: Array) -> Array:
        """What the coarse sensor sees, without noise.

        Args:
            fine_CHW: float32, NaN where there is nothing; sides are multiples of the scale. Beyond
                its edges there is nothing either.

        Returns:
            float32 of shape (C, H/scale, W/scale): the mean over what there is; NaN where a pixel's
            own square holds a NaN.
        """
        there_CHW = np.isfinite(fine_CHW)
        filled_CHW = np.where(there_CHW, fine_CHW, 0)
        mtf_C = np.broadcast_to(self.mtf, len(fine_CHW)).tolist()
        sums = [
            self._sample(np.stack([band, there]), mtf)
            for band, there, mtf in zip(
                filled_CHW, there_CHW.astype(np.float32), mtf_C, strict=True
            )
        ]
        value_CHW, weight_CHW = np.stack(sums, 1)
        bands, height, width = value_CHW.shape
        squares = there_CHW.reshape(bands, height, self.scale, width, self.scale)
        whole_CHW = squares.all((2, 4)) & (weight_CHW > 0.01)  # of a shifted look nothing may be in
        mean_CHW = value_CHW / np.where(whole_CHW, weight_CHW, 1)
        return np.where(whole_CHW, mean_CHW, np.nan).astype(np.float32)

    def _sample(self, fields_CHW: Array, mtf: float) -> Array:
        for axis, shift in ((1, self.shift[0]), (2, self.shift[1])):
            padding = [(0, 0)] * 3
            padding[axis] = (self.margin * self.scale,) * 2
            kernel_K = self.kernel(mtf, shift).astype(np.float32)
            windows = np.lib.stride_tricks.sliding_window_view(
                np.pad(fields_CHW, padding), len(kernel_K), axis
            )
            every = [slice(None)] * 3
            every[axis] = slice(None, None, self.scale)
            fields_CHW = windows[tuple(every)] @ kernel_K
        return fields_CHW

    def add_noise(
        self, coarse_CHW: Array, level_C: NDArray[np.float64], rng: np.random.Generator
    ) -> Array:
        """The same with noise, whose strength follows from the mean level of each band."""
        if self.snr is None:
            return coarse_CHW
        level_C11 = np.maximum(np.abs(level_C), 1e-6)[:, None, None]
        variance_CHW = 0.5 * (1 + np.maximum(np.nan_to_num(coarse_CHW), 0) / level_C11)
        noise_CHW = rng.standard_normal(coarse_CHW.shape, np.float32)
        deviation_CHW = (level_C11 / self.snr * np.sqrt(variance_CHW)).astype(np.float32)
        return coarse_CHW + noise_CHW * deviation_CHW
