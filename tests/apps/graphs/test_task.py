"""A network of several heads: each learns for itself, validation says which one speaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from apps.graphs.model import Hedge
from apps.graphs.task import NodeTask
from scadl_core.comm import World

NODES, HOPS, FEATURES = 300, 2, 6
FACTS = {"kind": "classes", "classes": ["a", "b", "c"], "rms_K": [1.0] * (HOPS + 1),
         "count_C": [100.0] * 3}  # fmt: skip


def batch(seed: int, own_says: bool) -> dict[str, Any]:
    """Nodes whose class either their own features tell, or only those of their neighbours."""
    rng = np.random.default_rng(seed)
    label = rng.integers(3, size=NODES)
    x_BKF = rng.normal(size=(NODES, HOPS + 1, FEATURES)).astype("f4")
    x_BKF[np.arange(NODES), 0 if own_says else 1, label] += 4
    return {"x_BKF": torch.tensor(x_BKF), "label": torch.tensor(label),
            "node": torch.arange(NODES)}  # fmt: skip


def task() -> NodeTask:
    torch.manual_seed(0)
    network = Hedge(FEATURES, 3, HOPS, 16)
    return NodeTask("auto", "none", {}, None, network=network, facts=FACTS, world=World(), seed=0)


def loss(of: NodeTask, given: dict[str, Any], heads: slice = slice(None)) -> torch.Tensor:
    sums_H2 = of._sums(of.heads(given), given["label"])
    return (sums_H2[:, 0] / sums_H2[:, 1])[heads].sum()


@torch.no_grad()
def validated(of: NodeTask, given: dict[str, Any]) -> float:
    of.eval()
    of.on_validation_epoch_start()
    of.validation_step(given, 0)
    return of.scores()["accuracy"]


@pytest.mark.parametrize("own_says", [True, False])
def test_the_head_that_validates_better_speaks(own_says: bool) -> None:
    of = task()
    if own_says:  # hops that are only noise, much of it
        for layer in of.network.graph.inputs:
            torch.nn.init.zeros_(layer.weight).requires_grad_(False)
    optimizer = torch.optim.AdamW(of.network.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss(of.train(), batch(0, own_says)).backward()
        optimizer.step()
    accuracy = validated(of, batch(1, own_says))
    assert accuracy > 0.9
    assert of.network.chosen.tolist() == [int(own_says)]
    again = task().eval()
    again.load_state_dict(of.state_dict())
    for test in (of, again):  # what speaks is kept with the weights, and a test does not choose
        test.on_test_epoch_start()
        with torch.no_grad():
            test.test_step(batch(1, own_says), 0)
        assert test.scores()["accuracy"] == pytest.approx(accuracy)
        said = test.network.heads(batch(1, own_says)["x_BKF"])[:, int(own_says)]
        assert torch.equal(test(batch(1, own_says)), said)


def test_a_head_learns_as_it_would_alone() -> None:
    of, given = task().eval(), batch(0, True)
    parts = {0: of.network.graph, 1: of.network.own}
    both = torch.autograd.grad(loss(of, given), list(of.network.parameters()))
    together = dict(zip(of.network.parameters(), both, strict=True))
    for head, part in parts.items():
        alone = torch.autograd.grad(loss(of, given, slice(head, head + 1)), list(part.parameters()))
        for weight, gradient in zip(part.parameters(), alone, strict=True):
            torch.testing.assert_close(together[weight], gradient)
