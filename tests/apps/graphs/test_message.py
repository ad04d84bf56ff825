"""Layers on a sparse product are torch-geometric's own on the same edges, gradients included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.nn as peers

from apps.graphs.data import GraphData
from apps.graphs.model import MessagePassing

PEERS: dict[str, Any] = {"gcn": peers.GCN, "sage": peers.GraphSAGE, "gat": peers.GAT}
EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 1], [4, 4], [1, 1], [0, 2]])  # 5 is isolated


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((6, 3)), columns=list("abc"))
    table.assign(label=[0, 1, 0, 1, 0, 1], split=["train", "val", "test"] * 2).to_csv(
        tmp_path / "nodes.csv", index_label="id"
    )
    pd.DataFrame(EDGES, columns=["source", "target"]).to_csv(tmp_path / "edges.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("layer", PEERS)
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_a_network_is_torch_geometrics(
    folder: Path, layer: str, loops: bool, directed: bool
) -> None:
    """What they are given are the edges as they are: their semantics of loops is ours, too."""
    edges = "sym" if layer == "gcn" else "none"
    data = GraphData(folder, batches="full", loops=loops, directed=directed, norm=edges)
    batch = data.samples("train").batch([0], None)
    torch.manual_seed(0)
    ours: Any = MessagePassing(3, 2, layer, 4, 2, dropout=0.0)
    given = {"gcn": {"normalize": True}}.get(layer, {})
    theirs = PEERS[layer](3, 4, 2, 2, **given)
    theirs.load_state_dict(ours.layers.state_dict())
    pairs = EDGES if directed else np.concatenate([EDGES, EDGES[:, ::-1]])
    plain = np.unique(pairs if loops else pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    if layer == "gcn" and loops:  # (W + I) of the paper: a loop and its own make two
        plain = np.concatenate([plain, plain[plain[:, 0] == plain[:, 1]]])
        plain = np.concatenate([plain, np.arange(6)[:, None][[0, 2, 3, 5]].repeat(2, 1)])
        given_edges = torch.from_numpy(plain.T.copy())
        theirs = PEERS[layer](3, 4, 2, 2, add_self_loops=False)
        theirs.load_state_dict(ours.layers.state_dict())
    else:
        given_edges = torch.from_numpy(plain.T.copy())
    expected = theirs(batch.x, given_edges)
    found = ours(batch.x, batch.edge_index, batch.edge_weight)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for network, said in ((ours, found), (theirs, expected)):
        said.square().sum().backward()
        assert all(it.grad is not None for it in network.parameters())
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_half_precision_in_and_out(folder: Path) -> None:
    batch = GraphData(folder, batches="full").samples("train").batch([0], None)
    torch.manual_seed(0)
    network = MessagePassing(3, 2, "gcn", 4, 2, dropout=0.0)
    exact = network(batch.x, batch.edge_index, batch.edge_weight)
    with torch.autocast("cpu", torch.bfloat16):
        half = network(batch.x, batch.edge_index, batch.edge_weight)
    torch.testing.assert_close(half.float(), exact, rtol=0.05, atol=0.05)
