"""Rows against SciPy's, for every policy, in memory and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from apps.graphs import csr
from apps.graphs.csr import CSR, build
from scadl_core.errors import DataError


def chunks(source: Any, target: Any, weight: Any, size: int) -> Any:
    for at in range(0, len(source), size):
        part = slice(at, at + size)
        yield source[part], target[part], None if weight is None else weight[part]


def by_scipy(
    source: Any, target: Any, weight: Any, nodes: int, directed: bool, loops: bool
) -> sp.csr_matrix:
    values = np.ones(len(source)) if weight is None else weight
    matrix = sp.coo_matrix((values, (target, source)), shape=(nodes, nodes)).tocsr()
    if not loops:
        matrix.setdiag(0)
        matrix.eliminate_zeros()
    if weight is None:
        matrix.data[:] = 1
    matrix = matrix if directed else matrix.maximum(matrix.T).tocsr()
    matrix.sort_indices()
    return matrix


@pytest.mark.parametrize("nodes", [40, 100_000])  # sorted in one piece, and in buckets
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("in_files", [False, True])
def test_rows_are_scipys(
    tmp_path: Path, nodes: int, weighted: bool, directed: bool, in_files: bool
) -> None:
    rng = np.random.default_rng(1)
    source, target = rng.integers(0, nodes, (2, 3000))
    source[:50], target[:50] = source[50:100], target[50:100]
    source[100:110] = target[100:110]
    weight = rng.random(3000).astype(np.float32) + 0.5 if weighted else None
    folder = tmp_path / "rows" if in_files else None
    for loops in (False, True):
        found = build(chunks(source, target, weight, 700), nodes, directed, loops, folder)
        matrix = by_scipy(source, target, weight, nodes, directed, loops)
        np.testing.assert_array_equal(found.indptr, matrix.indptr)
        np.testing.assert_array_equal(found.indices, matrix.indices)
        np.testing.assert_allclose(found.strength_N, matrix.sum(1).A1, rtol=1e-6, atol=1e-5)
        if weighted:
            np.testing.assert_allclose(found.weight, matrix.data, rtol=1e-6)
        is_loop = source == target
        ends = np.stack([source, target])[:, ~is_loop if not loops else slice(None)]
        assert found.counts["read"] == 3000
        assert found.counts["loops"] == is_loop.sum()
        assert found.counts["distinct"] == len(np.unique(ends, axis=1).T)
        if folder is not None:
            assert isinstance(found.indices, np.memmap)
            assert {it.name for it in folder.iterdir()} <= {
                *("indptr.int64", "indices.int32", "weight.float32")
            }


@given(arrays(np.int64, st.tuples(st.just(2), st.integers(0, 30)), elements=st.integers(0, 6)))
def test_any_few_edges(ends: Any) -> None:
    found = build([(*ends, None)], 7)
    matrix = by_scipy(*ends, None, 7, False, False)
    np.testing.assert_array_equal(found.indices, matrix.indices)
    np.testing.assert_array_equal(found.rows_of_messages(), matrix.tocoo().row)


def test_a_part_of_a_graph() -> None:
    rng = np.random.default_rng(2)
    graph = build([(*rng.integers(0, 30, (2, 90)), None)], 30)
    matrix = sp.csr_matrix(
        (np.ones(len(graph.indices)), graph.indices, graph.indptr), shape=(30, 30)
    )
    rows, columns = rng.permutation(30)[:9], rng.permutation(30)[:17]
    row, column, entry = graph.subgraph(rows, columns)
    part = sp.coo_matrix((np.ones(len(row)), (row, column)), shape=(9, 17)).toarray()
    np.testing.assert_array_equal(part, matrix[rows][:, columns].toarray())
    np.testing.assert_array_equal(graph.indices[entry], columns[column])


def test_no_edges_at_all() -> None:
    graph = build([], 5)
    assert graph.degree_N.tolist() == [0] * 5
    assert len(graph.indices) == 0


def test_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csr, "MOST_NODES", 4)
    with pytest.raises(DataError, match="5 nodes: at most 4"):
        build([], 5)


def test_a_stream_is_never_held_whole(tmp_path: Path) -> None:
    """In files: what the buckets hold is one chunk's, however long the stream."""
    kept = []

    class Watched(csr._Buckets):
        def add(self, *edges: Any) -> None:
            super().add(*edges)
            kept.append(sum(it.nbytes for parts in self.kept.values() for it in parts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr, "_Buckets", Watched)
        rng = np.random.default_rng(0)
        graph = build(
            ((*rng.integers(0, 70_000, (2, 500)), None) for _ in range(4)), 70_000, folder=tmp_path
        )
    assert kept == [0] * 4
    assert isinstance(graph, CSR)
