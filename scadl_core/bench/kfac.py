"""`scadl bench kfac`: the cost of a step over SGD's, and steps to a target, beside the peers.

All in one process and one thread, in CPU time, round after round in turn; medians with quartiles.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import Row, show_rows
from scadl_core.optim import KFAC

Make = Callable[[nn.Module], Optimizer]
TARGET, CHECK_EVERY, MOST_STEPS = 0.01, 10, 300
SHOWN = {
    "step": ".2f",
    "over SGD": ".2f",
    "lower quartile": ".2f",
    "upper quartile": ".2f",
    "steps to target": ".0f",
    "seconds to target": ".2f",
    "hits": ".0f",
}


_DEAR = ("Muon", "K-FAC (1, 10), EKFAC", "K-FAC (1, 10), probe")


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    seeds: int
    grid: tuple[tuple[float, float], ...]


FULL = Size(9, 3, tuple((lr, damping) for lr in (0.03, 0.1, 0.3) for damping in (1e-3, 1e-2, 1e-1)))
QUICK = Size(3, 1, ((0.1, 1e-2),))


def _kfac(periods: tuple[int, int], **arguments: Any) -> Make:
    factor, inverse = periods

    def make(model: nn.Module) -> Optimizer:
        return KFAC(model, factor_period=factor, inverse_period=inverse, **arguments)

    return make


def _soap(model: nn.Module) -> Optimizer:
    from pytorch_optimizer import SOAP

    return SOAP(model.parameters(), lr=1e-2, weight_decay=0.0, precondition_frequency=10)


def _muon(model: nn.Module) -> Optimizer:
    from scadl_core.optim.muon import Muon

    return Muon(model, adamw_lr=1e-2)


def _singd(model: nn.Module) -> Optimizer:
    from singd.optim.optimizer import SINGD

    # It knows nothing but dense layers and convolutions, and warns of the others.
    return SINGD(model, lr=1e-3, T=10, kfac_approx="reduce", warn_unsupported=False)  # type: ignore[no-any-return]


def methods() -> dict[str, Make]:
    """Who takes part: one configuration each, for cost and convergence."""
    found: dict[str, Make] = {
        "SGD": lambda m: SGD(m.parameters(), lr=0.3, momentum=0.9),
        "AdamW": lambda m: AdamW(m.parameters(), lr=1e-2),
        "SOAP": _soap,
        "Muon": _muon,
    }
    try:
        version("singd")
        found["SINGD"] = _singd
    except PackageNotFoundError:
        pass
    return found | {
        "K-FAC (1, 10)": _kfac((1, 10)),
        "K-FAC (10, 100)": _kfac((10, 100)),
        "K-FAC (1, 10), probe": _kfac((1, 10), refresh_above=0.1),
        "K-FAC (1, 10), EKFAC": _kfac((1, 10), inverse="ekfac"),
    }


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the tables.

    Args:
        quick: Fewer rounds, seeds and settings, at most two minutes.
        console: Where to print.

    Returns:
        The rows.
    """
    size = QUICK if quick else FULL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows: list[Row] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what peers say about themselves
            found, makes = problems(), methods()
            if quick:  # dear, and told by the full run
                makes = {name: makes[name] for name in makes if name not in _DEAR}
            for problem in found[:2] if quick else found:
                rows += step_cost(problem, makes, size.rounds)
                console.print(f"done: step of {problem.name}", style="dim")
            rows += convergence(found[0], makes, size.seeds)
            rows += robustness(found[0], size.grid)
    finally:
        torch.set_num_threads(threads)
    show_rows(rows, SHOWN, console)
    return rows


