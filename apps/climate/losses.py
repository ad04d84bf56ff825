"""Segmentation losses as ratios of sums, so that they add up over data-parallel ranks.

A loss that is a mean over the pixels of one rank depends on how a batch is cut, since the ranks
hold different numbers of valid and of rare pixels. Here a rank computes sums, the sums of all ranks
are added, and the loss is a function of
the total: `value(sums(a) + sums(b)) == value(sums(a and b in one batch))`.

Suffixes: B batch, K class, H latitude, W longitude. Pixels labelled -1 enter no sum. Every sum is
    weighted by area.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from scadl_core.errors import ConfigError, nearest

TINY = 1e-12  # a denominator of nothing: the loss of a map without a valid pixel is 0, not NaN


class Term(Protocol):
    """A loss of `size` sums."""

    size: int

    def sums(self, log_p_BKHW: Tensor, area_BKHW: Tensor, valid_B1HW: Tensor) -> Tensor:
        """From log-probabilities, the area where it is of class k (else 0), and the valid area."""

    def value(self, sums: Tensor) -> Tensor:
        """The loss, a scalar."""


class CrossEntropy:
    """Weighted cross-entropy as `torch.nn.functional.cross_entropy` has it, or focal with a gamma.

    Focal: Lin et al. 2017, arXiv:1708.02002, equation 5, divided by the sum of the weights.
    """

    size = 2

    def __init__(self, class_weights_K: Tensor, gamma: float) -> None:
        self.weights_K11, self.gamma = class_weights_K[:, None, None], gamma

    def sums(self, log_p_BKHW: Tensor, area_BKHW: Tensor, valid_B1HW: Tensor) -> Tensor:
        """See `Term`."""
        weight_BKHW = area_BKHW * self.weights_K11.to(area_BKHW)
        surprise_BKHW = -log_p_BKHW
        if self.gamma:
            # 1 - p of a sure pixel is 0, where the slope of a power below 1 is infinite
            surprise_BKHW = surprise_BKHW * (-torch.expm1(log_p_BKHW)).clamp_min(1e-6) ** self.gamma
        return torch.stack([(weight_BKHW * surprise_BKHW).sum(), weight_BKHW.sum()])

    def value(self, sums: Tensor) -> Tensor:
        """See `Term`."""
        return sums[0] / sums[1].clamp_min(TINY)


class Jaccard:
    """One minus the soft intersection over union, mean over the classes whose weight is not 0.

    The values of the weights do not matter otherwise: as the union is of the class, rare classes
    count as others do. Rahman and Wang 2016, doi:10.1007/978-3-319-50835-1_22. A class
    without any area has a loss of 0.
    """

    def __init__(self, class_weights_K: Tensor) -> None:
        self.known_K = class_weights_K > 0
        self.size = 2 * len(class_weights_K)

    def sums(self, log_p_BKHW: Tensor, area_BKHW: Tensor, valid_B1HW: Tensor) -> Tensor:
        """See `Term`."""
        p_BKHW = log_p_BKHW.exp()
        both_K = (area_BKHW * p_BKHW).sum((0, 2, 3))
        either_K = (valid_B1HW * p_BKHW).sum((0, 2, 3)) + area_BKHW.sum((0, 2, 3)) - both_K
        return torch.cat([both_K, either_K])

    def value(self, sums: Tensor) -> Tensor:
        """See `Term`."""
        both_K, either_K = sums.chunk(2)
        loss_K = 1 - both_K / either_K.clamp_min(TINY)
        return torch.where(either_K > 0, loss_K, 0.0)[self.known_K.to(sums.device)].mean()


LOSSES = ("cross_entropy", "focal", "jaccard")


class SegmentationLoss:
    """A loss by name, or a sum of several: "cross_entropy", "focal", "jaccard",
    "cross_entropy+jaccard", ...

    Args:
        name: Names of `LOSSES` joined by "+".
        class_weights_K: Weight of each class; 0 for a class that the loss leaves out. See
            `class_weights`.
        gamma: Exponent of the focal loss; 0 makes it the cross-entropy.

    Raises:
        ConfigError: Unknown name, negative weights or gamma.
    """

    def __init__(
        self, name: str, class_weights_K: Sequence[float] | Tensor, gamma: float = 2.0
    ) -> None:
        weights_K = torch.as_tensor(class_weights_K, dtype=torch.float32)
        if gamma < 0:
            raise ConfigError(f"task.gamma: expected 0 or more, got {gamma!r}")
        self.terms = [_term(part.strip(), weights_K, gamma) for part in name.split("+")]

    @property
    def size(self) -> int:
        """The length of the vector of `sums`."""
        return sum(term.size for term in self.terms)

    def sums(self, logits_BKHW: Tensor, label_BHW: Tensor, area_BH: Tensor) -> Tensor:
        """All numerators and denominators, a vector that can be added over batches and ranks.

        Args:
            logits_BKHW: Scores before the softmax; below float32 they are computed with in float32.
            label_BHW: Class numbers, or -1 for pixels to leave out.
            area_BH: Relative area of a pixel of a row.
        """
        logits_BKHW = logits_BKHW.to(torch.promote_types(logits_BKHW.dtype, torch.float32))
        classes_K11 = torch.arange(logits_BKHW.shape[1], device=label_BHW.device)[:, None, None]
        area_B1H1 = area_BH.to(logits_BKHW.dtype)[:, None, :, None]
        area_BKHW = (label_BHW[:, None] == classes_K11) * area_B1H1
        valid_B1HW = (label_BHW[:, None] >= 0) * area_B1H1
        log_p_BKHW = logits_BKHW.log_softmax(1)
        return torch.cat([term.sums(log_p_BKHW, area_BKHW, valid_B1HW) for term in self.terms])

    def value(self, sums: Tensor) -> Tensor:
        """The loss, a scalar, differentiable in the sums; 0 if there was no valid pixel."""
        parts = sums.split([term.size for term in self.terms])
        return torch.stack(
            [term.value(part) for term, part in zip(self.terms, parts, strict=True)]
        ).sum()


def _term(name: str, class_weights_K: Tensor, gamma: float) -> Term:
    if name == "jaccard":
        return Jaccard(class_weights_K)
    if name in LOSSES:
        return CrossEntropy(class_weights_K, gamma if name == "focal" else 0.0)
    raise ConfigError(
        f"task.loss: expected names joined by '+', got {name!r}{nearest(name, LOSSES)}"
    )


def class_weights(
    fraction_K: Sequence[float], how: str | Sequence[float] = "inverse_sqrt"
) -> list[float]:
    """Weights of the classes in the loss, with mean 1 over the classes that occur.

    A class that does not occur gets 0: it cannot be learned, its inverse is infinite, and in a mean
    over the classes it would be a constant.

    Args:
        fraction_K: Share of each class in the training data.
        how: "inverse" (all classes weigh the same), "inverse_sqrt" (half way), "none" (all pixels
            weigh the same), or the weights themselves.

    Raises:
        ConfigError: Unknown word, wrong length, or negative weights.
    """
    fraction = np.asarray(fraction_K, dtype=np.float64)
    powers = {"inverse": -1.0, "inverse_sqrt": -0.5, "none": 0.0}
    if not isinstance(how, str):
        weights = np.asarray(how, dtype=np.float64)
    elif how in powers:
        weights = np.where(fraction > 0, np.where(fraction > 0, fraction, 1.0) ** powers[how], 0.0)
    else:
        raise ConfigError(
            f"task.class_weights: expected a list or a word, got {how!r}{nearest(how, powers)}"
        )
    if weights.shape != fraction.shape or not np.all(weights >= 0) or not weights.any():
        raise ConfigError(
            f"task.class_weights: expected {len(fraction)} numbers of at least 0, one a class and "
            f"not all 0, got {how!r}"
        )
    return (weights / weights[weights > 0].mean()).tolist()
