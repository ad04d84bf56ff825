"""A run from its configuration to its report."""

from __future__ import annotations

import math
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback
from omegaconf import DictConfig, OmegaConf

from scadl_core.comm import World
from scadl_core.comm.gradients import GradientExchange
from scadl_core.comm.heartbeat import Heartbeat, forget, last_words
from scadl_core.config.build import build
from scadl_core.errors import ConfigError, RunError, ScadlError
from scadl_core.files import write_json
from scadl_core.optim import KFAC
from scadl_core.record.plots import learning_curves
from scadl_core.record.provenance import command_line, describe, fingerprints
from scadl_core.record.ranklog import RankLog
from scadl_core.record.report import write_report
from scadl_core.record.runfolder import RunFolder, new_name, unfinished
from scadl_core.workflow.activations import ActivationMemory
from scadl_core.workflow.callbacks import (
    Checkpoints,
    History,
    LineProgress,
    SignsOfLife,
    StopOnSignal,
)
from scadl_core.workflow.contracts import Source
from scadl_core.workflow.exchange import GradientTraffic, traffic_table
from scadl_core.workflow.gradient import GradientSolver
from scadl_core.workflow.interrupts import Interrupts
from scadl_core.workflow.loaders import Loaders
from scadl_core.workflow.pipeline import load_weights, make_source, make_task, resolve
from scadl_core.workflow.task import Task


def choose_folder(config: DictConfig, world: World) -> Path:
    """The folder of this run, the same on all ranks: ``run.dir``, the run to be resumed, or a new
    one.

    Args:
        config: The resolved configuration.
        world: The processes of the run.
    """
    if config.run.dir is not None:
        return Path(config.run.dir).expanduser().absolute()
    runs = Path(config.paths.runs) / config.app

    def choose() -> Path:
        found = unfinished(runs, config) if config.resume == "auto" else None
        return found or runs / new_name()

    return world.first(choose)


def train(config: DictConfig, path: Path | None = None) -> dict[str, float]:
    """Trains, tests and reports.

    Args:
        config: The composed configuration; nothing mandatory may be missing.
        path: The run folder; by default what :func:`choose_folder` says.

    Returns:
        The content of ``metrics.json``.

    Raises:
        ScadlError: A mistake of the user's.
        Stopped: A signal came; the state is saved.
    """
    world = World.start()
    if config.trainer.max_epochs < 1:
        raise ConfigError(
            f"trainer.max_epochs: expected 1 or more, got {config.trainer.max_epochs}"
        )
    stalled_after(config)
    config = resolve(config)
    path = path or choose_folder(config, world)
    folder = RunFolder(path)
    world.first(lambda: folder.open(config, resume=config.resume == "auto"))
    try:
        if world.first(lambda: folder.is_complete):
            say(world, f"the run in {path} is complete: {folder.report}")
            return folder.load_metrics()
        with Interrupts(world) as interrupts:
            return _Run(config, folder, world, interrupts).go()
    finally:
        if world.is_first:
            folder.close()


