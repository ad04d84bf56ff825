"""Training of the full graph over ranks is that of one rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from apps.graphs.data import GraphData
from apps.graphs.model import MessagePassing
from apps.graphs.sample import write_sample
from scadl_core.comm import World
from scadl_core.compress import Relative, decode, encode

STEPS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("halo") / "graph"
    write_sample(path, nodes=300, classes=3, features=6, degree=6, seed=2)
    return path


def train(folder: Path, layer: str, bound: float | None = None) -> tuple[list[float], Any]:
    """Losses, and at the end the logits by node, of plain gradient descent."""
    world = World.start()
    data = GraphData(folder, batches="full", norm="sym" if layer == "gcn" else "none")
    batch = data.samples("train").batch([0], None)
    part = getattr(batch, "part", None)
    torch.manual_seed(0)
    model: Any = MessagePassing(6, 3, layer, width=8, depth=3, dropout=0.0).double()
    sizes = torch.tensor([float(len(batch.label))], dtype=torch.float64)
    count, losses = world.global_sum(sizes), []
    logits_NC = torch.empty(0)
    for _ in range(STEPS):
        logits_NC = forward(model, batch, part, bound)
        loss = nn.functional.cross_entropy(logits_NC[batch.place], batch.label, reduction="sum")
        total = world.global_sum(loss[None] / count)
        model.zero_grad()
        total.sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                summed = world.global_sum(parameter.grad) / world.size
                parameter -= 0.3 * summed
        losses.append(float(total.detach()))
    own = len(logits_NC) if part is None else part.owned
    node_N = np.arange(300) if part is None else part.node_N[:own]
    return losses, (node_N, logits_NC[:own].detach().numpy(), world.traffic.sent_bytes)


def forward(model: nn.Module, batch: Any, part: Any, bound: float | None) -> Any:
    inputs = batch.x.double(), batch.edge_index, batch.edge_weight.double()
    if part is None:
        return model(*inputs)
    part.bound = bound
    with part.renewing(model):
        return model(*inputs)


@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_as_one(
    folder: Path, run_ranks: Callable[..., list[Any]], layer: str, ranks: int
) -> None:
    losses, (_, alone_NC, _) = train(folder, layer)
    found = run_ranks(ranks, lambda: train(folder, layer))
    together_NC = np.full_like(alone_NC, np.nan)
    for their_losses, (node_N, logits_NC, sent_bytes) in found:
        np.testing.assert_allclose(their_losses, losses, rtol=0, atol=1e-10)
        together_NC[node_N] = logits_NC
        assert sent_bytes > 0
    np.testing.assert_allclose(together_NC, alone_NC, rtol=0, atol=1e-9)


def test_compressed_messages(folder: Path, run_ranks: Callable[..., list[Any]]) -> None:
    losses, _ = train(folder, "gcn")
    decode(encode(np.zeros((70, 8)), Relative(1e-2)))  # compiled once, here
    exact = run_ranks(2, lambda: train(folder, "gcn"))
    found = run_ranks(2, lambda: train(folder, "gcn", 1e-2))
    np.testing.assert_allclose(found[0][0], losses, rtol=0.02)
    assert found[0][0] != losses
    assert found[0][1][2] < exact[0][1][2] / 3


@pytest.mark.soak
def test_a_run_over_ranks_is_that_of_one(mpirun: Any, scadl: Any, workplace: Path) -> None:
    """With Lightning around it, gradients of its own exchanged, and predictions at the end."""
    words = ("train", "graphs", "data.sample.nodes=600", "data.sample.features=6", "model=gcn")
    words += ("model.dropout=0.0", "trainer.max_epochs=3", "trainer.accelerator=cpu", "logger=none")
    assert mpirun(2, *words, "run.dir=two", timeout=600).status == 0
    assert scadl(*words, "run.dir=one").status == 0
    one, two = (pd.read_csv(f"{it}/metrics.csv") for it in ("one", "two"))
    np.testing.assert_allclose(one, two, rtol=1e-5)
    assert len(list(Path("two/predictions").iterdir())) == 1
