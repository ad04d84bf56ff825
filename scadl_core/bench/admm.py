"""`scadl bench admm`: gradient-free training beside backpropagation, pipelines and greedy learning.

Accuracy at the same number of iterations, over seeds; on Cora and CiteSeer, where SCADL_GRAPHS
names a folder of Planetoid's files; and the time of a step on two ranks, where there is an
``mpirun``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from scadl_core.admm import Data, Problem, fit
from scadl_core.admm.problem import cross_entropy, cut
from scadl_core.admm.rules import BlockADMM, PdADMM
from scadl_core.bench.graphs import bench_graph
from scadl_core.bench.launch import on_ranks
from scadl_core.bench.networks import CASES, QUICK, Case, Digits, accuracy, head
from scadl_core.bench.rivals import backpropagation, decoupled_greedy, forward
from scadl_core.bench.rows import Row, show_rows

SEEDS, QUICK_SEEDS = 5, 1
SHOWN = {
    "test accuracy": ".3f",
    "std": ".3f",
    "of backpropagation": ".1f",
    "train accuracy": ".3f",
    "iteration": ".1f",
    "step": ".1f",
    "median step": ".1f",
    "of the best pipeline": ".2f",
    "sent": ".1f",
}
BACKPROPAGATION = "backpropagation"

Train = Callable[[Case, Sequence[nn.Module], Data], None]


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the tables.

    Args:
        quick: One small network, one seed, few iterations.
        console: Where to print.

    Returns:
        The rows.
    """
    rows: list[Row] = []
    try:
        digits = Digits()
    except ImportError:
        console.print("scikit-learn, whose digits are trained on, is not installed: no accuracies")
    else:
        for case in QUICK if quick else CASES:
            rows += bench_case(case, digits, QUICK_SEEDS if quick else SEEDS)
            console.print(f"done: {case.title}", style="dim")
    if "SCADL_GRAPHS" in os.environ:
        folder = Path(os.environ["SCADL_GRAPHS"])
        for name in ("cora",) if quick else ("cora", "citeseer"):
            rows += bench_graph(folder, name, quick)
            console.print(f"done: {name}", style="dim")
    rows += bench_steps(quick, console)
    show_rows(rows, SHOWN, console)
    return rows


def bench_case(case: Case, digits: Digits, seeds: int) -> list[Row]:
    """The accuracies of all methods on one network.

    Args:
        case: The network.
        digits: The data.
        seeds: How many initialisations.
    """
    rows: list[Row] = []
    reference = float("nan")
    for name, train in methods(case).items():
        scores, fitting, began = [], [], time.process_time()
        for seed in range(seeds):
            network = case.make(seed)
            train(case, list(cut(network, case.blocks)), Data.of(*digits.train))
            with torch.no_grad():
                scores.append(accuracy(network(digits.test[0]), digits.test[1]))
                fitting.append(accuracy(network(digits.train[0]), digits.train[1]))
        seconds = (time.process_time() - began) / (seeds * case.iterations)
        mean = float(np.mean(scores))
        reference = mean if name == BACKPROPAGATION else reference
        rows += [
            Row(case.title, name, "test accuracy", mean, "1"),
            Row(case.title, name, "std", float(np.std(scores, ddof=seeds > 1)), "1"),
            Row(case.title, name, "of backpropagation", 100 * mean / reference, "%"),
            Row(case.title, name, "train accuracy", float(np.mean(fitting)), "1"),
            Row(case.title, name, "iteration", 1e3 * seconds, "CPU-ms"),
        ]
    return rows


def methods(case: Case) -> dict[str, Train]:
    """All, by name; those that see targets in every block say so."""

    def adam(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, case.rate)

    def block_local(**arguments: Any) -> Train:
        def train(case: Case, blocks: Sequence[nn.Module], data: Data) -> None:
            rule = BlockADMM(optimizer=adam, **arguments)
            heads = _heads(blocks, data) if rule.auxiliary else []
            problem = Problem(blocks, cross_entropy, heads=heads)
            fit(problem, data, rule=rule, iterations=case.iterations, every=case.iterations)

        return train

    def closed_form(case: Case, blocks: Sequence[nn.Module], data: Data) -> None:
        layers = [layer for block in blocks for layer in cut(nn.Sequential(*block.children()))]
        rule = PdADMM(penalty=0.1, nu=0.02)
        fit(Problem(layers, cross_entropy), data, rule=rule, iterations=case.iterations)

    every: dict[str, Train] = {
        BACKPROPAGATION: lambda case, blocks, data: backpropagation(
            blocks, cross_entropy, data, case.iterations, adam
        ),
        "block_admm": block_local(),
        "block_admm, x lags (gsADMM)": block_local(follow=0.0),
        "block_admm, 2 local steps": block_local(steps=2),
        "hybrid (heads see targets)": block_local(auxiliary=0.5),
        "dgl (heads see targets)": lambda case, blocks, data: decoupled_greedy(
            blocks, _heads(blocks, data), cross_entropy, data, case.iterations, adam
        ),
    }
    return every | ({"pdadmm": closed_form} if "MLP" in case.name else {})


def _heads(blocks: Sequence[nn.Module], data: Data) -> list[nn.Module]:
    with torch.no_grad():
        outputs = forward(blocks, data.inputs[:2])
    return [head(output) for output in outputs[:-1]]


def bench_steps(quick: bool, console: Console) -> list[Row]:
    """The time of a step on two ranks; see :mod:`scadl_core.bench.ranks`."""
    return on_ranks(2, "scadl_core.bench.ranks", [str(int(quick))], console)
