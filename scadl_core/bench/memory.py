"""`scadl bench memory`: what compressed activations save and cost, beside checkpointing and
`save_on_cpu`.

Steps of the climate U-Net, every method in turn, round after round; the median round counts, by the
processor's clock. Gradient errors are those of one step against the exact gradient.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from scadl_core.bench.arrays import climate_task
from scadl_core.bench.cases import Case, measured
from scadl_core.bench.rows import Row, show_rows

METHODS = ("none", "adaptive_0.01", "adaptive_0.1", "adaptive_0.0", "scadl_relative_0.01",
           "sz3_relative_0.01", "quantise_8", "quantise_4", "quantise_2", "checkpoint",
           "save_on_cpu")  # fmt: skip
SHOWN = {"kept": ".2f", "ratio": ".1f", "step": ".0f", "overhead": ".0f", "gradient error": ".4f"}


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the table.

    Args:
        quick: Fewer rounds, smaller maps, at most two minutes.
        console: Where to print.

    Returns:
        The rows.
    """
    maps, rounds, warm = (8, 3, 12) if quick else (16, 9, 12)
    size = ("data.sample.latitudes=48", "data.sample.longitudes=72") if quick else ()
    task, batches = climate_task(maps, 4, *size)
    case = f"climate U-Net, {tuple(batches[0]['image_CHW'].shape)}"
    rows = measure(case, task, lambda: task.training_step(batches[0], 0), rounds, warm)
    show_rows(rows, SHOWN, console)
    return rows


def measure(
    case: str, module: nn.Module, forward: Callable[[], Any], rounds: int, warm: int
) -> list[Row]:
    """The rows of one network.

    Args:
        case: Its name.
        module: The network.
        forward: Computes the loss of one step.
        rounds: How often each method is timed.
        warm: Steps before that, in which bounds settle and kernels are compiled.
    """
    cases = {name: Case(module, name) for name in METHODS}

    def step(of: Case) -> tuple[float, list[Tensor]]:
        module.zero_grad()
        began = time.process_time()
        of.open()
        try:
            loss = forward()
        finally:
            of.close()
        loss.backward()
        passed = time.process_time() - began
        return passed, [p.grad.clone() for p in module.parameters() if p.grad is not None]

    _, exact = step(cases["none"])
    errors = {}
    for name, of in cases.items():
        for _ in range(warm if of.compressed is not None else 1):
            _, ours = step(of)
        errors[name] = _distance(ours, exact)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, of in cases.items():
            if of.compressed is not None and of.compressed.step % of.compressed.every == 0:
                step(of)  # a look at the gradients, one step in `every`
            seconds[name].append(step(of)[0])
    rows = []
    plain = statistics.median(seconds["none"])
    for name, of in cases.items():
        stored, raw = measured(of, forward)
        middle = statistics.median(seconds[name])
        rows += [
            Row(case, name, "kept", stored / 2**20, "MiB"),
            Row(case, name, "ratio", raw / stored, "1"),
            Row(case, name, "step", 1000 * middle, "ms"),
            Row(case, name, "overhead", 100 * (middle / plain - 1), "%"),
            Row(case, name, "gradient error", errors[name], "1"),
        ]
    return rows


def _distance(ours: list[Tensor], exact: list[Tensor]) -> float:
    squares = sum(float((a - b).double().square().sum()) for a, b in zip(ours, exact, strict=True))
    return float((squares / sum(float(b.double().square().sum()) for b in exact)) ** 0.5)
