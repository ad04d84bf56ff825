"""Steps to a target, on problems whose outcome is known."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.optim import SGD

from scadl_core.bench import factors, optimizers
from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import value_of
from scadl_core.bench.training import Method
from scadl_core.comm import World

CASE = "line: to a cross-entropy of 0.01"


def test_the_best_of_three_rates_is_reported_on_other_seeds() -> None:
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    problem = Problem("line", lambda: nn.Linear(4, 2), 9 * x, (x[:, 0] > 0).long(), 64, 2)
    taking_part = {
        # Of 1/9, 1/3 and 1 only the last gets there in time.
        "slow": Method(lambda m, rate: SGD(m.parameters(), lr=rate), 1 / 3),
        "none": Method(lambda m, rate: SGD(m.parameters(), lr=0.0), 0.1),
    }
    found = optimizers.convergence(problem, taking_part, optimizers.Seeds((1,), (1, 2)))
    assert value_of(found, CASE, "slow", "rate") == 1
    steps = [value_of(found, CASE, "slow", f"steps, seed {seed}") for seed in (1, 2)]
    assert value_of(found, CASE, "slow", "steps to target") == sum(map(float, steps)) / 2  # type: ignore[arg-type]
    assert value_of(found, CASE, "none", "steps to target") == 300
    assert value_of(found, CASE, "none", "hits") == 0
    assert value_of(found, CASE, "none", "rate") == 0.1  # of equals the method's own


def test_compressed_factors_on_one_rank_change_nothing() -> None:
    problem = replace(problems()[0], batch=32)
    found = [factors.train(problem, World.start(), 0, eps, 3)[:2] for eps in (None, 0.1)]
    assert found[0] == found[1]
