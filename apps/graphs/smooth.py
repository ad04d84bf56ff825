"""Correct and Smooth: Huang et al. 2021, arXiv:2010.13993.

Suffixes: N node, C class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apps.graphs.csr import CSR
from apps.graphs.hops import Scales, propagate
from scadl_core.errors import ConfigError

if TYPE_CHECKING:
    from apps.graphs.data import GraphData
    from apps.graphs.task import NodeTask, Said

BATCH = 65536


def smoothed(
    task: NodeTask, data: GraphData, said: Said, correct: float, smooth: float, steps: int
) -> Said:
    """Probabilities of a split after errors on train nodes were spread, and labels of train nodes.

    Args:
        task: What predicts.
        data: The graph; of its labels those of train are used.
        said: Of the split.
        correct: How far errors are spread, from 0 (not at all) to below 1 (alpha of the paper).
        smooth: The same of labels.
        steps: Of each.

    Raises:
        ConfigError: Labels are not classes.
    """
    if task.kind != "classes":
        raise ConfigError("task.smooth is of classes; set its correct and smooth to 0")
    said_NC = task.predict_nodes(data.whole(), BATCH).astype(np.float32)
    train = data.splits["train"]
    truth_NC = np.eye(said_NC.shape[1], dtype=np.float32)[data.target.label[train]]
    if correct:
        error_NC = np.zeros_like(said_NC)
        error_NC[train] = truth_NC - said_NC[train]
        spread_NC = spread(data.graph, data.scales, error_NC, correct, steps)
        # As large as errors on train nodes are: the autoscale of the paper.
        scale = np.abs(error_NC[train]).sum(1).mean()
        size_N1 = np.abs(spread_NC).sum(1, keepdims=True)
        spread_NC *= np.where(size_N1 > 0, np.minimum(scale / np.maximum(size_N1, 1e-12), 1000), 0)
        said_NC = said_NC + spread_NC
    if smooth:
        said_NC[train] = truth_NC
        said_NC = spread(data.graph, data.scales, said_NC, smooth, steps)
    said_NC = said_NC.clip(1e-9)
    found_NC = (said_NC / said_NC.sum(1, keepdims=True)).astype(np.float64)
    return said._replace(said_NC=found_NC[said.node_N])


def spread(
    graph: CSR, by: Scales, start_NC: NDArray[np.float32], alpha: float, steps: int
) -> NDArray[Any]:
    """Label spreading: x <- alpha A x + (1 - alpha) start, Zhou et al. 2004."""
    found_NC = start_NC
    for _ in range(steps):
        found_NC = alpha * propagate(graph, by, found_NC) + (1 - alpha) * start_NC
    return np.ascontiguousarray(found_NC, np.float32)
