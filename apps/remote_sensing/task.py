"""Super-resolution: loss and scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from apps.remote_sensing.losses import ImageLoss
from apps.remote_sensing.metrics import Sums, add, against_input, against_truth, cropped, scores
from apps.remote_sensing.model import bicubic
from apps.remote_sensing.sensor import Sensor
from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.task import Task

EXPORTED_PIXELS = 64
BICUBIC = ("psnr", "ssim", "sam", "ergas")  # scores that interpolation gets beside the network's


class SuperResolution(Task):
    """Makes finer images of coarse ones; both in units of white.

    Args:
        loss: Terms of :class:`apps.remote_sensing.losses.ImageLoss`.
        crop: Fine pixels along the border of each image that scores leave out.
        base: Arguments of :class:`scadl_core.workflow.task.Task`.
    """

    def __init__(self, loss: str, crop: int, **base: Any) -> None:
        super().__init__(**base)
        self.sensor = Sensor(**self.facts["sensor"])
        self.loss, self.crop = ImageLoss(loss, self.sensor), crop
        self._sums: dict[str, Sums] = {}
        self._is_test = False

    def forward(self, lr_BCHW: Tensor) -> Tensor:
        """The finer image, of one without gaps."""
        fine_BCHW: Tensor = self.network(lr_BCHW)
        return fine_BCHW

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The loss of the global batch: its numerators and denominators are summed over ranks."""
        loss = self.loss.value(self.world.global_sum(self._losses(self(batch["lr_CHW"]), batch)))
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def _losses(self, sr_BCHW: Tensor, batch: dict[str, Tensor]) -> Tensor:
        names = ("hr_CHW", "valid_CHW", "lr_CHW", "lr_valid_CHW")
        return self.loss.sums(sr_BCHW, *(batch[name] for name in names))

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Adds a batch to the scores."""
        self._add("own", batch, self(batch["lr_CHW"]))

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """As in a validation; and interpolation is scored on the same pixels."""
        self.validation_step(batch, batch_idx)
        self._add("bicubic", batch, bicubic(batch["lr_CHW"], self.sensor.scale))

    def _add(self, which: str, batch: dict[str, Tensor], sr_BCHW: Tensor) -> None:
        sums = against_truth(*cropped(batch, sr_BCHW, self.crop), self.facts["inputs"])
        if which == "own":
            losses_2T = self._losses(sr_BCHW, batch).double()
            sums |= against_input(sr_BCHW, batch, self.sensor) if self._is_test else {}
            sums["loss_2T"] = losses_2T
        self._sums[which] = add(self._sums.get(which, {}), sums)

    def on_validation_epoch_start(self) -> None:
        """Begins new scores."""
        self._sums, self._is_test = {}, bool(self.trainer.testing)

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Logs the scores of the whole split, over all ranks."""
        found = self.scores()
        chosen = {f"val/{name}": found[name] for name in ("loss", "psnr", "ssim")}
        self.log_dict(chosen, sync_dist=True)
        self.log("val/score", found["psnr"], prog_bar=True, sync_dist=True)

    def scores(self) -> dict[str, float]:
        """Scores of the last evaluation; every rank has to ask."""
        bands, found = self.facts["inputs"], dict[str, float]()
        for which in ("bicubic", "own") if self._is_test else ("own",):
            total = self._total(which)
            if which == "own":
                found["loss"] = float(self.loss.value(total.pop("loss_2T")))
            every = scores(total, bands, self.sensor.scale)
            kept = {f"bicubic_{name}": every[name] for name in BICUBIC if name in every}
            found |= kept if which == "bicubic" else every
        return found

    def _total(self, which: str) -> Sums:
        """Sums over ranks, of which some may have had no batch."""
        own = {name: it.cpu() for name, it in self._sums.get(which, {}).items()}
        total: Sums = {}
        for sums in self.world.gather(own):
            total = add(total, sums) if sums else total
        return total

    def exportable(self) -> Exportable:
        """The network, for images of a fixed size."""
        shape = (2, len(self.facts["inputs"]), EXPORTED_PIXELS, EXPORTED_PIXELS)
        about = {name: self.facts[name] for name in ("white", "sensor")}
        about["bands"] = self.facts["inputs"]
        how = "values in units of white (white: see there), gaps filled; tiles need a margin"
        return Exportable(
            self.network.eval(),
            {"image": torch.zeros(shape)},
            "fine_image",
            {**about, "how": how},
        )
