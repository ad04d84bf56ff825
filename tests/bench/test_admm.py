"""What `scadl bench admm` compares with, and what it reads."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from scadl_core.admm import Data
from scadl_core.admm.problem import cross_entropy, cut
from scadl_core.bench.networks import mlp
from scadl_core.bench.planetoid import read_graph
from scadl_core.bench.rivals import backpropagation, decoupled_greedy
from scadl_core.errors import DataError


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1)


def samples() -> Data:
    torch.manual_seed(0)
    return Data.of(torch.randn(20, 1, 8, 8), torch.randint(0, 10, (20,)))


def test_one_block_of_greedy_learning_is_backpropagation() -> None:
    nets = [mlp(3, seed=1), mlp(3, seed=1)]
    backpropagation(cut(nets[0], 3), cross_entropy, samples(), 4, sgd)
    decoupled_greedy([nets[1]], [], cross_entropy, samples(), 4, sgd)
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_greedy_blocks_do_not_hear_from_the_blocks_behind() -> None:
    first = []
    for seed in (0, 1):  # of the head behind the second block
        net = mlp(3, seed=1)
        torch.manual_seed(7)
        heads: list[nn.Module] = [nn.Linear(64, 10)]
        torch.manual_seed(seed)
        heads.append(nn.Linear(64, 10))
        decoupled_greedy(cut(net, 3), heads, cross_entropy, samples(), 3, sgd)
        first.append(net[1].weight.detach())
    assert torch.equal(*first)


def test_cora_is_read_as_published(shared_data: Path) -> None:
    graph = read_graph(shared_data / "graphs" / "planetoid_cora", "cora", hops=1)
    assert graph.features.shape == (2708, 2 * 1433)
    assert torch.bincount(graph.labels[graph.train]).tolist() == [20] * 7
    assert (len(graph.val), len(graph.test), int(graph.test.min())) == (500, 1000, 1708)
    ones = graph.features[:, 1433:]
    assert set(ones.unique().tolist()) == {0.0, 1.0} and int(ones.sum()) == 49216


def test_a_file_that_names_anything_else_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("run",)

    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        (tmp_path / f"ind.cora.{part}").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DataError, match=r"names builtins\.print, which might run code"):
        read_graph(tmp_path, "cora")
