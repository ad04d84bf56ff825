"""A trained network for other programs: from a graph as its files have it to what is said of nodes.

Suffixes: N node, F feature, M message (an edge one way), K hop, C class or output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from scadl_core.errors import ConfigError
from scadl_core.workflow.contracts import Exportable

if TYPE_CHECKING:
    from apps.graphs.task import NodeTask

NODES = 3  # of the example


class Saying(nn.Module):
    """Scaling of features, normalisation of edges, hops, network and probabilities in one."""

    def __init__(self, task: NodeTask) -> None:
        super().__init__()
        facts = task.facts
        self.network, self.kind, self.by = task.network, facts["kind"], facts["scaling"]["by"]
        self.norm, self.num_hops = facts["settings"]["norm"], facts["settings"]["hops"]
        tables = {"rms_K": task.rms_K}
        if self.by == "standard":
            tables |= {it: torch.tensor(facts["scaling"][it]) for it in ("mean_F", "std_F")}
        if self.kind == "regression":
            tables |= {it: torch.tensor(facts[it]) for it in ("mean_C", "std_C")}
        for name, table in tables.items():
            self.register_buffer(name, table.detach().cpu().float())

    def forward(self, x_NF: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Probabilities, or numbers in the units of the labels, shape (N, C)."""
        x_NF = self.scaled(x_NF)
        sender_M, row_M, weight_M = self.normalised(x_NF.shape[0], edge_index, edge_weight)
        hops = [x_NF]
        for _ in range(self.num_hops):
            sent_MF = weight_M[:, None] * hops[-1][sender_M]
            hops.append(torch.zeros_like(x_NF).index_add(0, row_M, sent_MF))
        return self.said(self.network(torch.stack(hops, 1) / self.rms_K[:, None]))

    def scaled(self, x_NF: Tensor) -> Tensor:
        """As :attr:`apps.graphs.data.GraphData.scaling` says."""
        if self.by == "standard":
            return (x_NF - self.mean_F) / self.std_F
        if self.by == "rows":
            return x_NF / x_NF.abs().sum(1, keepdim=True).clamp_min(1e-12)
        return x_NF

    def normalised(
        self, num_nodes: int, edge_index: Tensor, weight_M: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Senders, receivers and entries of the matrix of :func:`apps.graphs.hops.scales`."""
        sender_M, row_M = edge_index[0], edge_index[1]
        if self.norm == "none":
            return sender_M, row_M, weight_M
        strength_N = weight_M.new_zeros(num_nodes).index_add(0, row_M, weight_M)
        if self.norm == "row":
            inverse_N = torch.where(strength_N > 0, 1 / strength_N, 0.0)
            return sender_M, row_M, weight_M * inverse_N[row_M]
        root_N = (strength_N + 1).rsqrt()
        own_N = torch.arange(num_nodes, device=weight_M.device)
        weight_M = root_N[row_M] * weight_M * root_N[sender_M]
        joined = ([sender_M, own_N], [row_M, own_N], [weight_M, root_N.square()])
        sender_M, row_M, weight_M = (torch.cat(it) for it in joined)
        return sender_M, row_M, weight_M

    def said(self, logits_NC: Tensor) -> Tensor:
        """What logits stand for."""
        if self.kind == "regression":
            return logits_NC * self.std_C + self.mean_C
        return logits_NC.softmax(1) if self.kind == "classes" else logits_NC.sigmoid()


def exportable(task: NodeTask) -> Exportable:
    """What a task of nodes offers.

    Raises:
        ConfigError: It takes labels as inputs, or passes messages itself.
    """
    facts, settings = task.facts, task.facts["settings"]
    if settings["batches"] != "hops":
        raise ConfigError(
            f"{type(task.network).__name__} passes messages by a library's own kernels, which are "
            "not exported; scadl predict applies it, or train a model of hops (sign, gamlp, sgc)"
        )
    if facts["label_use"]:
        raise ConfigError(
            "data.label_use=true: a network whose inputs are labels is not exported; "
            "scadl predict applies it, or train with data.label_use=false"
        )
    inputs = {
        "x_NF": torch.ones(NODES, len(facts["inputs"])),
        "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "edge_weight": torch.ones(4),
    }
    about: dict[str, Any] = {
        "features": facts["inputs"],
        "classes": facts["classes"],
        "edges": "edge_index[0] sends to edge_index[1]; "
        + ("once each" if settings["directed"] else "each edge both ways, once")
        + ("" if settings["loops"] else "; none from a node to itself"),
        "edge_weight": "that of the files, 1 where they have none",
    }
    sizes = {"x_NF": {0: "nodes"}, "edge_index": {1: "edges"}, "edge_weight": {0: "edges"}}
    return Exportable(Saying(task).to("cpu"), inputs, "said_NC", about, sizes)
