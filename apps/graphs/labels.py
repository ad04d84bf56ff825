"""Labels of train nodes as inputs, without a node seeing its own.

Suffixes: N node, C class, K hop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apps.graphs.csr import CSR
from apps.graphs.hops import Scales, hops

FOLDS = 5


def label_hops(
    graph: CSR,
    by: Scales,
    label_NC: NDArray[np.float32],
    train: NDArray[np.int64],
    num_hops: int,
    seed: int = 0,
) -> list[NDArray[np.float32]]:
    """Propagated labels of train nodes, of shape (N, C) for each of 0..K hops; hop 0 is 0.

    A node's own label would come back to it over two hops, and training would learn to copy it.
    So train nodes are cut into folds, and a fold sees the labels of the others alone; nodes
    outside train see all of them. Labels outside train are never read.

    Args:
        graph: The graph.
        by: Its normalisation.
        label_NC: float32, whatever outside train.
        train: The nodes whose labels may be used.
        num_hops: K.
        seed: Of the folds.
    """
    fold_T = np.random.default_rng(seed).permutation(np.arange(len(train)) % FOLDS)
    seen_NC = np.zeros_like(label_NC, dtype=np.float32)
    seen_NC[train] = np.nan_to_num(label_NC[train])
    found = hops(graph, by, seen_NC, num_hops, lambda hop: np.empty_like(seen_NC))
    for fold in range(FOLDS):
        hidden = train[fold_T == fold]
        others_NC = seen_NC.copy()
        others_NC[hidden] = 0
        without = hops(graph, by, others_NC, num_hops, lambda hop: np.empty_like(seen_NC))
        for all_NC, part_NC in zip(found[1:], without[1:], strict=True):
            all_NC[hidden] = part_NC[hidden]
    return [np.zeros_like(seen_NC), *found[1:]]
