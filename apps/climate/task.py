"""Segmentation of maps: loss and scores.

Shapes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apps.climate.losses import SegmentationLoss, class_weights
from apps.climate.metrics import (
    Calibration,
    Confusion,
    Detection,
    calibration_error,
    detection_scores,
    scores,
)
from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.task import Task
from scadl_core.workflow.tiles import Tiles


class Segmentation(Task):
    """Classifies every pixel of a map.

    Args:
        loss: Terms of :class:`SegmentationLoss` joined by ``+``.
        class_weights: How rare classes are weighted, see :func:`apps.climate.losses.class_weights`.
        gamma: Exponent of the focal loss.
        base: Arguments of :class:`scadl_core.workflow.task.Task`.
    """

    mean_C: Tensor
    std_C: Tensor

    def __init__(
        self, loss: str, class_weights: str | Sequence[float], gamma: float, **base: Any
    ) -> None:
        super().__init__(**base)
        self.loss = SegmentationLoss(loss, _weights(self.facts, class_weights), gamma)
        self.confusion = Confusion(len(self.facts["classes"]))
        self.detection = Detection(len(self.facts["classes"]))
        self.calibration = Calibration(len(self.facts["classes"]))
        self._is_test = False
        self.register_buffer("mean_C", torch.tensor(self.facts["mean_C"], dtype=torch.float32))
        self.register_buffer("std_C", torch.tensor(self.facts["std_C"], dtype=torch.float32))
        self._loss_sums: list[Tensor] = []

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """Logits, shape (B, K, H, W), of maps in physical units, NaN where missing."""
        return self.network(self._scaled(image_BCHW))

    def _scaled(self, image_CHW: Tensor) -> Tensor:
        return scaled(image_CHW, self.mean_C, self.std_C)

    def exportable(self) -> Exportable:
        """From maps as the files have them to probabilities, for the grid of the training."""
        facts = self.facts
        rows_H, columns_W = np.asarray(facts["latitude"]), np.asarray(facts["longitude"])
        image_BCHW = torch.zeros(2, len(facts["inputs"]), len(rows_H), columns_W.shape[-1])
        about = {
            "channels": dict(zip(facts["inputs"], facts["units"], strict=True)),
            "classes": facts["classes"],
            "missing": "NaN",
            "latitude": [float(rows_H.min()), float(rows_H.max())],
            "longitude": [float(columns_W.min()), float(columns_W.max())],
            "order": "rows from south to north, columns from west to east, of the training's grid",
        }
        return Exportable(_Scores(self).to("cpu"), {"image_BCHW": image_BCHW},
                          "probability_BKHW", about)  # fmt: skip

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The loss of the global batch: its numerators and denominators are summed over ranks."""
        sums = self.loss.sums(self(batch["image_CHW"]), batch["label_HW"], batch["area_HW"])
        loss = self.loss.value(self.world.global_sum(sums))
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Adds a batch to the scores and to the sums of the loss."""
        self._score(self(batch["image_CHW"]), batch)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """As in a validation, and also by objects and by probabilities, which take longer."""
        logits_BKHW, truth = self(batch["image_CHW"]), (batch["label_HW"], batch["area_HW"])
        self._score(logits_BKHW, batch)
        self.detection.update(logits_BKHW.argmax(1), *truth, self.facts["periodic"])
        self.calibration.update(logits_BKHW, *truth)

    def _score(self, logits_BKHW: Tensor, batch: dict[str, Tensor]) -> None:
        self.confusion.update(logits_BKHW.argmax(1), batch["label_HW"], batch["area_HW"])
        self._loss_sums.append(
            self.loss.sums(logits_BKHW, batch["label_HW"], batch["area_HW"]).double()
        )

    def on_validation_epoch_start(self) -> None:
        """Begins new scores."""
        for metric in (self.confusion, self.detection, self.calibration):
            metric.reset()
        self._is_test = bool(self.trainer.testing)
        self._loss_sums = [torch.zeros(self.loss.size, dtype=torch.float64, device=self.device)]

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Logs the scores of the whole split, over all ranks."""
        values = {
            name: value for name, value in self.scores().items() if name.startswith(("iou", "loss"))
        }
        self.log_dict({f"val/{name}": value for name, value in values.items()}, sync_dist=True)
        self.log("val/score", values["iou_mean"], prog_bar=True, sync_dist=True)

    def scores(self) -> dict[str, float]:
        """Scores of the last evaluation; every rank has to ask."""
        loss = self.loss.value(self.world.global_sum(torch.stack(self._loss_sums).sum(0)))
        found = {"loss": float(loss), **scores(self.confusion.compute(), self.facts["classes"])}
        if self._is_test:
            found |= detection_scores(self.detection.compute(), self.facts["classes"])
            found["ece"] = calibration_error(self.calibration.compute())
        return found

    def probabilities(
        self, image_CHW: NDArray[np.float32], periodic: bool, tiles: Tiles | None = None
    ) -> NDArray[np.float32]:
        """Predicts one map.

        Args:
            image_CHW: float32 in physical units, canonical orientation, NaN where missing.
            periodic: Whether the map goes around the globe.
            tiles: Of the task's network; None: such as they are by default.

        Returns:
            Probability of each class, float32 of shape (K, H, W).
        """
        trained, self.network.periodic = self.network.periodic, periodic
        tiles = tiles or Tiles(self.network, len(image_CHW))

        def read(rows: slice, columns: slice) -> Tensor:
            return self._scaled(torch.from_numpy(image_CHW[:, rows, columns]).to(self.device))

        shape = (len(self.facts["classes"]), *image_CHW.shape[1:])
        probability_KHW = np.empty(shape, np.float32)
        for rows, columns, logits_KHW in tiles(read, *shape[1:]):
            probability_KHW[:, rows, columns] = logits_KHW.softmax(0).float().cpu()
        self.network.periodic = trained
        return probability_KHW


class _Scores(nn.Module):
    """From maps in physical units to probabilities, for other programs."""

    def __init__(self, task: Segmentation) -> None:
        super().__init__()
        self.network = task.network
        self.register_buffer("mean_C", task.mean_C)
        self.register_buffer("std_C", task.std_C)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        return self.network(scaled(image_BCHW, self.mean_C, self.std_C)).softmax(1)


def scaled(image_CHW: Tensor, mean_C: Tensor, std_C: Tensor) -> Tensor:
    """Standardised channels; what is missing is at the mean."""
    return ((image_CHW - mean_C[:, None, None]) / std_C[:, None, None]).nan_to_num(0.0)


def _weights(facts: dict[str, Any], how: str | Sequence[float]) -> list[float]:
    return class_weights(facts["class_fraction_K"], how)
