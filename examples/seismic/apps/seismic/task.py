"""Picking of phases: loss and scores.

Suffixes: B batch, C component, K class, T sample in time, P phase, R record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from apps.seismic.picks import picks_of, scores
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.task import Task


class Picking(Task):
    """Says at each sample how probable noise and each phase are.

    Args:
        base: Arguments of :class:`scadl_core.workflow.task.Task`.
    """

    def __init__(self, **base: Any) -> None:
        super().__init__(**base)
        self._kept: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def forward(self, record_BCT: Tensor) -> Tensor:
        """Logits, shape (B, K, T), of records in any unit."""
        return self.network(standardised(record_BCT))

    def _sums(self, logits_BKT: Tensor, batch: dict[str, Tensor]) -> Tensor:
        loss_BT = functional.cross_entropy(logits_BKT, batch["target_KT"], reduction="none")
        return torch.stack([loss_BT.sum(), loss_BT.new_tensor(loss_BT.numel())])

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The loss of the global batch: both sums are taken over ranks."""
        above, below = self.world.global_sum(self._sums(self(batch["record_CT"]), batch))
        self.log("train/loss", above / below, prog_bar=True)
        return above / below

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Keeps the picks of a batch."""
        logits_BKT = self(batch["record_CT"])
        self._loss += self._sums(logits_BKT, batch).double()
        found_BP, _ = picks_of(logits_BKT.softmax(1)[:, 1:].cpu().numpy())
        self._kept.append((found_BP, batch["arrival_P"].cpu().numpy()))

    test_step = validation_step

    def on_validation_epoch_start(self) -> None:
        """Begins new scores."""
        self._kept, self._loss = [], torch.zeros(2, dtype=torch.float64, device=self.device)

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Logs the scores of the whole split, over all ranks."""
        values = self.scores()
        self.log_dict({f"val/{name}": values[name] for name in ("loss", "f1")})
        self.log("val/score", values["f1"], prog_bar=True)

    def scores(self) -> dict[str, float]:
        """Scores of the last evaluation; every rank has to ask."""
        above, below = self.world.global_sum(self._loss).tolist()
        parts = [part for rank in self.world.gather(self._kept) for part in rank]
        found_RP, true_RP = (np.concatenate(it) for it in zip(*parts, strict=True))
        phases, rate_Hz = self.facts["phases"], self.facts["rate_Hz"]
        return {"loss": above / max(below, 1), **scores(found_RP, true_RP, phases, rate_Hz)}

    def exportable(self) -> Exportable:
        """Standardisation and network in one."""
        facts = self.facts
        record_BCT = torch.randn(2, len(facts["inputs"]), facts["length"])
        about = {"components": facts["inputs"], "phases": facts["phases"],
                 "rate_Hz": facts["rate_Hz"]}  # fmt: skip
        return Exportable(_Probabilities(self.network).to("cpu"), {"record_BCT": record_BCT},
                          "probability_BKT", about)  # fmt: skip

    @torch.inference_mode()
    def probabilities(self, record_CT: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of noise and each phase, shape (K, T), in one record."""
        logits_BKT = self(torch.from_numpy(record_CT)[None].to(self.device))
        return logits_BKT.softmax(1)[0].float().cpu().numpy()


class _Probabilities(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, record_BCT: Tensor) -> Tensor:
        return self.network(standardised(record_BCT)).softmax(1)


def standardised(record_BCT: Tensor) -> Tensor:
    """Each record without its mean, in units of its own spread."""
    record_BCT = record_BCT - record_BCT.mean(-1, keepdim=True)
    return record_BCT / record_BCT.square().mean((1, 2), keepdim=True).sqrt().clamp_min(1e-12)
