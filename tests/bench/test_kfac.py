"""The optimizers' benchmark on a problem of a blink."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import SGD

from scadl_core.bench import kfac
from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import value_of


def test_costs_are_over_sgd_and_easy_targets_are_reached() -> None:
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    problem = Problem("line", lambda: nn.Linear(4, 2), 9 * x, (x[:, 0] > 0).long(), 64, 2)
    makes = {
        "SGD": lambda m: SGD(m.parameters(), lr=0.1),
        "none": lambda m: SGD(m.parameters(), lr=0.0),
        "K-FAC (1, 10)": kfac.methods()["K-FAC (1, 10)"],
    }
    rows = kfac.step_cost(problem, makes, rounds=3)
    case = "line: CPU time of a step"
    assert value_of(rows, case, "SGD", "over SGD") == 1
    cost = value_of(rows, case, "K-FAC (1, 10)", "over SGD")
    assert cost is not None and cost > 1
    found = kfac.convergence(problem, makes, seeds=1)
    case = "line: to a cross-entropy of 0.01"
    assert value_of(found, case, "none", "steps to target") == 300
    assert value_of(found, case, "none", "hits") == 0


def test_problems_are_those_of_the_tables() -> None:
    sizes = {p.name: sum(w.numel() for w in p.network().parameters()) for p in problems()}
    assert sizes["digits MLP"] == 65 * 256 + 257 * 256 + 257 * 10
    for problem in problems():
        loss = nn.functional.cross_entropy(
            problem.network()(problem.inputs[:2]), problem.labels[:2]
        )
        assert loss.isfinite()
