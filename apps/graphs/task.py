"""Learning on nodes: classes, several labels, or numbers.

Shapes: B node of a batch, H head of a network, K hop, F feature, C class or output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from apps.graphs.exported import exportable
from apps.graphs.metrics import probabilities, scores
from apps.graphs.smooth import smoothed
from scadl_core.errors import ConfigError, nearest
from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.task import Task

CHOSEN_BY = {"classes": "accuracy", "multilabel": "f1_micro", "regression": "r2"}
WEIGHTINGS = {"none": 0.0, "inverse_sqrt": -0.5, "inverse": -1.0}


class Said(NamedTuple):
    """What was said of the nodes of a split, in their order: probabilities (N, C), and labels."""

    node_N: NDArray[np.int64]
    said_NC: NDArray[np.float64]
    label: NDArray[Any]


class NodeTask(Task):
    """Predicts the labels of nodes.

    Args:
        score: By which the best checkpoint is chosen; ``auto``: the accuracy, for two classes the
            area under the ROC curve.
        class_weights: ``none``, ``inverse_sqrt`` or ``inverse`` (rare classes count more).
        smooth: Arguments of :func:`apps.graphs.smooth.smoothed`, with ``correct`` and ``smooth``
            both 0 for none: the test is then scored on corrected and smoothed probabilities.
        halo_bound: Of the relative error of messages between ranks; None: exact.
        base: Arguments of :class:`scadl_core.workflow.task.Task`.
    """

    rms_K: Tensor
    weight_C: Tensor

    def __init__(
        self,
        score: str,
        class_weights: str,
        smooth: Mapping[str, Any],
        halo_bound: float | None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.kind, self.score = self.facts["kind"], score
        if score == "auto":
            binary = self.kind == "classes" and len(self.facts["classes"]) == 2
            self.score = "roc_auc" if binary else CHOSEN_BY[self.kind]
        self.smooth, self.halo_bound = dict(smooth), halo_bound
        self.register_buffer("rms_K", torch.tensor(self.facts["rms_K"], dtype=torch.float32))
        self.register_buffer("weight_C", _weights(self.facts["count_C"], class_weights))
        self._parts: list[list[Any]] = []
        self._loss_sums: list[Tensor] = []
        self.said: Said | None = None

    def forward(self, batch: Any) -> Tensor:
        """Logits, shape (B, C), of a batch of :class:`apps.graphs.samples.GraphSamples`."""
        if isinstance(batch, dict):
            return self.network(self._scaled(batch))
        part = getattr(batch, "part", None)
        if part is not None:
            part.bound = self.halo_bound
        with part.renewing(self.network) if part is not None else nullcontext():
            x_NF = batch.x / self.rms_K[0]
            logits_NC = self.network(x_NF, batch.edge_index, edge_weight=batch.edge_weight)
        return logits_NC[batch.place]

    def _scaled(self, batch: Any) -> Tensor:
        return batch["x_BKF"] / self.rms_K[:, None]

    def heads(self, batch: Any) -> Tensor:
        """Logits of all heads of a network that has several, shape (B, H, C)."""
        if hasattr(self.network, "heads") and not self.network.training:
            return self.network.heads(self._scaled(batch))
        logits = self(batch)
        return logits if logits.ndim == 3 else logits[:, None]

    def exportable(self) -> Exportable:
        """A graph in, what is said of its nodes out."""
        return exportable(self)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of the global batch, summed over heads: its numerator and denominator are summed
        over ranks.
        """
        sums_H2 = self.world.global_sum(self._sums(self.heads(batch), batch["label"]))
        loss = (sums_H2[:, 0] / sums_H2[:, 1].clamp_min(1e-12)).sum()
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def _sums(self, logits_BHC: Tensor, label: Tensor) -> Tensor:
        """Numerator and denominator of the loss of each head, shape (H, 2)."""
        return torch.stack([self._sums_of(logits_BC, label) for logits_BC in logits_BHC.unbind(1)])

    def _sums_of(self, logits_BC: Tensor, label: Tensor) -> Tensor:
        logits_BC = logits_BC.to(torch.promote_types(logits_BC.dtype, torch.float32))
        if self.kind == "classes":
            weight_B = self.weight_C.to(logits_BC)[label]
            loss_B = functional.cross_entropy(logits_BC, label, reduction="none")
            return torch.stack([(weight_B * loss_B).sum(), weight_B.sum()])
        known_BC = label.isfinite()
        truth_BC = label.nan_to_num().to(logits_BC)
        if self.kind == "multilabel":
            loss_BC = functional.binary_cross_entropy_with_logits(
                logits_BC, truth_BC, reduction="none"
            )
        else:
            mean_C, std_C = (logits_BC.new_tensor(self.facts[it]) for it in ("mean_C", "std_C"))
            loss_BC = (logits_BC - (truth_BC - mean_C) / std_C).square()
        return torch.stack([(known_BC * loss_BC).sum(), known_BC.sum().to(loss_BC)])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Keeps what every head says of a batch."""
        self._keep(self.heads(batch), batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Keeps what is said of a batch."""
        self._keep(self(batch)[:, None], batch)

    def _keep(self, logits_BHC: Tensor, batch: Any) -> None:
        self._loss_sums.append(self._sums(logits_BHC, batch["label"]).double())
        self._parts.append([batch["node"].cpu(), logits_BHC.double().cpu(), batch["label"].cpu()])

    def on_validation_epoch_start(self) -> None:
        """Begins anew."""
        self._begin(getattr(self.network, "num_heads", 1))

    def on_test_epoch_start(self) -> None:
        """Begins anew."""
        self._begin(1)

    def _begin(self, heads: int) -> None:
        zeros_H2 = torch.zeros(heads, 2, dtype=torch.float64, device=self.device)
        self._parts, self._loss_sums = [], [zeros_H2]

    def on_validation_epoch_end(self) -> None:
        """Logs the scores of the whole split, over all ranks."""
        found = self.scores()
        shown = {"loss", "accuracy", "f1_micro", "r2", self.score}
        self.log_dict({f"val/{name}": found[name] for name in found if name in shown})
        if self.score not in found:
            raise ConfigError(f"task.score: got {self.score!r}{nearest(self.score, found)}")
        self.log("val/score", found[self.score], prog_bar=True)

    def on_test_epoch_end(self) -> None:
        """Corrects and smooths, where that is asked for."""
        self.said = self._gathered()[0]
        if any(self.smooth.get(it) for it in ("correct", "smooth")):
            samples = self.trainer.test_dataloaders.dataset.samples
            self.said = smoothed(self, samples.data, self.said, **self.smooth)

    def scores(self) -> dict[str, float]:
        """Scores of the last evaluation; every rank has to ask. Of a validation they are those of
        the best head, which speaks from now on.
        """
        sums_H2 = self.world.global_sum(torch.stack(self._loss_sums).sum(0))
        heads = self._gathered() if self.said is None else [self.said]
        found = [
            {"loss": above / max(below, 1e-12)} | scores(self.kind, *it[1:], self.facts["classes"])
            for (above, below), it in zip(sums_H2.tolist(), heads, strict=True)
        ]
        chosen = max(range(len(found)), key=lambda head: found[head].get(self.score, 0.0))
        if len(found) > 1:
            self.network.chosen.fill_(chosen)
        return found[chosen]

    def _gathered(self) -> list[Said]:
        """Of each head."""
        parts = [[torch.cat(it).numpy() for it in zip(*self._parts, strict=True)]] * bool(
            self._parts
        )
        everyone = [part for rank in self.world.gather(parts) for part in rank]
        node_N, logits_NHC, label = (np.concatenate(it) for it in zip(*everyone, strict=True))
        order_N = np.argsort(node_N, kind="stable")
        heads = np.moveaxis(logits_NHC[order_N], 1, 0)
        return [Said(node_N[order_N], self.values(it), label[order_N]) for it in heads]

    def values(self, logits_NC: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities, or numbers in the units of the labels."""
        if self.kind == "regression":
            return logits_NC * self.facts["std_C"] + self.facts["mean_C"]
        return probabilities(self.kind, logits_NC)

    @torch.inference_mode()
    def predict_nodes(self, samples: Any, batch_size: int) -> NDArray[np.float64]:
        """Probabilities of all nodes of some samples, in their order, shape (N, C)."""
        said: dict[str, list[Any]] = {"node": [], "logits": []}
        for at in range(0, len(samples), batch_size):
            indices = list(range(at, min(at + batch_size, len(samples))))
            batch = samples.batch(indices, None)
            if isinstance(batch, dict):
                batch = {name: it.to(self.device) for name, it in batch.items()}
            else:
                batch = batch.to(self.device)
            said["logits"].append(self(batch).double().cpu().numpy())
            said["node"].append(batch["node"].cpu().numpy())
        logits_NC, node_N = (np.concatenate(said[it]) for it in ("logits", "node"))
        return self.values(logits_NC[np.argsort(node_N, kind="stable")])


def _weights(count_C: Sequence[float], how: str) -> Tensor:
    if not isinstance(how, str) or how not in WEIGHTINGS:
        raise ConfigError(f"task.class_weights: got {how!r}{nearest(how, WEIGHTINGS)}")
    count = torch.tensor(count_C, dtype=torch.float32)
    weight_C = torch.where(count > 0, count.clamp_min(1) ** WEIGHTINGS[how], 0.0)
    return weight_C / weight_C[weight_C > 0].mean()
