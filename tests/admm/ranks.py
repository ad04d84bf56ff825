"""Run by mpirun: trains on all ranks what one process has trained, and compares bit by bit."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scadl_core.admm import Data, Problem, Setting, fit
from scadl_core.admm.engine import Engine
from scadl_core.admm.fit import Fitted, go_on
from scadl_core.admm.penalties import Fixed
from scadl_core.admm.rules import BlockADMM, PdADMM, Rule
from scadl_core.comm import World
from scadl_core.compress import Relative


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(6, 16), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(16, 16), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(16, 3))


def samples(batch_size: int | None = None) -> Data:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 6, generator=generator)
    return Data.of(x, torch.randint(0, 3, (60,), generator=generator), batch_size)


Case = tuple[Rule, Setting, int | None]
CASES: dict[str, Case] = {
    "pdadmm": (PdADMM(penalty=0.5, nu=0.1), Setting(), None),
    "block_admm": (BlockADMM(steps=2), Setting(), None),
    "synchronous": (BlockADMM(steps=2), Setting(schedule="synchronous"), None),
    "minibatches": (BlockADMM(dual=0.9, dual_below=9.0), Setting(memory_bound=Relative(1e-3)), 25),
    "stale": (BlockADMM(staleness=2), Setting(), None),
    "compressed": (BlockADMM(), Setting(message_bound=Relative(2**-8)), None),
}


def train(name: str, world: World | None, iterations: int = 12) -> tuple[list[Tensor], Fitted]:
    rule, setting, batch_size = CASES[name]
    net = network()
    problem = Problem(net, "cross_entropy")
    fitted = fit(problem, samples(batch_size), world, rule=replace(rule), iterations=iterations,
                 setting=setting)  # fmt: skip
    return [p.detach().clone() for p in net.parameters()], fitted


def main(folder: Path) -> None:
    world = World.start()
    sent = {}
    for name in CASES:
        expected = torch.load(folder / f"{name}.pt", weights_only=True)
        found, fitted = train(name, world)
        same = all(torch.equal(a, b) for a, b in zip(found, expected["weights"], strict=True))
        assert same, f"{name}: weights differ from those of one rank"
        assert fitted.trace[-1]["loss"] == expected["loss"], f"{name}: another loss"
        output = fitted(samples().inputs)
        assert torch.equal(output, expected["output"]), f"{name}: another output"
        sent[name] = sum(world.gather(fitted.engine.meter.sent_bytes))
        fitted.engine.close()
    resumed(world, folder)
    balanced(world, folder)
    own_blocks_only(world)
    assert sent["compressed"] < sent["block_admm"], sent
    if world.is_first:
        print("all equal")
    World.leave()


def resumed(world: World, folder: Path) -> None:
    """States written by one rank, after seven iterations, go on here."""
    for name in ("pdadmm", "minibatches", "stale"):
        saved = torch.load(folder / f"{name}.pt", weights_only=True)
        rule, setting, batch_size = CASES[name]
        engine = _engine(rule, setting, world)
        engine.load(saved["states"])
        fitted = Fitted(engine)
        go_on(fitted, samples(batch_size), 5, Fixed())
        _compare(f"{name}, resumed", engine, saved["weights"])


def balanced(world: World, folder: Path) -> None:
    """Blocks move in the middle of a training, with messages under way."""
    for name in ("pdadmm", "stale", "compressed"):
        rule, setting, batch_size = CASES[name]
        engine = _engine(rule, setting, world)
        fitted = Fitted(engine)
        go_on(fitted, samples(batch_size), 4, Fixed())
        moved = engine.balance([1.0, 1.0, 1.0, 1.0, 1.0, 8.0])
        assert moved and list(engine.placement[-1]) == [5], engine.placement
        go_on(fitted, samples(batch_size), 8, Fixed())
        saved = torch.load(folder / f"{name}.pt", weights_only=True)
        _compare(f"{name}, balanced", engine, saved["weights"])


def own_blocks_only(world: World) -> None:
    """Functions that make blocks are called for a rank's own blocks alone."""
    made: list[int] = []

    def maker(index: int) -> Any:
        def make() -> nn.Module:
            made.append(index)
            return nn.Sequential(nn.Linear(6, 6), nn.ReLU())

        return make

    problem = Problem([maker(index) for index in range(8)], "cross_entropy")
    fit(problem, samples(), world, iterations=2).engine.close()
    share = 8 // world.size
    assert made == list(range(world.rank * share, (world.rank + 1) * share)), made


def _engine(rule: Rule, setting: Setting, world: World) -> Engine:
    from mpi4py import MPI

    problem = Problem(network(), "cross_entropy")
    return Engine(problem, replace(rule), MPI.COMM_WORLD if world.size > 1 else None, setting)


def _compare(name: str, engine: Engine, expected: list[Tensor]) -> None:
    found = [value for block in engine.weights() for value in block.values()]
    same = all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert same, f"{name}: weights differ from those of one rank"
    engine.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
