"""Cutting a graph into parts of neighbouring nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.graphs.csr import CSR, build


def partition(graph: CSR, parts: int, seed: int = 0) -> NDArray[np.int64]:
    """The part of each node, int64 of shape (N,), such that few edges go between parts.

    METIS (Karypis and Kumar 1998, doi:10.1137/S1064827595287997) gets what it asks for, a
    symmetric matrix without loops and weights, whatever the graph is.

    Args:
        graph: The graph.
        parts: How many; with more parts than nodes, some stay empty.
        seed: Of its random choices.
    """
    if parts == 1 or graph.num_nodes <= parts:
        return np.arange(graph.num_nodes) % parts
    import pymetis

    row_M, column_M = graph.rows_of_messages().astype(np.int64), graph.indices.astype(np.int64)
    both = build([(column_M, row_M, None)], graph.num_nodes)
    adjacency = pymetis.CSRAdjacency(both.indptr, both.indices)
    options: Any = pymetis.Options(seed=seed)
    found = pymetis.part_graph(parts, adjacency, options=options)
    return np.asarray(found.vertex_part, np.int64)
