"""Crops of scenes: at random where one trains, side by side where one scores.

Suffixes: C band, H row, W column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from apps.remote_sensing.sensor import Sensor
from apps.remote_sensing.splits import Region
from apps.remote_sensing.views import View
from scadl_core.workflow.seeds import generator

Array = NDArray[np.float32]
TRIES = 6  # places that are looked at for one with few gaps
FILL_SIGMA, FILL_REACH = 3.0, 12  # pixels, of the mean that fills gaps


def fill(image_CHW: Array, level_C: NDArray[np.floating]) -> Array:
    """Puts into gaps the mean of what is near, so that no edge is seen there.

    What a pixel gets depends on FILL_REACH pixels around it alone, so that it is the same in every
    window that has them.

    Args:
        image_CHW: float32, NaN where there is nothing.
        level_C: For places far from anything.
    """
    gap_CHW = np.isnan(image_CHW)
    if not gap_CHW.any():
        return image_CHW
    filled_CHW = np.empty_like(image_CHW)
    for c, gap_HW in enumerate(gap_CHW):
        fields = np.where(gap_HW, 0, image_CHW[c]), (~gap_HW).astype(np.float32)
        mean, weight = (
            ndimage.gaussian_filter(it, FILL_SIGMA, mode="constant", radius=FILL_REACH)
            for it in fields
        )
        near = weight > 1e-6
        guess = np.where(near, mean / np.where(near, weight, 1), np.float32(level_C[c]))
        filled_CHW[c] = np.where(gap_HW, guess, image_CHW[c])
    return filled_CHW


@dataclass(frozen=True)
class Crops:
    """The samples of one split.

    Attributes:
        views: Scenes at two resolutions.
        regions: The ground of the split.
        size: Coarse pixels of a side; beyond a region there is nothing.
        sensor: For noise.
        white: What physical values are divided by.
        level_C: Mean of each band, in units of white.
        noisy: Whether the sensor's noise is added.
        step: Coarse pixels from one crop to the next; less than the size, they overlap.
        least: Share of valid pixels that a random crop should have.
    """

    views: Sequence[View]
    regions: Sequence[Region]
    size: int
    sensor: Sensor
    white: float
    level_C: NDArray[np.float64]
    noisy: bool
    least: float
    step: int

    def __post_init__(self) -> None:
        places = [
            (region, row, column)
            for region in self.regions
            for row, column in product(*(self._starts(at) for at in (region.rows, region.columns)))
        ]
        object.__setattr__(self, "places", places)

    def __len__(self) -> int:
        return len(self.places)  # type: ignore[attr-defined]

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, NDArray]:
        """A crop: ``lr_CHW`` and ``hr_CHW`` float32 in units of white, gaps filled;
        ``lr_valid_CHW`` and ``valid_CHW`` bool, where they are not.

        With ``rng`` it is of anywhere in the region, turned and mirrored.
        """
        region, row, column = self.places[index]  # type: ignore[attr-defined]
        if rng is None:
            return self._sample(*self._pair(region, row, column), generator(0, "noise", index))
        best = None
        for _ in range(TRIES):
            row, column = (
                int(rng.integers(at.start, max(at.stop - self.size, at.start) + 1))
                for at in (region.rows, region.columns)
            )
            pair = self._pair(region, row, column)
            share = float(np.isfinite(pair[1]).mean())
            best = (share, pair) if best is None or share > best[0] else best
            if share >= self.least:
                break
        assert best is not None
        sample = self._sample(*best[1], rng)
        turns, mirrored = int(rng.integers(4)), bool(rng.integers(2))
        return {name: _turned(it, turns, mirrored) for name, it in sample.items()}

    def _starts(self, at: slice) -> range:
        """The first pixels of crops along an axis, the last of which has its end."""
        return range(at.start, max(at.stop - self.size + self.step, at.start + 1), self.step)

    def raw(self, index: int) -> Array:
        """The fine values of a crop in physical units, CHW."""
        return self._pair(*self.places[index])[1]  # type: ignore[attr-defined]

    def _pair(self, region: Region, row: int, column: int) -> tuple[Array, Array]:
        """Coarse and fine values in units of white, of the full size."""
        rows = slice(row, min(row + self.size, region.rows.stop))
        columns = slice(column, min(column + self.size, region.columns.stop))
        pair = self.views[region.view].read(rows, columns)
        sizes = self.size, self.size * self.sensor.scale
        return tuple(  # type: ignore[return-value]
            np.pad(it, [(0, 0), *((0, size - n) for n in it.shape[1:])], constant_values=np.nan)
            for it, size in zip(pair, sizes, strict=True)
        )

    def _sample(self, lr_CHW: Array, hr_CHW: Array, rng: np.random.Generator) -> dict[str, NDArray]:
        lr_CHW, hr_CHW = (it / np.float32(self.white) for it in (lr_CHW, hr_CHW))
        lr_valid_CHW, scale = np.isfinite(lr_CHW), self.sensor.scale
        if self.noisy:
            lr_CHW = self.sensor.add_noise(lr_CHW, self.level_C, rng)
        seen_CHW = lr_valid_CHW.repeat(scale, 1).repeat(scale, 2)
        valid_CHW = np.isfinite(hr_CHW) & seen_CHW
        return {
            "lr_CHW": fill(lr_CHW.astype(np.float32), self.level_C),
            "hr_CHW": np.where(valid_CHW, hr_CHW, 0).astype(np.float32),
            "lr_valid_CHW": lr_valid_CHW,
            "valid_CHW": valid_CHW,
        }


def _turned(image_CHW: NDArray, turns: int, mirrored: bool) -> NDArray:
    turned_CHW = np.rot90(image_CHW, turns, (1, 2))
    return np.ascontiguousarray(turned_CHW[..., ::-1] if mirrored else turned_CHW)
