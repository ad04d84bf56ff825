"""The loss gap is bounded by the consensus gap, docs/theory.md."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from scadl_core.admm import Data, Problem, fit
from scadl_core.admm.problem import cross_entropy
from scadl_core.admm.rules import BlockADMM


@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_the_loss_gap_is_bounded_by_the_residuals(blocks: int) -> None:
    torch.manual_seed(blocks)
    net = nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(),
        nn.Linear(8, 3),
    ).double()  # fmt: skip
    x, y = torch.randn(30, 6).double(), torch.randint(0, 3, (30,))
    fitted = fit(
        Problem(net, "cross_entropy", blocks=blocks), Data.of(x, y), rule=BlockADMM(), iterations=30
    )
    parts = list(fitted.engine.blocks.values())
    lipschitz = [
        math.prod(
            float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
            for layer in part.module
            if isinstance(layer, nn.Linear)
        )
        for part in parts
    ]
    with torch.no_grad():
        at = [x, *(part.variables.get(0)["x"] for part in parts[1:])]
        residuals = [
            float((parts[i](at[i]) - at[i + 1]).norm(dim=1).sum()) for i in range(blocks - 1)
        ]
        gap = abs(float(cross_entropy(net(x), y) - cross_entropy(parts[-1](at[-1]), y)))
    # the gradient of a sample's cross-entropy has norm at most sqrt(2)
    bound = math.sqrt(2) * sum(
        residual * math.prod(lipschitz[i + 1 :]) for i, residual in enumerate(residuals)
    )
    assert 0 < gap <= bound