class _Training:
    """One network under one optimizer."""

    def __init__(self, problem: Problem, make: Make, seed: int) -> None:
        torch.manual_seed(seed)
        self.problem, self.model = problem, problem.network()
        self.optimizer = make(self.model)
        self.generator = torch.Generator().manual_seed(seed)

    def step(self) -> None:
        rows = torch.randint(
            len(self.problem.inputs), (self.problem.batch,), generator=self.generator
        )
        self.optimizer.zero_grad()
        torch.autograd.backward(self.loss(rows))
        self.optimizer.step()

    def loss(self, rows: Tensor | slice) -> Tensor:
        logits = self.model(self.problem.inputs[rows])
        return nn.functional.cross_entropy(logits, self.problem.labels[rows])

    def seconds(self, steps: int) -> float:
        started = time.process_time()
        for _ in range(steps):
            self.step()
        return time.process_time() - started


def step_cost(problem: Problem, makes: dict[str, Make], rounds: int) -> list[Row]:
    """CPU time of a step; a round has as many steps as the longest period has, or a part of it.

    Args:
        problem: What is trained.
        makes: By name; SGD among them.
        rounds: Of all methods in turn, after one that does not count.
    """
    trainings = {name: _Training(problem, make, 0) for name, make in makes.items()}
    times: dict[str, list[float]] = {name: [] for name in makes}
    # A round of K-FAC at period 100 has to see all of the period: ten rounds make one.
    for number in range(rounds + 1):
        for name, training in trainings.items():
            steps = 100 if "100" in name else problem.steps
            seconds = training.seconds(steps) / steps
            if number:
                times[name].append(1e3 * seconds)
    return [row for name in makes for row in _cost_rows(problem.name, name, times)]


def _cost_rows(case: str, name: str, times: dict[str, list[float]]) -> Iterator[Row]:
    case = f"{case}: CPU time of a step"
    over = np.array(times[name]) / np.array(times["SGD"])
    low, middle, high = np.percentile(over, [25, 50, 75])
    yield Row(case, name, "step", float(np.median(times[name])), "ms")
    yield Row(case, name, "over SGD", float(middle), "1")
    yield Row(case, name, "lower quartile", float(low), "1")
    yield Row(case, name, "upper quartile", float(high), "1")


def convergence(problem: Problem, makes: dict[str, Make], seeds: int) -> list[Row]:
    """Steps and CPU seconds to a cross-entropy of 0.01 on 512 samples, looked at every ten steps;
    300 steps without it count as 300.

    Args:
        problem: What is trained.
        makes: By name.
        seeds: Of weights and batches.
    """
    rows = []
    for name, make in makes.items():
        runs = [_to_target(problem, make, seed) for seed in range(seeds)]
        steps, seconds, hits = (np.array(column) for column in zip(*runs, strict=True))
        case = f"{problem.name}: to a cross-entropy of {TARGET}"
        rows.append(Row(case, name, "steps to target", float(steps.mean()), "1"))
        rows.append(Row(case, name, "seconds to target", float(seconds.mean()), "s"))
        rows.append(Row(case, name, "hits", float(hits.sum()), f"of {seeds}"))
        for seed, count in enumerate(steps):
            rows.append(Row(case, name, f"steps, seed {seed}", float(count), "1"))
    return rows


def _to_target(problem: Problem, make: Make, seed: int) -> tuple[int, float, bool]:
    training, seconds = _Training(problem, make, seed), 0.0
    for step in range(0, MOST_STEPS, CHECK_EVERY):
        with torch.no_grad():
            training.model.eval()
            if float(training.loss(slice(0, 512))) <= TARGET:
                return step, seconds, True
            training.model.train()
        seconds += training.seconds(CHECK_EVERY)
    return MOST_STEPS, seconds, False


def robustness(problem: Problem, grid: tuple[tuple[float, float], ...]) -> list[Row]:
    """How many settings of learning rate and damping reach the target.

    Args:
        problem: What is trained.
        grid: Learning rates with dampings.
    """
    rows, case = [], f"{problem.name}: rate x damping"
    for lr, damping in grid:
        make = _kfac((1, 10), lr=lr, damping=damping)
        steps, _, hit = _to_target(problem, make, 0)
        name = f"lr {lr:g}, damping {damping:g}"
        rows += [
            Row(case, name, "steps to target", float(steps), "1"),
            Row(case, name, "hits", float(hit), "1"),
        ]
    return rows
