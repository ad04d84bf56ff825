"""Run by ``mpirun -n 2 python -m mpi4py -m scadl_core.bench.factors OUT QUICK``: what compressed
factors of K-FAC change after 200 steps, paired by seed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scadl_core.bench.nets import Problem, problems
from scadl_core.bench.rows import Row
from scadl_core.comm import World
from scadl_core.files import write_json
from scadl_core.optim import KFAC
from scadl_core.record.intervals import interval

SEEDS, STEPS, TRAINED, EPS = 5, 200, 1200, 0.1


def main(out: Path, quick: bool) -> None:
    """Trains with and without, and writes the rows on rank 0."""
    world = World.start()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for problem in problems()[:2]:
        runs: dict[float | None, list[tuple[float, float, float]]] = {None: [], EPS: []}
        for seed in range(1 if quick else SEEDS):
            for compression, found in runs.items():
                found.append(train(problem, world, seed, compression, 20 if quick else STEPS))
        rows += _rows(problem.name, runs)
    if world.is_first:
        write_json(out, [row._asdict() for row in rows])
    World.leave()


def train(
    problem: Problem, world: World, seed: int, compression: float | None, steps: int
) -> tuple[float, float, float]:
    """Loss on the samples that were trained on, accuracy on the others, and bytes of full float32
    factors over those sent.
    """
    torch.manual_seed(seed)
    model = problem.network()
    wrapped: nn.Module = DistributedDataParallel(model) if world.size > 1 else model
    optimizer = KFAC(wrapped, compression=compression, world=world)
    order = torch.Generator().manual_seed(seed)
    part = replace(problem, inputs=problem.inputs[:TRAINED], labels=problem.labels[:TRAINED])
    for _ in range(steps):
        rows = torch.randint(TRAINED, (part.batch,), generator=order)[world.rank :: world.size]
        optimizer.zero_grad()
        torch.autograd.backward(_loss(wrapped, part, rows))
        optimizer.step()
    with torch.no_grad():
        loss = float(_loss(model, part, slice(None)))
        correct = model(problem.inputs[TRAINED:]).argmax(1) == problem.labels[TRAINED:]
    return loss, float(correct.double().mean()), optimizer.report()["factor_ratio"]


def _loss(model: nn.Module, problem: Problem, rows: torch.Tensor | slice) -> torch.Tensor:
    return nn.functional.cross_entropy(model(problem.inputs[rows]), problem.labels[rows])


def _rows(name: str, runs: dict[float | None, list[tuple[float, float, float]]]) -> list[Row]:
    case, rows = f"{name}: factors between 2 ranks, after {STEPS} steps", []
    for compression, found in runs.items():
        method = f"compressed, eps {compression:g}" if compression else "exact"
        for metric, values in zip(("loss", "accuracy", "ratio"), zip(*found, strict=True)):  # noqa: B905
            rows.append(Row(case, method, metric, sum(values) / len(values), "1"))
    pairs = list(zip(runs[EPS], runs[None], strict=True))
    for column, metric in enumerate(("loss", "accuracy")):
        mean, low, high = interval([new[column] - old[column] for new, old in pairs])
        method = f"{metric}: difference, paired"
        rows += [Row(case, method, "mean", mean, "1"), Row(case, method, "low", low, "1")]
        rows.append(Row(case, method, "high", high, "1"))
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]), bool(int(sys.argv[2])))
