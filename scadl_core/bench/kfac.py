"""`scadl bench kfac`: the cost of a step over SGD's, beside the peers.

All in one process and one thread, in CPU time, round after round in turn; medians with quartiles.
How many steps are needed is told by `scadl bench optimizers`, of the same configurations.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from rich.console import Console

from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import Row, show_rows
from scadl_core.bench.training import Method, Training, methods

ROUNDS, QUICK_ROUNDS = 9, 3
SHOWN = {"step": ".2f", "over SGD": ".2f", "lower quartile": ".2f", "upper quartile": ".2f"}
_DEAR = ("Muon", "K-FAC (1, 10), EKFAC", "K-FAC (1, 10), probe")


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints a table for each network.

    Args:
        quick: Fewer rounds and methods, and no U-Net.
        console: Where to print.

    Returns:
        The rows.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    taking_part = {n: m for n, m in methods().items() if not (quick and n in _DEAR)}
    rows: list[Row] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what peers say about themselves
            for problem in problems()[: 2 if quick else None]:
                rows += step_cost(problem, taking_part, QUICK_ROUNDS if quick else ROUNDS)
                case = rows[-1].case
                show_rows([row for row in rows if row.case == case], SHOWN, console)
    finally:
        torch.set_num_threads(threads)
    return rows


def step_cost(problem: Problem, taking_part: dict[str, Method], rounds: int) -> list[Row]:
    """CPU time of a step; a round has as many steps as the longest period has, or a part of it.

    Args:
        problem: What is trained.
        taking_part: By name; SGD among them.
        rounds: Of all methods in turn, after one that does not count.
    """
    trainings = {name: Training(problem, method, 0) for name, method in taking_part.items()}
    times: dict[str, list[float]] = {name: [] for name in taking_part}
    # A round of K-FAC at period 100 has to see all of the period: ten rounds make one.
    for number in range(rounds + 1):
        for name, training in trainings.items():
            steps = 100 if "100" in name else problem.steps
            seconds = training.seconds(steps) / steps
            if number:
                times[name].append(1e3 * seconds)
    return [row for name in taking_part for row in _cost_rows(problem.name, name, times)]


def _cost_rows(case: str, name: str, times: dict[str, list[float]]) -> Iterator[Row]:
    case = f"{case}: CPU time of a step"
    over = np.array(times[name]) / np.array(times["SGD"])
    low, middle, high = np.percentile(over, [25, 50, 75])
    yield Row(case, name, "step", float(np.median(times[name])), "ms")
    yield Row(case, name, "over SGD", float(middle), "1")
    yield Row(case, name, "lower quartile", float(low), "1")
    yield Row(case, name, "upper quartile", float(high), "1")
