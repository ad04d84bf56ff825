"""The ADMM solver: blocks of the network over ranks, in the same run as the gradient solver.

Lightning's loop counts epochs, validates and calls back; its training step is one iteration of
:class:`scadl_core.admm.engine.Engine`, by which no derivative crosses from block to block. So
checkpoints, stops, histories and reports are those of every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.utilities.distributed import _sync_ddp_if_available
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from scadl_core.admm.block import Visit
from scadl_core.admm.engine import Engine, Setting
from scadl_core.admm.fit import communicator, row
from scadl_core.admm.penalties import Fixed, Penalty
from scadl_core.admm.problem import Problem
from scadl_core.admm.rules import BlockADMM, Rule
from scadl_core.admm.trace import Span, chrome, expected_pipeline
from scadl_core.comm import World
from scadl_core.comm.gradients import GradientExchange
from scadl_core.compress import Relative
from scadl_core.errors import ConfigError, nearest
from scadl_core.files import write_json
from scadl_core.record.plots import residuals
from scadl_core.workflow.callbacks import sampler
from scadl_core.workflow.cutting import TaskLoss, cut_network, with_fixed_batches
from scadl_core.workflow.gradient import GradientSolver
from scadl_core.workflow.local import LocalKFAC
from scadl_core.workflow.task import Task


class AdmmSolver(GradientSolver):
    """Trains a task block by block.

    Args:
        rule: What a block does in an iteration; a block-local rule trains with the configured
            optimizer and schedule.
        blocks: How many; null: one a rank, and at least two.
        local: "kfac" puts K-FAC around the optimizer of each block.
        penalty: How rho changes.
        schedule: "overlap" or "synchronous".
        message_bound: Relative error of what neighbours send; null: what the ``comm`` part says.
        memory_bound: The same of the variables that are kept of each sample.
        balance_every: Iterations between two looks at how well ranks are balanced; 0: never.
        base: Arguments of :class:`GradientSolver`.
    """

    exchanges_gradients = False

    def __init__(
        self, rule: Rule, blocks: int | None = None, local: str | None = None,
        penalty: Penalty | None = None, schedule: str = "overlap",
        message_bound: float | None = None, memory_bound: float | None = None,
        balance_every: int = 0, **base: Any,
    ) -> None:  # fmt: skip
        if schedule not in ("overlap", "synchronous"):
            raise ConfigError(f"solver.schedule: expected overlap or synchronous, got {schedule!r}")
        if local is not None:
            if local != "kfac":
                raise ConfigError(f"solver.local={local}: no such choice{nearest(local, ['kfac'])}")
            if not isinstance(rule, BlockADMM):
                raise ConfigError(
                    f"solver.local=kfac: the steps of {type(rule).__name__} are in closed form; "
                    "choose solver.rule._target_=scadl_core.admm.rules.BlockADMM"
                )
            rule.precondition = LocalKFAC()
        self.world: World = base["world"]
        self.training = _Training(
            rule, blocks or max(2, self.world.size), penalty or Fixed(), balance_every,
            Setting(schedule=schedule, message_bound=_bound("message_bound", message_bound),
                    memory_bound=_bound("memory_bound", memory_bound)),
        )  # fmt: skip
        base["callbacks"] = [self.training, *base["callbacks"]]
        super().__init__(**base)

    def placement(self, world: World, trainer: Any) -> dict[str, Any]:
        """One device a rank, and no data parallelism."""
        single = super().placement(World(), trainer)
        on_gpu = torch.cuda.is_available() and trainer.keywords.get("accelerator") != "cpu"
        device = torch.device("cuda", world.local_rank) if on_gpu else torch.device("cpu")
        return {**single, "strategy": BlockStrategy(world, device, self.training)}

    def fit(
        self, task: LightningModule, training: Any, validation: Any, resume_from: Path | None
    ) -> None:
        """Trains to the end; see :meth:`GradientSolver.fit`."""
        task.automatic_optimization = False
        try:
            super().fit(task, with_fixed_batches(training), validation, resume_from)
        except MisconfigurationException as error:
            raise ConfigError(f"solver=admm: {' '.join(str(error).split())}") from error
        self.training.finish(self.world)

    def adopt(self, exchange: GradientExchange) -> None:
        """Takes over the bound of messages, where its own configuration has none.

        Raises:
            ConfigError: An exchange that knows of gradients alone.
        """
        if type(exchange) is GradientExchange:
            return
        if exchange.message_bound is None:
            raise ConfigError(
                "comm: with this solver ranks exchange no gradients that could be sent so; choose "
                "comm=compressed, or comm=off"
            )
        setting = self.training.setting
        if setting.message_bound is None:
            bound = Relative(exchange.message_bound)
            self.training.setting = replace(setting, message_bound=bound)

    @property
    def totals(self) -> dict[str, float]:
        """Messages between blocks, waiting, and how far copies are apart, over all ranks."""
        return self.training.totals

    def draw(self, folder: Path) -> dict[str, str]:
        """Residuals, Lagrangian, penalty, and what ranks did with their time."""
        if not self.training.rows:
            return {}
        residuals(self.training.rows, self.training.times, folder / "admm.png")
        write_json(folder / "timeline.json", self.training.timeline())
        return {
            "admm.png": "Residuals, Lagrangian and penalty of ADMM, and the time of each rank.",
            "timeline.json": "What ranks did when in the last iterations, beside a step of a "
            "pipeline of as long blocks; open it in ui.perfetto.dev or chrome://tracing.",
        }


class _Training(Callback):
    """The engine in a Lightning run; its state is part of every checkpoint."""

    def __init__(
        self, rule: Rule, blocks: int, penalty: Penalty, balance_every: int, setting: Setting
    ) -> None:
        self.rule, self.blocks, self.penalty = rule, blocks, penalty
        self.setting, self.balance_every = setting, balance_every
        self.rows: list[dict[str, float]] = []
        self.times: list[dict[str, float]] = []
        self.spans: list[tuple[str, list[Span]]] = []
        self.totals: dict[str, float] = {}
        self.engine: Engine | None = None
        self._kept: dict[str, Any] | None = None
        self._schedulers: list[tuple[Any, Any]] = []  # with the optimizer of each

    def begin(self, trainer: Trainer, task: Task, comm: Any, device: torch.device) -> None:
        """Makes the engine, when the number of steps is known."""
        self.task, self.loss = task, TaskLoss(task)
        if isinstance(self.rule, BlockADMM):
            self.rule.optimizer = self._optimizer(trainer, task)
        problem = Problem(cut_network(task.network, self.blocks), self.loss)
        setting = Setting(**{**vars(self.setting), "device": device, "seed": task.seed})
        self.engine = Engine(problem, self.rule, comm, setting)
        task.world.barrier()
        self.engine.meter.trace.zero = time.perf_counter()
        if self._kept is not None:
            self.engine.load(self._kept["blocks"])
            self._set_schedule(self._kept["schedule"])

    def step(self, trainer: Trainer, batch: Any, position: int) -> dict[str, Tensor]:
        """One iteration."""
        engine, task = self._running(), self.task
        number = sampler(trainer.fit_loop._data_source.instance).number(  # type: ignore[attr-defined]
            trainer.current_epoch, position
        )
        before = engine.meter.sent_bytes
        inputs = self.loss.inputs(batch) if 0 in engine.blocks else None
        engine.iterate(Visit(number, inputs, batch))
        for _, scheduler in self._own_schedulers():
            scheduler.step()
        facts = engine.facts()
        self.rows.append(row(engine.iteration, self._rho, facts))
        rho = self.penalty.update(self._rho, facts)
        if rho != self._rho:
            engine.set_penalty(rho)
            self._rho_now = rho
        if self.balance_every and engine.iteration % self.balance_every == 0:
            schedule = self._schedule()
            if engine.balance(engine.costs()):
                self._set_schedule(schedule)
        task.world.traffic.sent_bytes += engine.meter.sent_bytes - before
        loss = torch.tensor(self.rows[-1]["loss"])
        task.log("train/loss", loss, prog_bar=True)
        return {"loss": loss}

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Validates what all blocks have learned."""
        if self.engine is not None:
            self.engine.publish()

    def finish(self, world: World) -> None:
        """Collects what ranks did with their time, and closes the lanes."""
        engine = self._running()
        engine.publish()
        meter, waited = engine.meter, engine.meter.wait_seconds
        own = {
            "waiting": waited,
            "working": engine.seconds - waited,
            "sent_bytes": meter.sent_bytes,
            "said": meter.said_bytes,
            "plain": meter.plain_bytes,
        }
        self.times = world.gather(own)
        blocks = engine.placement[engine.rank]
        name = f"rank {engine.rank}: blocks {blocks.start} to {blocks.stop - 1}"
        self.spans = world.gather((name, meter.trace.since_zero()))
        self.totals = self._account(world)
        engine.close()

    def timeline(self) -> Any:
        """The plain values of a trace file."""
        iterations = max(1, len(self.rows))
        seconds = [it["working"] / iterations for it in self.times]
        steps = self.rule.steps if isinstance(self.rule, BlockADMM) else 1
        return chrome(self.spans, expected_pipeline(seconds, steps) if len(seconds) > 1 else None)

    def _account(self, world: World) -> dict[str, float]:
        """Of this process's part of the run, where it was resumed."""
        sums = {name: sum(it[name] for it in self.times) for name in self.times[0]}
        row = self.rows[-1]
        found = {
            "admm/iterations": row["iteration"],
            "admm/gap": (row["primal"] / max(row["scale"], 1e-30)) ** 0.5,
            "admm/waiting_seconds": sums["waiting"],
            "comm/message_bytes": sums["said"],
            "comm/message_bytes_uncompressed": sums["plain"],
        }
        if isinstance(self.rule, BlockADMM) and isinstance(self.rule.precondition, LocalKFAC):
            found["admm/inversions"] = sum(world.gather(self.rule.precondition.inversions))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Blocks, their schedule, and the rows up to now; every rank has to ask."""
        if self.engine is None:
            return self._kept or {}
        return {
            "blocks": self.engine.states(),
            "schedule": self._schedule(),
            "rows": self.rows,
            "rho": self._rho,
            "penalty": dict(vars(self.penalty)),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a stored state, on any number of ranks."""
        self._kept, self.rows, self._rho_now = state_dict, state_dict["rows"], state_dict["rho"]
        vars(self.penalty).update(state_dict["penalty"])

    _rho_now: float | None = None

    @property
    def _rho(self) -> float:
        return self.rule.penalty if self._rho_now is None else self._rho_now

    def _running(self) -> Engine:
        assert self.engine is not None, "asked while the engine runs"
        return self.engine

    def _optimizer(self, trainer: Trainer, task: Task) -> Callable[..., Any]:
        make, schedule = task.make_optimizer, task.make_schedule
        assert make is not None, "a task made for prediction cannot be trained"
        total = int(trainer.estimated_stepping_batches)

        def made(parameters: Any) -> Any:
            optimizer = make(parameters)
            if schedule is not None:
                found = schedule(optimizer=optimizer, total_steps=max(1, total))
                self._schedulers.append((optimizer, found))
            return optimizer

        return made

    def _schedule(self) -> dict[str, Any]:
        """Where the schedule is; it is the same for all blocks."""
        return next((dict(it.state_dict()) for _, it in self._own_schedulers()), {})

    def _set_schedule(self, state: dict[str, Any]) -> None:
        for _, scheduler in self._own_schedulers():
            scheduler.load_state_dict(dict(state))

    def _own_schedulers(self) -> list[tuple[Any, Any]]:
        """Those of blocks that are here; blocks may have moved."""
        own = {id(block.optimizer) for block in self._running().blocks.values()}
        self._schedulers = [it for it in self._schedulers if id(it[0]) in own]
        return self._schedulers


