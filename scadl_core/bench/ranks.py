"""Run by ``mpirun -n 2 python -m mpi4py -m scadl_core.bench.ranks OUT QUICK``: the time of a step.

The same network, batch and loss for all; rounds are interleaved, so that what the machine does
besides falls on all alike. A step ends when the slowest rank is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd import backward
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

from scadl_core.admm.block import Visit
from scadl_core.admm.engine import Engine, Setting
from scadl_core.admm.problem import Problem, cut
from scadl_core.admm.rules import BlockADMM
from scadl_core.bench.networks import mlp
from scadl_core.bench.rows import Row
from scadl_core.comm import World
from scadl_core.compress import Relative
from scadl_core.files import write_json

WIDTH, BATCH, DEPTH = 512, 512, 8


@dataclass
class Method:
    """One way to take a step, and what it took."""

    step: Callable[[], None]
    engine: Engine | None = None
    pipeline: bool = False
    seconds: list[float] | None = None


def main(out: Path, quick: bool) -> None:
    """Measures, and writes the rows on rank 0."""
    world = World.start()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    methods = _methods(world, comm)
    for method in methods.values():
        method.step()
        method.seconds = []
    for method in methods.values():
        if method.engine is not None:
            method.engine.meter.sent_bytes = 0
    rounds = 4 if quick else 16
    for _ in range(rounds):
        for method in methods.values():
            comm.Barrier()
            began = time.perf_counter()
            method.step()
            comm.Barrier()
            assert method.seconds is not None
            method.seconds.append(time.perf_counter() - began)
    rows = _rows(methods, world, rounds)
    if world.is_first:
        write_json(out, [row._asdict() for row in rows])
    for method in methods.values():
        if method.engine is not None:
            method.engine.close()
    World.leave()


def _methods(world: World, comm: Any) -> dict[str, Method]:
    x, y = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))
    methods = {"serial backpropagation": Method(_serial(world, x, y))}
    for name, schedule in (("GPipe", ScheduleGPipe), ("1F1B", Schedule1F1B)):
        for count in (2, 4, 8):
            step = _pipeline(world, schedule, count, x, y)
            methods[f"{name}, M={count}"] = Method(step, pipeline=True)
    for name, rule, setting in (
        ("block_admm", BlockADMM(), Setting()),
        ("block_admm, synchronous", BlockADMM(), Setting(schedule="synchronous")),
        ("block_admm, 8-bit messages", BlockADMM(), Setting(message_bound=Relative(2**-9))),
    ):
        blocks = cut(_network(), world.size)
        problem = Problem(list(blocks), "cross_entropy")
        engine = Engine(problem, rule, comm, setting)
        methods[name] = Method(_iteration(engine, x, y), engine)
    return methods


def _network() -> nn.Sequential:
    return mlp(DEPTH, 0, WIDTH, WIDTH)


def _serial(world: World, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    network = _network()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)

    def step() -> None:
        if world.is_first:
            optimizer.zero_grad()
            backward(functional.cross_entropy(network(x), y))
            optimizer.step()

    return step


def _pipeline(
    world: World, kind: Any, count: int, x: torch.Tensor, y: torch.Tensor
) -> Callable[[], None]:
    block = cut(_network(), world.size)[world.rank]
    optimizer = torch.optim.Adam(block.parameters(), 1e-3)
    stage = PipelineStage(block, world.rank, world.size, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=count, loss_fn=functional.cross_entropy)

    def step() -> None:
        optimizer.zero_grad()
        if world.is_first:
            schedule.step(x)
        elif world.rank == world.size - 1:
            schedule.step(target=y)
        else:
            schedule.step()
        optimizer.step()

    return step


def _iteration(engine: Engine, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    return lambda: engine.iterate(Visit(0, x, y))


def _rows(methods: dict[str, Method], world: World, rounds: int) -> list[Row]:
    case = f"a step on {world.size} ranks, {DEPTH} x {WIDTH}, batch {BATCH}"
    best = min(
        min(it.seconds or [float("inf")])
        for name, it in methods.items()
        if it.pipeline and not name.endswith("M=8")
    )
    rows: list[Row] = []
    for name, method in methods.items():
        seconds = sorted(method.seconds or [])
        rows += [
            Row(case, name, "step", 1e3 * seconds[0], "ms"),
            Row(case, name, "median step", 1e3 * seconds[len(seconds) // 2], "ms"),
            Row(case, name, "of the best pipeline", seconds[0] / best, "1"),
        ]
        if method.engine is not None:
            meter = method.engine.meter
            sent = sum(world.gather(meter.sent_bytes)) / rounds / 1e6
            rows.append(Row(case, name, "sent", sent, "MB"))
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]), bool(int(sys.argv[2])))
