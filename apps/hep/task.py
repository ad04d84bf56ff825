"""Classification of rows: loss and scores.

Suffixes: B row of a batch, P constituent, F feature, G feature of a row, K class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from apps.hep.metrics import Scored, accuracy, pair_aucs, scores
from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.task import Task

INPUTS = ("features_BPF", "mask_BP", "points_BPD", "vectors_BPD", "flat_BG")
KEPT = ("label_B", "weight_B", "pt_B", "mass_B")


class Classification(Task):
    """Tells the class of a jet or an event.

    The loss is the sum of weight x cross entropy over the sum of the weights' sizes: negative
    weights pull away, as they cancel what others have too much of, and cannot make it jump.

    Args:
        label_smoothing: Share of the target that is spread over all classes.
        base: Arguments of :class:`scadl_core.workflow.task.Task`.
    """

    def __init__(self, label_smoothing: float = 0.0, **base: Any) -> None:
        super().__init__(**base)
        self.label_smoothing = label_smoothing
        for kind, standard in self.facts["standards"].items():
            table = torch.tensor(standard, dtype=torch.float32).reshape(-1, 4)
            self.register_buffer(f"standard_{kind}", table)
        self._kept: list[list[NDArray[Any]]] = []
        self._is_test, self._scored = False, None

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits, shape (B, K), of inputs as the files have them, in the order of ``INPUTS``."""
        return logits(self.network, self.standard_particles, self.standard_flat, inputs)

    def exportable(self) -> Exportable:
        """Network and standardisation in one; the description has the formulas of the inputs."""
        recipe, counts = self.facts["recipe"], self.facts["model"]
        length = recipe["length"] if recipe["particles"] else 0
        sizes = {"features_BPF": "particles", "points_BPD": "points", "vectors_BPD": "vectors"}
        shapes = {name: (2, length, counts[f"num_{of}"]) for name, of in sizes.items()}
        shapes |= {"mask_BP": (2, length), "flat_BG": (2, counts["num_flat"])}
        inputs = {name: torch.zeros(shapes[name]) for name in INPUTS}
        inputs["mask_BP"] = torch.ones(shapes["mask_BP"], dtype=torch.bool)
        about = {
            "classes": self.facts["classes"],
            "recipe": recipe,
            "order": "constituents of the largest recipe.order first, or as the file has them",
            "padding": "zeros, with mask_BP false; what is missing is NaN",
        }
        return Exportable(Scores(self).to("cpu"), inputs, "probability_BK", about)

    def _logits(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self(*trimmed([batch[name] for name in INPUTS]))

    def _sums(self, logits_BK: Tensor, batch: Mapping[str, Tensor], weight_B: Tensor) -> Tensor:
        loss_B = functional.cross_entropy(
            logits_BK, batch["label_B"], reduction="none", label_smoothing=self.label_smoothing
        )
        weight_B = weight_B.to(loss_B.dtype)
        return torch.stack([(loss_B * weight_B).sum(), weight_B.abs().sum()])

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The loss of the global batch: both sums are taken over ranks."""
        weight_B = batch["weight_B"] * batch["factor_B"]
        sums = self.world.global_sum(self._sums(self._logits(batch), batch, weight_B))
        loss = sums[0] / sums[1]
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Keeps what the scores of the whole split need."""
        logits_BK = self._logits(batch)
        self._loss += self._sums(logits_BK, batch, batch["weight_B"]).double()
        kept = [logits_BK.softmax(1), *(batch[name] for name in KEPT)]
        self._kept.append([values.cpu().numpy() for values in kept])

    test_step = validation_step

    def on_validation_epoch_start(self) -> None:
        """Begins new scores."""
        self._kept, self._is_test = [], bool(self.trainer.testing)
        self._scored = None
        self._loss = torch.zeros(2, dtype=torch.float64, device=self.device)

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Logs the scores of the whole split, over all ranks."""
        values = self.scores()
        chosen = {f"val/{name}": values[name] for name in ("loss", "accuracy", "auc_macro")}
        self.log_dict(chosen)
        self.log("val/score", values["auc_macro"], prog_bar=True)

    def scored(self) -> Scored:
        """All rows of the last evaluation, of all ranks; every rank has to ask at first."""
        if self._scored is None:
            self._scored = self._gathered()
        return self._scored

    def _gathered(self) -> Scored:
        mine = (
            [np.concatenate(part) for part in zip(*self._kept, strict=True)] if self._kept else None
        )
        parts = [part for part in self.world.gather(mine) if part is not None]
        if not parts:
            classes = len(self.facts["classes"])
            return Scored(np.zeros((0, classes)), np.zeros(0, int), *(np.zeros(0),) * 3)
        whole = [np.concatenate(of) for of in zip(*parts, strict=True)]
        probability_RK, label_R, *rest = whole
        return Scored(probability_RK.astype(float), label_R, *(it.astype(float) for it in rest))

    def scores(self) -> dict[str, float]:
        """Scores of the last evaluation; every rank has to ask."""
        loss, size = self.world.global_sum(self._loss).tolist()
        found, classes = self.scored(), self.facts["classes"]
        named = {"loss": loss / size if size else float("nan")}
        if self._is_test:
            return named | scores(found, classes)
        return named | {"accuracy": accuracy(found), **pair_aucs(found, classes)}

    @torch.inference_mode()
    def probabilities(
        self, batch: Mapping[str, NDArray[Any]], rows: int = 1024
    ) -> NDArray[np.float32]:
        """Probability of each class, shape (R, K), of the rows of a batch of any length."""
        count = len(batch["flat_BG"])
        found = [np.zeros((0, len(self.facts["classes"])), np.float32)]
        for start in range(0, count, rows):
            inputs = [torch.from_numpy(batch[name][start : start + rows]) for name in INPUTS]
            logits_BK = self(*(it.to(self.device) for it in trimmed(inputs)))
            found.append(logits_BK.softmax(1).float().cpu().numpy())
        return np.concatenate(found)


def trimmed(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The same without what only fills up all rows: attention takes the square of the length."""
    *lists, flat_BG = inputs
    length = max(int(lists[1].any(0).sum()), 1)
    return [*(it[:, :length] for it in lists), flat_BG]


class Scores(nn.Module):
    """From inputs as the files have them to probabilities, for other programs."""

    def __init__(self, task: Classification) -> None:
        super().__init__()
        self.network = task.network
        self.register_buffer("standard_particles", task.standard_particles)
        self.register_buffer("standard_flat", task.standard_flat)

    def forward(
        self, features_BPF: Tensor, mask_BP: Tensor, points_BPD: Tensor, vectors_BPD: Tensor,
        flat_BG: Tensor,
    ) -> Tensor:  # fmt: skip
        """Shape (B, K), of inputs in the order of ``INPUTS``."""
        inputs = (features_BPF, mask_BP, points_BPD, vectors_BPD, flat_BG)
        return logits(self.network, self.standard_particles, self.standard_flat, inputs).softmax(1)


def logits(
    network: nn.Module, particles_F4: Tensor, flat_G4: Tensor, inputs: Sequence[Tensor]
) -> Tensor:
    """Shape (B, K), of inputs as the files have them, by the standards of both kinds."""
    features_BPF, mask_BP, points_BPD, vectors_BPD, flat_BG = inputs
    features_BPF = standardised(features_BPF, particles_F4) * mask_BP[..., None]
    flat_BG = standardised(flat_BG, flat_G4)
    return network(features_BPF, mask_BP, points_BPD, vectors_BPD, flat_BG)


def standardised(values: Tensor, standard_F4: Tensor) -> Tensor:
    """(value - centre) x factor, within limits; what is missing is at the centre."""
    centre_F, factor_F, low_F, high_F = standard_F4.to(values.dtype).unbind(1)
    scaled = ((values - centre_F) * factor_F).nan_to_num(0.0, posinf=0.0, neginf=0.0)
    return torch.minimum(torch.maximum(scaled, low_F), high_F)
