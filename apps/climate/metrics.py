"""Scores of a segmentation: by pixel, by object, and of its probabilities.

All are ratios of sums that add up over batches and ranks. Suffixes: B batch, K class (K rows truth,
second K prediction), H latitude, W longitude, Q kind of forecast, N bin of probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from apps.climate.objects import components, match
from scadl_core.errors import ConfigError

BINS = 15  # of probability, as in Guo et al. 2017


class Sums(Metric):
    """A total in float64 that batches and ranks add to."""

    full_state_update = False
    total: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        zeros = torch.zeros(shape, dtype=torch.float64)
        self.add_state("total", default=zeros, dist_reduce_fx="sum")

    def compute(self) -> Tensor:
        """The total over all ranks."""
        return self.total


class Confusion(Sums):
    """Area per pair of true and predicted class, KK: rows truth, columns prediction."""

    def __init__(self, num_classes: int) -> None:
        if num_classes < 2:
            raise ConfigError(f"data.classes: expected at least two classes, got {num_classes}")
        super().__init__(num_classes, num_classes)

    def update(self, predicted_BHW: Tensor, label_BHW: Tensor, area_BHW: Tensor) -> None:
        """Adds a batch of class numbers and pixels' areas; a label of -1 leaves a pixel out."""
        self.total += confusion(predicted_BHW, label_BHW, area_BHW, len(self.total))


def confusion(
    predicted_BHW: Tensor, label_BHW: Tensor, area_BHW: Tensor, num_classes: int
) -> Tensor:
    """The matrix KK of one batch, float64: rows truth, columns prediction. See `Confusion`."""
    classes_K = torch.arange(num_classes, device=label_BHW.device)
    truth_BHWK = (label_BHW[..., None] == classes_K).double()
    predicted_BHWK = (predicted_BHW[..., None] == classes_K) * area_BHW.double()[..., None]
    # Not bincount with weights, which is not deterministic on CUDA.
    return (truth_BHWK.transpose(-1, -2) @ predicted_BHWK).sum((0, 1))


def scores(confusion_KK: Tensor, classes: Sequence[str]) -> dict[str, float]:
    """`iou_<class>`, `precision_<class>`, `recall_<class>`, `f1_<class>` of all, and `iou_mean`.

    A score without anything to judge is NaN: all of a class that neither occurs nor is predicted,
    precision without a prediction, recall without an occurrence. `iou_mean` leaves NaN out, rather
    than count an absent class as 1 (as MLPerf's DeepCAM does) or as 0, either of which would move
    the mean with the choice of the maps.
    """
    confusion_KK = confusion_KK.double().cpu()
    hit_K, truth_K, predicted_K = confusion_KK.diagonal(), confusion_KK.sum(1), confusion_KK.sum(0)
    either_K = truth_K + predicted_K
    ratios_K = {  # 0 / 0 is NaN
        "iou": hit_K / (either_K - hit_K),
        "precision": hit_K / predicted_K,
        "recall": hit_K / truth_K,
        "f1": 2 * hit_K / either_K,
    }
    named = {
        f"{score}_{name}": float(ratio)
        for score, ratio_K in ratios_K.items()
        for name, ratio in zip(classes, ratio_K, strict=True)
    }
    return named | {"iou_mean": float(ratios_K["iou"].nanmean())}


class Detection(Sums):
    """Hits, true objects and predicted ones of each class, K3: whole numbers, so exact over ranks.

    Which objects are the same event is said by :func:`apps.climate.objects.match`.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, 3)

    def update(
        self, predicted_BHW: Tensor, label_BHW: Tensor, area_BHW: Tensor, periodic: bool
    ) -> None:
        """Adds maps; pixels with a label of -1 belong to no object."""
        known_BHW = predicted_BHW.where(label_BHW >= 0, 0)
        maps = (it.cpu().numpy() for it in (label_BHW, known_BHW, area_BHW))
        for truth_HW, said_HW, area_HW in zip(*maps, strict=True):
            for number in range(1, len(self.total)):
                both = [components(it == number, periodic) for it in (truth_HW, said_HW)]
                counts = len(match(*both, area_HW)), *(int(it.max()) for it in both)
                self.total[number] += self.total.new_tensor(counts)


def detection_scores(count_K3: Tensor, classes: Sequence[str]) -> dict[str, float]:
    """`pod_<class>`, the probability of detection, and `far_<class>`, the false-alarm ratio.

    Wilks 2011, Statistical Methods in the Atmospheric Sciences, section 8.2.1; of all classes but
    the first. NaN without a true, or without a predicted object.
    """
    hits_K, truth_K, said_K = count_K3.double().cpu().T
    ratios = {"pod": hits_K / truth_K, "far": (said_K - hits_K) / said_K}
    named = [(score, it, classes[it]) for score in ratios for it in range(1, len(classes))]
    return {f"{score}_{name}": float(ratios[score][number]) for score, number, name in named}


class Calibration(Sums):
    """By bin of probability: area, area x probability, and area where it came true, QN3.

    Q counts forecasts: first that of the likeliest class, then that of every class against the
    rest, as a reliability diagram has it.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(1 + num_classes, BINS, 3)

    def update(self, logits_BKHW: Tensor, label_BHW: Tensor, area_BHW: Tensor) -> None:
        """Adds maps; a label of -1 leaves a pixel out."""
        p_KBHW = logits_BKHW.float().softmax(1).transpose(0, 1)
        area_BHW = area_BHW.double() * (label_BHW >= 0)
        best_BHW, said_BHW = p_KBHW.max(0)
        forecasts = [(best_BHW, said_BHW == label_BHW)]
        forecasts += [(p_BHW, label_BHW == number) for number, p_BHW in enumerate(p_KBHW)]
        for kind, (p_BHW, true_BHW) in enumerate(forecasts):
            parts = torch.stack([area_BHW, area_BHW * p_BHW, area_BHW * true_BHW])
            bin_BHW = (p_BHW * BINS).long().clamp_max(BINS - 1)
            for bin_ in range(BINS):  # a loop, as scattered sums are not deterministic on CUDA
                self.total[kind, bin_] += (parts * (bin_BHW == bin_)).sum((1, 2, 3))


def calibration_error(sums_QN3: Tensor) -> float:
    """The expected calibration error of the likeliest class, weighted by area; NaN of nothing.

    Guo et al. 2017, arXiv:1706.04599, eq. 3, with bins of equal width.
    """
    area_N, probability_N, true_N = sums_QN3[0].double().cpu().T
    return float((probability_N - true_N).abs().sum() / area_N.sum())
