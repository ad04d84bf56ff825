"""The cost of optimizers on a problem of a blink."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import SGD

from scadl_core.bench import kfac
from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import value_of
from scadl_core.bench.training import Method, methods


def test_costs_are_over_sgd() -> None:
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    problem = Problem("line", lambda: nn.Linear(4, 2), 9 * x, (x[:, 0] > 0).long(), 64, 30)
    taking_part = {
        "SGD": Method(lambda m, rate: SGD(m.parameters(), lr=rate), 0.1),
        "K-FAC (1, 10)": methods()["K-FAC (1, 10)"],
    }
    rows = kfac.step_cost(problem, taking_part, rounds=3)
    case = "line: CPU time of a step"
    assert value_of(rows, case, "SGD", "over SGD") == 1
    cost = value_of(rows, case, "K-FAC (1, 10)", "over SGD")
    assert cost is not None and cost > 1


def test_problems_are_those_of_the_tables() -> None:
    sizes = {p.name: sum(w.numel() for w in p.network().parameters()) for p in problems()}
    assert sizes["digits MLP"] == 65 * 256 + 257 * 256 + 257 * 10
    for problem in problems():
        loss = nn.functional.cross_entropy(
            problem.network()(problem.inputs[:2]), problem.labels[:2]
        )
        assert loss.isfinite()
