"""The audit counts what SciPy counts, a block at a time."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from apps.graphs import audit
from apps.graphs.audit import _components, homophily
from apps.graphs.csr import build


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("edges", [0, 1, 60, 200, 2000])
def test_components_and_homophily(
    edges: int, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "BLOCK", 37)
    rng, nodes = np.random.default_rng(edges), 200
    graph = build([(*rng.integers(0, nodes, (2, edges)), None)], nodes, directed)
    of = (np.ones(len(graph.indices)), graph.indices, graph.indptr)
    matrix = sp.csr_matrix(of, shape=(nodes, nodes)).tocoo()
    count, of_N = connected_components(matrix, directed=False)
    assert _components(graph) == f"{count}, the largest of {np.bincount(of_N).max()} nodes"
    label_N = rng.integers(-1, 3, nodes)
    ends = label_N[matrix.row], label_N[matrix.col]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    expected = (ends[0] == ends[1])[known].mean() if known.any() else np.nan
    assert homophily(graph, label_N) == pytest.approx(expected, nan_ok=True)
