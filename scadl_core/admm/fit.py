"""Training to the end: iterations, stopping, penalty, balance, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from scadl_core.admm.data import Data
from scadl_core.admm.engine import Engine, Setting
from scadl_core.admm.penalties import Fixed, Penalty
from scadl_core.admm.problem import Problem
from scadl_core.admm.rules import BlockADMM, PdADMM, Rule
from scadl_core.comm import World
from scadl_core.errors import ConfigError, LaunchError, nearest

RULES: dict[str, Callable[[], Rule]] = {"block_admm": BlockADMM, "pdadmm": PdADMM}


@dataclass(frozen=True)
class Stopping:
    """Ends a training when both residuals are small (Boyd et al. 2011, section 3.3.1).

    Attributes:
        relative: Primal residual over the norm of what is coupled, and dual over rho times it.
        patience: In so many measurements in a row.
    """

    relative: float = 1e-3
    patience: int = 3

    def reached(self, trace: Sequence[dict[str, float]]) -> bool:
        """Whether the last rows of a trace are all below."""
        rows = trace[-self.patience :]
        return len(rows) == self.patience and all(
            max(row["primal"], row["dual"] / row["rho"] ** 2)
            <= self.relative**2 * max(row["scale"], 1e-30)
            for row in rows
        )


@dataclass
class Fitted:
    """A training and what it measured.

    Attributes:
        engine: Still open: it can go on, and :meth:`Engine.close` ends it.
        trace: One row a measurement: ``iteration``, ``loss`` (mean over the batch), ``primal`` and
            ``dual`` (squared residuals), ``scale``, ``lagrangian``, ``rho``.
        stopped: Whether the residuals ended it.
    """

    engine: Engine
    trace: list[dict[str, float]] = field(default_factory=list)
    stopped: bool = False

    def __call__(self, inputs: Tensor) -> Any:
        """The network's output, on every rank."""
        output = self.engine.forward(inputs)
        comm = self.engine.comm
        return output if comm is None else comm.bcast(output, root=comm.size - 1)


def fit(
    problem: Problem, data: Data, world: World | None = None, *, rule: str | Rule = "block_admm",
    iterations: int = 100, penalty: Penalty | None = None, every: int = 1,
    stopping: Stopping | None = None, setting: Setting = Setting(),  # noqa: B008
    balance_every: int = 0, callback: Callable[[Fitted], None] | None = None,
) -> Fitted:  # fmt: skip
    """Trains a problem by a gradient-free rule, its blocks spread over the ranks.

    Args:
        problem: Modules that it was given are trained in place, on every rank.
        data: Every rank's; only the ranks of the first and last block look into it.
        world: The ranks, each of which calls this; None: this process alone.
        rule: "block_admm", "pdadmm", or one with arguments of its own.
        iterations: At most.
        penalty: How rho changes; by default it stays.
        every: Iterations between two measurements, at each of which ranks wait for one another.
        stopping: Ends early.
        setting: Of the engine.
        balance_every: Iterations between two looks at how well ranks are balanced; 0: never.
        callback: Called after each measurement.

    Raises:
        ConfigError: No such rule, or a problem that it cannot train.
        LaunchError: Several processes that were not started by MPI.
        DivergedError: A variable is no longer finite.
    """
    if isinstance(rule, str):
        if rule not in RULES:
            raise ConfigError(f"ADMM: no rule is called {rule!r}{nearest(rule, RULES)}")
        rule = RULES[rule]()
    fitted = Fitted(Engine(problem, rule, communicator(world), setting))
    with torch.random.fork_rng():
        go_on(
            fitted, data, iterations, penalty or Fixed(), every, stopping, balance_every, callback
        )
    fitted.engine.publish()
    return fitted


def go_on(
    fitted: Fitted, data: Data, iterations: int, penalty: Penalty, every: int = 1,
    stopping: Stopping | None = None, balance_every: int = 0,
    callback: Callable[[Fitted], None] | None = None,
) -> None:  # fmt: skip
    """Further iterations; arguments as of :func:`fit`."""
    engine = fitted.engine
    rho = fitted.trace[-1]["rho"] if fitted.trace else engine.rule.penalty
    for visit in islice(data.visits(engine.iteration), iterations):
        engine.iterate(visit)
        if balance_every and engine.iteration % balance_every == 0:
            engine.balance(engine.costs())
        if engine.iteration % every:
            continue
        facts = engine.facts()
        fitted.trace.append(row(engine.iteration, rho, facts))
        rho = _changed(engine, rho, penalty.update(rho, facts))
        if callback is not None:
            callback(fitted)
        if stopping is not None and stopping.reached(fitted.trace):
            fitted.stopped = True
            return


def row(iteration: int, rho: float, facts: dict[str, float]) -> dict[str, float]:
    """A row of a trace."""
    rest = {name: facts.get(name, 0.0) for name in ("primal", "dual", "scale", "lagrangian")}
    return {
        "iteration": iteration,
        "loss": facts["loss"] / facts["samples"],
        **rest,
        "rho": rho,
    }


def communicator(world: World | None) -> Any:
    """mpi4py's communicator of a world; None for a single process.

    Raises:
        LaunchError: Several processes that MPI does not know.
    """
    if world is None or world.size == 1:
        return None
    if world.launcher != "mpi":
        raise LaunchError(
            f"ADMM's layers talk over MPI, but the {world.size} processes were started by "
            f"{world.launcher}; start with `mpirun -n {world.size} ...` or `srun --mpi=pmi2 ...`"
        )
    from mpi4py import MPI

    return MPI.COMM_WORLD


def _changed(engine: Engine, rho: float, wanted: float) -> float:
    if wanted != rho:
        engine.set_penalty(wanted)
    return wanted
