"""The simple rules that a model has to beat: features without the graph, the graph without them.

Suffixes: N node, F feature, C class or output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from apps.graphs.metrics import probabilities, scores
from apps.graphs.smooth import spread

if TYPE_CHECKING:
    from apps.graphs.data import GraphData

MOST_NODES = 100_000  # train nodes that the rule is fitted on
PENALTY = 1e-2  # of the squared weights, in units of the mean loss; features have spread 1


def score(source: GraphData, steps: int = 100) -> dict[str, float]:
    """Test scores of a linear model of the features alone, and ``accuracy_of_structure``, of labels
    spread over the graph.

    Args:
        source: The graph.
        steps: Of L-BFGS.
    """
    target, test = source.target, source.splits["test"]
    train = source.splits["train"][:MOST_NODES]
    rms = np.float32(source.rms(source.x_NF))
    x_NF = torch.from_numpy(np.asarray(source.x_NF[train]) / rms)
    linear = _fit(
        x_NF, torch.from_numpy(target.label[train]), target.kind, len(target.names), steps
    )
    with torch.no_grad():
        logits = linear(torch.from_numpy(np.asarray(source.x_NF[test]) / rms))
    said_NC = probabilities(target.kind, logits.double().numpy())
    found = scores(target.kind, said_NC, target.label[test], target.names)
    if target.kind == "classes":
        found["accuracy_of_structure"] = _structure(source, test)
    return found


def _fit(x_NF: Tensor, label: Tensor, kind: str, outputs: int, steps: int) -> nn.Linear:
    linear = nn.Linear(x_NF.shape[1], outputs, dtype=x_NF.dtype)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    solver = torch.optim.LBFGS(linear.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        loss = _loss(linear(x_NF), label, kind) + PENALTY * linear.weight.square().sum() / 2
        loss.backward()
        return loss

    solver.step(closure)
    return linear


def _loss(logits: Tensor, label: Tensor, kind: str) -> Tensor:
    if kind == "classes":
        return functional.cross_entropy(logits, label)
    known, truth = label.isfinite(), label.nan_to_num()
    if kind == "multilabel":
        return functional.binary_cross_entropy_with_logits(logits[known], truth[known])
    return functional.mse_loss(logits[known], truth[known])


def _structure(source: GraphData, test: NDArray[np.int64]) -> float:
    label_N, train = source.target.label, source.splits["train"]
    start_NC = np.zeros((len(label_N), len(source.target.names)), np.float32)
    start_NC[train, label_N[train]] = 1
    found_NC = spread(source.graph, source.scales, start_NC, 0.9, 30)
    return float((found_NC[test].argmax(1) == label_N[test]).mean())