class _Run:
    """One run in progress: each method is a stage, in the order of :meth:`go`."""

    def __init__(
        self, config: DictConfig, folder: RunFolder, world: World, interrupts: Interrupts
    ) -> None:
        self.config, self.folder, self.world, self.interrupts = config, folder, world, interrupts
        self.signs = SignsOfLife()

    def go(self) -> dict[str, float]:
        say(self.world, f"run folder: {self.folder.path}")
        source = make_source(self.config, self.world)
        self.interrupts.check("before the training")
        facts = self.world.first(source.facts)
        provenance = self.provenance(source)
        task = make_task(self.config, facts, self.world)
        if warm := self.config.get("warm_start"):
            app = self.config.app
            load_weights(task, self.world.first(lambda: self.folder.load_checkpoint(warm, app)))
        loaders: Loaders = build(self.config, "loader", seed=self.config.seed, world=self.world)
        self.memory = self.activations(task)
        self.traffic = GradientTraffic(self.world, self.exchange())
        history = History(self.folder.history, self.world, counts_saved=self.memory is None)
        identity = {"app": self.config.app, "facts": facts, "provenance": provenance}
        solver = self.solver(history, identity)
        self.try_optimizer(task, solver)
        # From here on the run exists: a mistake found before leaves no folder behind.
        self.world.first(lambda: self.folder.begin(self.config, provenance))
        with RankLog(self.folder.logs, self.world) as log, self.heartbeat(log):
            solver.fit(
                task,
                loaders.training(source.samples("train")),
                loaders.evaluation(source.samples("val")),
                self.resume_from(),
            )
            task.load_state_dict(self.world.first(lambda: self.checkpoint("best")["state_dict"]))
            solver.evaluate(task, loaders.evaluation(source.samples("test")))
            self.interrupts.check("after the test")

            metrics = self.metrics(task, source, history, solver)
            self.world.first(lambda: self.finish(task, source, metrics, provenance, solver))
        say(self.world, f"report: {self.folder.report}")
        return metrics

    def heartbeat(self, log: RankLog) -> Heartbeat:
        """Signs of life from here on; says who died in the part of the run before, if one did."""
        if silent := self.world.first(lambda: last_words(self.folder.heartbeats)):
            say(self.world, f"before this resumption, {silent}")
        self.world.first(lambda: forget(self.folder.heartbeats))
        self.signs.heartbeat = Heartbeat(
            self.folder.heartbeats, self.world, stalled_after(self.config), log.file
        )
        return self.signs.heartbeat

    def activations(self, task: Task) -> ActivationMemory | None:
        """What keeps activations compressed, if that is asked for."""
        if "_target_" not in self.config.memory:
            return None
        memory: ActivationMemory = build(self.config, "memory", world=self.world)
        memory.try_on(task)
        return memory

    def exchange(self) -> GradientExchange:
        """How gradients are averaged over ranks."""
        if "_target_" not in (self.config.get("comm") or {}):  # none in runs of before
            return GradientExchange(self.world)
        exchange: GradientExchange = build(self.config, "comm", world=self.world)
        return exchange

    def try_optimizer(self, task: Task, solver: GradientSolver) -> None:
        """Finds a rate or a schedule that its class refuses before the run exists."""
        try:
            optimizer = task.new_optimizer()
        except ConfigError as error:  # of an argument, by its name alone
            key = re.match(r"(?!optimizer)\w+:", str(error))
            raise ConfigError(f"optimizer.{error}" if key else str(error)) from error
        if self.config.get("schedule"):
            build(self.config, "schedule")(optimizer=optimizer, total_steps=1)
        if isinstance(optimizer, KFAC):
            optimizer.close()
        if getattr(optimizer, "takes_model", False) and not solver.exchanges_gradients:
            raise ConfigError(
                f"optimizer: {type(optimizer).__name__} is made from a whole model; this solver "
                "trains blocks by optimizers of parameters: choose optimizer=adamw, sgd or soap; "
                "solver.local=kfac puts K-FAC around it"
            )

    def provenance(self, source: Source) -> dict[str, Any]:
        """Where this run comes from."""
        data = self.world.first(lambda: fingerprints(source.files()))
        return describe(self.world, self.config.seed, command_line(), data)

    def checkpoint(self, name: str) -> dict[str, Any]:
        """A checkpoint of this run, checked."""
        return self.folder.load_checkpoint(name, self.config.app)

    def resume_from(self) -> Path | None:
        """The checkpoint to go on from, if there is one."""
        path = self.world.first(lambda: self.folder.last_checkpoint)
        if path is not None:
            step = self.world.first(lambda: self.checkpoint("last")["scadl"]["step"])
            say(self.world, f"going on from step {step}")
        return path

    def solver(self, history: History, identity: dict[str, Any]) -> GradientSolver:
        """Builds the solver with the callbacks that every run has.

        Their order matters: a checkpoint holds the epoch's row, and a stop comes after the
        checkpoint.
        """
        checkpoints = Checkpoints(self.folder.checkpoints, identity, self.world)
        own = [build(self.config, f"callbacks.{name}") for name in self.config.callbacks]
        on_terminal = sys.stdout.isatty()
        every_steps = self.config.trainer.log_every_n_steps
        progress: list[Callback] = [] if on_terminal else [LineProgress(every_steps)]
        solver: GradientSolver = build(
            self.config,
            "solver",
            trainer=build(self.config, "trainer"),
            world=self.world,
            callbacks=[
                *own,
                *([self.memory] if self.memory else []),
                self.traffic,
                history,
                checkpoints,
                StopOnSignal(self.interrupts, checkpoints),
                self.signs,
                *progress,
            ],
            loggers=self.loggers(),
            folder=self.folder.path,
            progress_bar=on_terminal,
        )
        solver.adopt(self.traffic.exchange)
        return solver

    def loggers(self) -> list[Any]:
        """The configured logger, on rank 0; curves of a resumed run go on in the same folder."""
        if "_target_" not in self.config.logger or not self.world.is_first:
            return []
        logger = build(self.config, "logger")
        return [logger(save_dir=self.folder.path, name="", version="tensorboard")]

    def metrics(
        self, task: Task, source: Source, history: History, solver: GradientSolver
    ) -> dict[str, float]:
        """All numbers of the run; what cannot be said (a class that is not there) is left out."""
        scores = {f"test/{name}": value for name, value in task.scores().items()}
        baseline = self.world.first(lambda: build(self.config, "baseline", source=source))
        totals = {**history.totals, "memory/peak_bytes": peak_bytes()}
        totals |= self.memory.totals if self.memory else {}
        totals |= self.traffic.total() | solver.totals
        totals["comm/sent_bytes"] = sum(self.world.gather(totals["comm/sent_bytes"]))
        all_of_them = {**scores, **{f"baseline/{n}": v for n, v in baseline.items()}, **totals}
        return {name: value for name, value in all_of_them.items() if math.isfinite(value)}

    def finish(
        self, task: Task, source: Source, metrics: dict[str, float], provenance: dict[str, Any],
        solver: GradientSolver,
    ) -> None:  # fmt: skip
        """Predictions, figures and the report; ``metrics.json`` last, since it says that the run is
        complete.

        Raises:
            RunError: A prediction or figures could not be made as configured; the rest is there.
        """
        task, folder, captions = task.eval(), self.folder.figures, dict[str, str]()
        mistakes: list[ScadlError] = []
        with _later(mistakes):
            build(
                self.config,
                "predict",
                task=task,
                inputs=source.example(),
                output=self.folder.predictions,
                provenance=provenance,
            )
        with _later(mistakes):
            captions = build(self.config, "figures", task=task, source=source, folder=folder)
        learning_curves(self.folder.history, folder / "learning_curves.png")
        captions["learning_curves.png"] = "Loss and scores after each epoch."
        captions |= solver.draw(folder)
        tables = [traffic_table(metrics)] if "comm/gradient_ratio" in metrics else []
        if self.memory is not None:
            captions["activations.png"] = self.memory.draw(folder / "activations.png")
            tables.append(self.memory.table())
        write_report(
            self.folder.report,
            self.config.app,
            OmegaConf.to_yaml(self.config),
            metrics,
            source.report(),
            {folder / name: caption for name, caption in captions.items()},
            provenance,
            tables,
        )
        write_json(self.folder.metrics, metrics)
        for mistake in mistakes:
            raise RunError(f"{mistake} (all else of the run is done: {self.folder.report})")


@contextmanager
def _later(mistakes: list[ScadlError]) -> Iterator[None]:
    """Keeps a mistake for when everything else is written: a training is dear."""
    try:
        yield
    except ScadlError as mistake:
        mistakes.append(mistake)


def stalled_after(config: DictConfig) -> float | None:
    """``run.stalled_after``; runs of before have none.

    Raises:
        ConfigError: It is no time.
    """
    value = config.run.get("stalled_after", 20.0)
    if value is not None and not (isinstance(value, int | float) and value >= 2):
        raise ConfigError(
            f"run.stalled_after: expected seconds from 2 on, or null (never), got {value!r}"
        )
    return value


def peak_bytes() -> int:
    """The most memory that this process has held: on its GPU where it uses one, else resident."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def say(world: World, text: str) -> None:
    """Prints on rank 0."""
    if world.is_first:
        print(text, flush=True)
