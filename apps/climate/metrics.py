"""Scores of a segmentation, from one area-weighted confusion matrix.

Suffixes: B batch, K class (K rows truth, second K prediction), H latitude, W longitude.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from scadl_core.errors import ConfigError


class Confusion(Metric):
    """Area per pair of true and predicted class, in float64, summed over batches and ranks."""

    full_state_update = False
    area_KK: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ConfigError(f"data.classes: expected at least two classes, got {num_classes}")
        self.num_classes = num_classes
        zero_KK = torch.zeros(num_classes, num_classes, dtype=torch.float64)
        self.add_state("area_KK", default=zero_KK, dist_reduce_fx="sum")

    def update(self, predicted_BHW: Tensor, label_BHW: Tensor, area_BHW: Tensor) -> None:
        """Adds a batch of class numbers and pixels' areas; a label of -1 leaves a pixel out."""
        self.area_KK += confusion(predicted_BHW, label_BHW, area_BHW, self.num_classes)

    def compute(self) -> Tensor:
        """The matrix KK: rows truth, columns prediction."""
        return self.area_KK


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
