"""Losses of images where parts may be missing: sums and counts, so that they add over ranks.

Suffixes: B batch, C band, H row, W column, K tap, T loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from apps.remote_sensing.sensor import Sensor
from scadl_core.errors import ConfigError, nearest

TINY = 1e-12
SSIM_WINDOW, SSIM_SIGMA = 11, 1.5  # Wang et al. 2004, doi:10.1109/TIP.2003.819861
SSIM_C1, SSIM_C2 = 0.01**2, 0.03**2  # of a range of 1

Sums = tuple[Tensor, Tensor]


def observe(sensor: Sensor, fine_BCHW: Tensor) -> Tensor:
    """What a sensor sees of whole images, without noise, as :meth:`Sensor.observe`, edges repeated;
    differentiable.
    """
    channels, margin = fine_BCHW.shape[1], sensor.margin * sensor.scale
    mtf_C = [float(sensor.mtf)] * channels if isinstance(sensor.mtf, int | float) else sensor.mtf
    padded_BCHW = functional.pad(fine_BCHW, (margin,) * 4, mode="replicate")
    for axis, shape in ((0, (channels, 1, -1, 1)), (1, (channels, 1, 1, -1))):
        kernels = [torch.from_numpy(sensor.kernel(mtf, sensor.shift[axis])) for mtf in mtf_C]
        weight = torch.stack(kernels).to(padded_BCHW).view(shape)
        stride = (sensor.scale, 1) if axis == 0 else (1, sensor.scale)
        padded_BCHW = functional.conv2d(padded_BCHW, weight, stride=stride, groups=channels)
    return padded_BCHW


def angle(one_BCHW: Tensor, other_BCHW: Tensor) -> Tensor:
    """Spectral angle in radians, BHW (Kruse et al. 1993); 0 where either is dark in all bands."""
    product = (one_BCHW * other_BCHW).sum(1)
    lengths = one_BCHW.square().sum(1).sqrt() * other_BCHW.square().sum(1).sqrt()
    cosine = product / lengths.clamp_min(TINY)
    # The slope of the arc cosine is infinite at 1.
    return torch.where(lengths > TINY, cosine.clamp(-1 + 1e-7, 1 - 1e-7).acos(), 0.0)


def similarity(
    one_BCHW: Tensor, other_BCHW: Tensor, valid_BCHW: Tensor, window_K: Tensor, c1: float, c2: float
) -> tuple[Tensor, Tensor]:
    """Structural similarity at every place of a separable window, and where the window is valid.

    Args:
        one_BCHW: An image.
        other_BCHW: Another.
        valid_BCHW: Where both are there.
        window_K: Weights along an axis, with sum 1.
        c1: Stabilises the ratio of means,
        c2: and that of variances.
    """
    channels, size = one_BCHW.shape[1], len(window_K)
    if min(one_BCHW.shape[2:]) < size:
        nothing = one_BCHW[..., :0, :0]
        return nothing, nothing.bool()

    def mean(field_BCHW: Tensor) -> Tensor:
        for shape in ((channels, 1, size, 1), (channels, 1, 1, size)):
            weight = window_K.to(field_BCHW).view(1, 1, *shape[2:]).expand(shape)
            field_BCHW = functional.conv2d(field_BCHW, weight, groups=channels)
        return field_BCHW

    valid = valid_BCHW.to(one_BCHW.dtype)
    one_BCHW, other_BCHW = one_BCHW * valid, other_BCHW * valid
    mean_one, mean_other = mean(one_BCHW), mean(other_BCHW)
    variances = mean(one_BCHW**2) - mean_one**2 + mean(other_BCHW**2) - mean_other**2
    covariance = mean(one_BCHW * other_BCHW) - mean_one * mean_other
    luminance = (2 * mean_one * mean_other + c1) / (mean_one**2 + mean_other**2 + c1)
    structure = (2 * covariance + c2) / (variances + c2)
    return luminance * structure, mean(valid) > 1 - 0.5 * float(window_K.min()) ** 2


def gaussian_window() -> Tensor:
    """That of SSIM, float64."""
    place_K = torch.arange(SSIM_WINDOW, dtype=torch.float64) - SSIM_WINDOW // 2
    weight_K = (-0.5 * (place_K / SSIM_SIGMA) ** 2).exp()
    return weight_K / weight_K.sum()


def _l1(sr: Tensor, hr: Tensor, valid: Tensor, *_: Tensor) -> Sums:
    return ((sr - hr).abs() * valid).sum(), valid.sum()


def _charbonnier(sr: Tensor, hr: Tensor, valid: Tensor, *_: Tensor) -> Sums:
    """Smooth at 0 (Charbonnier et al. 1994), epsilon 1e-3."""
    return (((sr - hr).square() + 1e-6).sqrt() * valid).sum(), valid.sum()


def _sam(sr: Tensor, hr: Tensor, valid: Tensor, *_: Tensor) -> Sums:
    whole_BHW = valid.all(1)
    return (angle(sr, hr) * whole_BHW).sum(), whole_BHW.sum()


def _ssim(sr: Tensor, hr: Tensor, valid: Tensor, *_: Tensor) -> Sums:
    found, whole = similarity(sr, hr, valid, gaussian_window(), SSIM_C1, SSIM_C2)
    return ((1 - found) * whole).sum(), whole.sum()


LOSSES: dict[str, Callable[..., Sums]] = {
    "l1": _l1,
    "charbonnier": _charbonnier,
    "sam": _sam,
    "ssim": _ssim,
}
CONSISTENCY = "consistency"


class ImageLoss:
    """A weighted sum of losses.

    Args:
        terms: Such as ``l1 + 0.1*sam``: of l1, charbonnier, sam (radians), ssim (1 - SSIM),
            consistency (L1 between the low-resolution image and what the sensor sees of the
            prediction).
        sensor: For consistency.

    Raises:
        ConfigError: An unknown loss.
    """

    def __init__(self, terms: str, sensor: Sensor) -> None:
        self.sensor = sensor
        self.weights: dict[str, float] = {}
        for term in terms.replace(" ", "").split("+"):
            found = re.fullmatch(r"(?:(\d*\.?\d+(?:e-?\d+)?)\*)?(\w+)", term)
            known = (*LOSSES, CONSISTENCY)
            if not found or found[2] not in known:
                expected = "terms like l1 or 0.1*sam joined by '+'"
                raise ConfigError(
                    f"task.loss: expected {expected}, got {term!r}{nearest(term, known)}"
                )
            self.weights[found[2]] = float(found[1] or 1)

    def sums(
        self, sr_BCHW: Tensor, hr_BCHW: Tensor, valid_BCHW: Tensor, lr_BCHW: Tensor,
        lr_valid_BCHW: Tensor,
    ) -> Tensor:  # fmt: skip
        """Numerators and denominators, shape (2, T), that add over batches and ranks."""
        pairs = []
        for name in self.weights:
            if name == CONSISTENCY:
                seen_BCHW = observe(self.sensor, sr_BCHW)
                pairs.append(_l1(seen_BCHW, lr_BCHW, lr_valid_BCHW))
            else:
                pairs.append(LOSSES[name](sr_BCHW, hr_BCHW, valid_BCHW))
        return torch.stack(
            [torch.stack([it.to(sr_BCHW.dtype) for it in pair]) for pair in pairs], 1
        )

    def value(self, sums_2T: Tensor) -> Tensor:
        """The loss, 0 where nothing was valid."""
        ratio_T = sums_2T[0] / sums_2T[1].clamp_min(1)
        return (ratio_T * ratio_T.new_tensor(list(self.weights.values()))).sum()