class BlockStrategy(SingleDeviceStrategy):
    """Lightning's strategy for ranks that hold different blocks of one network.

    Args:
        world: The ranks.
        device: Of this one.
        training: What a training step is.
    """

    def __init__(self, world: World, device: torch.device, training: _Training) -> None:
        super().__init__(device=device)
        self.world, self.training = world, training
        self.global_rank, self.local_rank = world.rank, world.local_rank

    @property
    def is_global_zero(self) -> bool:
        """Whether this rank writes files."""
        return self.world.is_first

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Every block has its own."""
        self.optimizers, self.lr_scheduler_configs = [], []
        task: Any = self.lightning_module
        self.training.begin(trainer, task, communicator(self.world), self.root_device)
        self.trainer = trainer

    def training_step(self, *arguments: Any, **_: Any) -> Any:
        """One iteration, which counts as a step."""
        output = self.training.step(self.trainer, *arguments)
        progress = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        progress.increment_ready()
        progress.increment_completed()
        return output

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The task's state, with what all blocks have learned."""
        if self.training.engine is not None:
            self.training.engine.publish()
        return super().lightning_module_state_dict()

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean", **_: Any) -> Any:
        """Over all ranks."""
        return _sync_ddp_if_available(tensor, group, reduce_op=reduce_op)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Over all ranks."""
        return not self.world.any(not decision) if all else self.world.any(decision)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Of rank 0."""
        return self.world.broadcast(obj)

    def barrier(self, *_: Any, **__: Any) -> None:
        """Of all ranks."""
        self.world.barrier()


def _bound(name: str, value: float | None) -> Relative | None:
    if value is None:
        return None
    if not 0 < value < 1:
        raise ConfigError(f"solver.{name}: expected null, or a share of the range, got {value!r}")
    return Relative(value)
