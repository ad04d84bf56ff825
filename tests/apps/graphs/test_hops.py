"""Propagation against dense matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from apps.graphs.csr import CSR, build
from apps.graphs.hops import edge_weights, hops, in_files, propagate, scales
from apps.graphs.labels import label_hops
from apps.graphs.smooth import spread
from scadl_core.compress import get_num_threads, set_num_threads
from scadl_core.errors import ConfigError, DataError


@pytest.fixture
def threads() -> Any:
    before = get_num_threads()
    yield
    set_num_threads(before)


def graph_of(nodes: int, edges: int, weighted: bool, seed: int = 0) -> tuple[CSR, Any]:
    rng = np.random.default_rng(seed)
    weight = rng.random(edges).astype(np.float32) if weighted else None
    graph = build([(*rng.integers(0, nodes, (2, edges)), weight)], nodes)
    values = np.ones(len(graph.indices)) if graph.weight is None else graph.weight
    dense = sp.csr_matrix((values, graph.indices, graph.indptr), shape=(nodes, nodes)).toarray()
    return graph, dense


def normalised(dense: Any, norm: str) -> Any:
    if norm == "row":
        total = dense.sum(1, keepdims=True)
        return np.divide(dense, total, out=np.zeros_like(dense), where=total > 0)
    root = 1 / np.sqrt(dense.sum(1) + 1)
    return root[:, None] * (dense + np.eye(len(dense))) * root


@pytest.mark.parametrize("norm", ["sym", "row"])
@pytest.mark.parametrize("weighted", [False, True])
def test_hops_are_powers_of_the_matrix(norm: str, weighted: bool, tmp_path: Path) -> None:
    graph, dense = graph_of(60, 150, weighted)
    matrix, by = normalised(dense, norm), scales(graph, norm)
    x_NF = np.random.default_rng(3).standard_normal((60, 5)).astype(np.float32)
    in_memory = hops(graph, by, x_NF, 3, lambda hop: np.empty_like(x_NF))
    for k, found_NF in enumerate(in_memory):
        expected_NF = np.linalg.matrix_power(matrix, k) @ x_NF
        np.testing.assert_allclose(found_NF, expected_NF, atol=1e-5)
    in_file = hops(graph, by, x_NF, 3, in_files(tmp_path / "store", "hop", x_NF.shape))
    for one_NF, other_NF in zip(in_memory, in_file, strict=True):
        np.testing.assert_array_equal(one_NF, other_NF)
    row, column, entry = graph.subgraph(np.arange(60))
    entries = np.zeros((60, 60))
    entries[row, column] = edge_weights(graph, by, row, column, entry)
    loop = by.loop * np.diag(by.left_N * by.right_N)
    np.testing.assert_allclose(entries + loop, matrix, atol=1e-6)


def test_the_same_bits_for_any_number_of_threads(threads: Any) -> None:
    graph, _ = graph_of(20_000, 60_000, False)
    x_NF = np.random.default_rng(0).standard_normal((20_000, 3)).astype(np.float32)
    found = []
    for count in (1, 3):
        set_num_threads(count)
        found.append(propagate(graph, scales(graph), x_NF))
    np.testing.assert_array_equal(*found)


def test_refused() -> None:
    graph, _ = graph_of(5, 8, False)
    with pytest.raises(ConfigError, match=r"data.norm: got 'rows'; did you mean 'row'"):
        scales(graph, "rows")
    negative = build([(np.array([0]), np.array([1]), np.array([-2.0], np.float32))], 3)
    with pytest.raises(DataError, match=r"weight is negative \(-2\).*data.weight=null"):
        scales(negative)


def test_a_train_node_never_sees_its_own_label() -> None:
    """Nor does anything depend on labels outside train."""
    graph, _ = graph_of(50, 200, False)
    train, label_NC = np.arange(0, 50, 2), np.eye(3, dtype=np.float32)[np.arange(50) % 3]
    found = label_hops(graph, scales(graph), label_NC, train, 3)
    for node in (0, 18, 36):
        other_NC = label_NC.copy()
        other_NC[node] = label_NC[node][::-1] + 5
        changed = label_hops(graph, scales(graph), other_NC, train, 3)
        for one_NC, another_NC in zip(found, changed, strict=True):
            np.testing.assert_array_equal(one_NC[node], another_NC[node])
    elsewhere_NC = label_NC.copy()
    elsewhere_NC[1::2] = 9
    unchanged = label_hops(graph, scales(graph), elsewhere_NC, train, 3)
    for one_NC, another_NC in zip(found, unchanged, strict=True):
        np.testing.assert_array_equal(one_NC, another_NC)
    matrix = np.linalg.matrix_power(normalised(_dense(graph), "sym"), 2)
    seen_NC = np.where(np.isin(np.arange(50), train)[:, None], label_NC, 0)
    np.testing.assert_allclose(found[2][1::2], (matrix @ seen_NC)[1::2], atol=1e-5)


def _dense(graph: CSR) -> Any:
    ones = np.ones(len(graph.indices))
    return sp.csr_matrix((ones, graph.indices, graph.indptr)).toarray()


def test_spreading_comes_to_its_fixed_point() -> None:
    graph, dense = graph_of(30, 90, False)
    start_NC = np.random.default_rng(0).random((30, 2)).astype(np.float32)
    matrix = normalised(dense, "sym")
    expected_NC = np.linalg.solve(np.eye(30) - 0.5 * matrix, 0.5 * start_NC)
    found_NC = spread(graph, scales(graph), start_NC, 0.5, 60)
    np.testing.assert_allclose(found_NC, expected_NC, atol=1e-5)


def test_any_cut_of_a_network_of_hops_is_the_network() -> None:
    from apps.graphs.model import SIGN, GraphAugmentedMLP, HopAttention
    from scadl_core.workflow.cutting import cut_network

    torch.manual_seed(0)
    x_BKF = torch.randn(7, 5, 6)
    for kind in (SIGN, GraphAugmentedMLP, HopAttention):
        network = kind(6, 3, hops=4, width=8, depth=3).eval()
        for blocks in (1, 2, 3):
            hidden = x_BKF
            for block in cut_network(network, blocks):
                assert any(True for _ in block.parameters())
                hidden = block(hidden)
            torch.testing.assert_close(hidden, network(x_BKF), rtol=0, atol=0)


def test_a_hedge_is_trained_as_a_whole_and_by_blocks(scadl: Any, workplace: Path) -> None:
    command = ("train", "graphs", "debug=tiny", "trainer.accelerator=cpu", "model=hedge")
    for solver in ("gradient", "admm"):
        done = scadl(*command, f"solver={solver}", f"run.dir={solver}")
        assert done.status == 0, done.err
    admm = json.loads((workplace / "admm" / "metrics.json").read_text())
    assert admm["admm/iterations"] > 0
