"""Segmentation losses as ratios of sums, so that they add up over data-parallel ranks.

A loss that is a mean over the pixels of one rank depends on how a batch is cut, since the ranks
hold different numbers of valid and of rare pixels. Here a rank computes sums, the sums of all ranks
are added, and the loss is a function of the total:
`value(sums(a) + sums(b)) == value(sums(a and b in one batch))`.

Suffixes: B batch, K class, H latitude, W longitude. Every sum is weighted by area.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scadl_core.errors import ConfigError, nearest

LOSSES = ("cross_entropy", "focal", "jaccard")
POWERS = {"inverse": -1.0, "inverse_sqrt": -0.5, "none": 0.0}
TINY = 1e-12  # a denominator of nothing: the loss of a map without a valid pixel is 0, not NaN


class SegmentationLoss:
    """A sum of losses, each of which is a ratio of sums.

    * ``cross_entropy``: as `torch.nn.functional.cross_entropy` has it, with weights.
    * ``focal``: Lin et al. 2017, arXiv:1708.02002, eq. 5, divided by the sum of the weights.
    * ``jaccard``: one minus the soft intersection over union, mean over the classes whose weight is
      not 0, which is all that weights matter: rare classes count as others do. A class without any
      area has a loss of 0. Rahman and Wang 2016, doi:10.1007/978-3-319-50835-1_22.

    Args:
        name: Some of these joined by "+".
        class_weights_K: See `class_weights`.
        gamma: Exponent of the focal loss; 0 makes it the cross-entropy.

    Raises:
        ConfigError: Unknown name, or a negative gamma.
    """

    def __init__(
        self, name: str, class_weights_K: Sequence[float] | Tensor, gamma: float = 2.0
    ) -> None:
        self.weights_K = torch.as_tensor(class_weights_K, dtype=torch.float32)
        self.gamma, self.names = gamma, [part.strip() for part in name.split("+")]
        if gamma < 0:
            raise ConfigError(f"task.gamma: expected 0 or more, got {gamma!r}")
        for part in self.names:
            if part not in LOSSES:
                found = f"got {part!r}{nearest(part, LOSSES)}"
                raise ConfigError(f"task.loss: expected names joined by '+', {found}")
        self._sizes = [2 * len(self.weights_K) if it == "jaccard" else 2 for it in self.names]
        self.size = sum(self._sizes)  # the length of the vector of `sums`

    def sums(self, logits_BKHW: Tensor, label_BHW: Tensor, area_BHW: Tensor) -> Tensor:
        """All numerators and denominators, a vector that can be added over batches and ranks.

        Logits below float32 are computed with in float32. A label of -1 leaves the pixel out.
        """
        logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
        classes_K11 = torch.arange(logits_BKHW.shape[1], device=label_BHW.device)[:, None, None]
        area_B1HW = area_BHW.to(logits_BKHW.dtype)[:, None]
        area_BKHW = (label_BHW[:, None] == classes_K11) * area_B1HW
        valid_B1HW = (label_BHW[:, None] >= 0) * area_B1HW
        log_p_BKHW = logits_BKHW.log_softmax(1)
        parts = []
        for name in self.names:
            if name == "jaccard":
                p_BKHW, pixels = log_p_BKHW.exp(), (0, 2, 3)
                both_K = (area_BKHW * p_BKHW).sum(pixels)
                either_K = (valid_B1HW * p_BKHW).sum(pixels) + area_BKHW.sum(pixels) - both_K
                parts += [both_K, either_K]
            else:
                parts += self._surprise(log_p_BKHW, area_BKHW, self.gamma * (name == "focal"))
        return torch.cat(parts)

    def _surprise(self, log_p_BKHW: Tensor, area_BKHW: Tensor, gamma: float) -> list[Tensor]:
        weight_BKHW = area_BKHW * self.weights_K[:, None, None].to(area_BKHW)
        surprise_BKHW = -log_p_BKHW
        if gamma:
            # 1 - p of a sure pixel is 0, where the slope of a power below 1 is infinite
            surprise_BKHW = surprise_BKHW * (-torch.expm1(log_p_BKHW)).clamp_min(1e-6) ** gamma
        return [(weight_BKHW * surprise_BKHW).sum()[None], weight_BKHW.sum()[None]]

    def value(self, sums: Tensor) -> Tensor:
        """The loss, a scalar, differentiable in the sums; 0 if there was no valid pixel."""
        losses = []
        for name, part in zip(self.names, sums.split(self._sizes), strict=True):
            above, below = part.chunk(2)
            ratio = above / below.clamp_min(TINY)
            if name == "jaccard":
                known_K = (self.weights_K > 0).to(sums.device)
                ratio = torch.where(below > 0, 1 - ratio, 0.0)[known_K]
            losses.append(ratio.mean())
        return torch.stack(losses).sum()


def class_weights(
    fraction_K: Sequence[float], how: str | Sequence[float] = "inverse_sqrt"
) -> list[float]:
    """Weights of the classes in the loss, with mean 1 over the classes that occur.

    From the share of each class: "inverse" (all classes weigh the same), "inverse_sqrt" (half way),
    "none" (all pixels weigh the same), or the weights themselves. A class that does not occur gets
    0: it cannot be learned, and in a mean over the classes it would be a constant.

    Raises:
        ConfigError: Unknown word, wrong length, or negative weights.
    """
    fraction = np.asarray(fraction_K, dtype=np.float64)
    if not isinstance(how, str):
        weights = np.asarray(how, dtype=np.float64)
    elif how in POWERS:
        weights = np.where(fraction > 0, np.where(fraction > 0, fraction, 1.0) ** POWERS[how], 0.0)
    else:
        found = f"got {how!r}{nearest(how, POWERS)}"
        raise ConfigError(f"task.class_weights: expected a list or a word, {found}")
    if weights.shape != fraction.shape or not np.all(weights >= 0) or not weights.any():
        expected = f"{len(fraction)} numbers of at least 0, one a class and not all 0"
        raise ConfigError(f"task.class_weights: expected {expected}, got {how!r}")
    return (weights / weights[weights > 0].mean()).tolist()
