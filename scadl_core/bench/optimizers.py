"""`scadl bench optimizers`: steps to a target at equal numbers of trials, and what compressed
factors change.

Every method tries three learning rates on the same seeds; its best then runs on seeds that nobody
has chosen anything by. In CPU time of one thread.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console

from scadl_core.bench.launch import on_ranks
from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import Row, show_rows
from scadl_core.bench.training import Method, Training, kfac, methods

TARGET, CHECK_EVERY, MOST_STEPS = 0.01, 10, 300
TRIALS = (1 / 3, 1.0, 3.0)
GRID = tuple((lr, damping) for lr in (0.03, 0.1, 0.3) for damping in (1e-3, 1e-2, 1e-1))
SHOWN = {
    "rate": ".4f",
    "steps to target": ".0f",
    "std": ".0f",
    "seconds to target": ".2f",
    "hits": ".0f",
    "loss": ".5f",
    "accuracy": ".4f",
    "ratio": ".1f",
    "mean": ".5f",
    "low": ".5f",
    "high": ".5f",
}


class Seeds(NamedTuple):
    """Of weights and batches: those that choose, and those that are reported."""

    trial: tuple[int, ...]
    fresh: tuple[int, ...]


FULL, QUICK = Seeds((0, 1, 2), tuple(range(10, 20))), Seeds((0,), (10, 11))


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints a table after each part.

    Args:
        quick: Fewer seeds and settings.
        console: Where to print.

    Returns:
        The rows.
    """
    seeds = QUICK if quick else FULL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows: list[Row] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what peers say about themselves
            # A step of Muon, whose iteration is in bfloat16, takes a hundred of SGD's on a CPU.
            problem, taking_part = problems()[0], methods()
            taking_part = {n: m for n, m in taking_part.items() if n != "Muon"}
            rows += convergence(problem, taking_part, seeds)
            show_rows(rows, SHOWN, console)
            grid = robustness(problem, GRID[4:5] if quick else GRID)
            show_rows(grid, SHOWN, console)
    finally:
        torch.set_num_threads(threads)
    compressed = on_ranks(2, "scadl_core.bench.factors", [str(int(quick))], console)
    show_rows(compressed, SHOWN, console)
    return rows + grid + compressed


def convergence(problem: Problem, taking_part: dict[str, Method], seeds: Seeds) -> list[Row]:
    """Steps and CPU seconds to a cross-entropy of 0.01 on 512 samples, looked at every ten steps;
    300 steps without it count as 300.

    Args:
        problem: What is trained.
        taking_part: By name.
        seeds: For trials and report.
    """
    case, rows = f"{problem.name}: to a cross-entropy of {TARGET}", []
    for name, method in taking_part.items():
        rate = _best_rate(problem, method, seeds.trial)
        runs = [to_target(problem, method, seed, rate) for seed in seeds.fresh]
        steps, seconds, hits = (np.array(column) for column in zip(*runs, strict=True))
        spread = float(steps.std(ddof=min(1, len(steps) - 1)))
        rows += [
            Row(case, name, "rate", rate, "1"),
            Row(case, name, "steps to target", float(steps.mean()), "1"),
            Row(case, name, "std", spread, "1"),
            Row(case, name, "seconds to target", float(seconds.mean()), "s"),
            Row(case, name, "hits", float(hits.sum()), f"of {len(seeds.fresh)}"),
        ]
        rows += [
            Row(case, name, f"steps, seed {seed}", float(count), "1")
            for seed, count in zip(seeds.fresh, steps, strict=True)
        ]
    return rows


def _best_rate(problem: Problem, method: Method, seeds: tuple[int, ...]) -> float:
    def steps(rate: float) -> float:
        return sum(to_target(problem, method, seed, rate)[0] for seed in seeds)

    # Of equals the method's own.
    return min((method.rate * part for part in sorted(TRIALS, key=lambda t: t != 1)), key=steps)


def to_target(problem: Problem, method: Method, seed: int, rate: float) -> tuple[int, float, bool]:
    """Steps, CPU seconds of them, and whether the target was reached."""
    training, seconds = Training(problem, method, seed, rate), 0.0
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
        steps, _, hit = to_target(problem, kfac(damping), 0, lr)
        name = f"lr {lr:g}, damping {damping:g}"
        rows += [
            Row(case, name, "steps to target", float(steps), "1"),
            Row(case, name, "hits", float(hit), "1"),
        ]
    return rows
