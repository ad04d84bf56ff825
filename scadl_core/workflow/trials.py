"""Plans of a run, tried: the network measured, and steps of a training as each plan takes them."""

from __future__ import annotations

import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from lightning import Callback
from lightning.fabric.utilities import move_data_to_device
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor

from scadl_core.comm import World
from scadl_core.comm.gradients import GradientExchange
from scadl_core.config.build import build
from scadl_core.errors import ConfigError
from scadl_core.optim import KFAC
from scadl_core.tuning import Curvature, Network, Plan
from scadl_core.tuning.describe import Batch, describe
from scadl_core.workflow.exchange import GradientTraffic
from scadl_core.workflow.pipeline import make_source, make_task, resolve
from scadl_core.workflow.task import Task

_WARM_UP = 3  # steps: buckets are made anew after the first, bounds settle


class Trial(NamedTuple):
    """A plan as it was measured, on the slowest rank.

    Attributes:
        seconds: Of a step, median.
        sent: Bytes of gradients that a rank handed over a step.
    """

    seconds: float
    sent: float


def device_of(config: DictConfig, world: World) -> torch.device:
    """Where a rank of this run trains."""
    wanted = config.trainer.accelerator in ("auto", "gpu", "cuda")
    on_gpu = wanted and torch.cuda.is_available()
    return torch.device("cuda", world.local_rank) if on_gpu else torch.device("cpu")


def plan_of(config: DictConfig) -> Plan:
    """The plan that a configuration is.

    Raises:
        ConfigError: A solver that has no plans.
    """
    solver = str(config.solver["_target_"])
    if not solver.endswith("GradientSolver"):
        raise ConfigError("plans are those of solver=gradient; ADMM balances its blocks itself")
    comm = config.get("comm") or {}
    kind = str(comm.get("_target_", "off")).rpartition(".")[2].lower()
    name = {"bfloat16": "bf16"}.get(kind, kind)
    value = {"compressed": comm.get("bound"), "powersgd": comm.get("rank")}.get(name)
    optimizer, kfac = config.optimizer, None
    if str(optimizer["_target_"]).endswith(".KFAC"):
        given = {name: optimizer[name] for name in Curvature.__dataclass_fields__
                 if name in optimizer}  # fmt: skip
        kfac = Curvature(**given)
    return Plan(
        name, None if value is None else float(value), float(config.solver.bucket),
        int(config.trainer.accumulate_grad_batches), "_target_" in config.memory, kfac,
    )  # fmt: skip


class Bench:
    """A run's data, on which plans are measured.

    Args:
        config: The composed configuration; nothing mandatory may be missing.
        world: The processes of the run.
    """

    def __init__(self, config: DictConfig, world: World) -> None:
        self.config, self.world = resolve(config), world
        self.source = make_source(self.config, world)
        self.facts = world.first(self.source.facts)

    @property
    def samples(self) -> int:
        """Of a step on one rank, all micro-batches together."""
        config = self.config
        per_step = int(config.loader.batch_size) * int(config.trainer.accumulate_grad_batches)
        return max(1, per_step // self.world.size)

    def network(self) -> Network:
        """The network of the run, measured without any exchange."""
        device = device_of(self.config, self.world)
        task = make_task(self.config, self.facts, self.world).to(device).train()
        task.log = task.log_dict = _silent  # type: ignore[method-assign]
        optimizer: Any = task.new_optimizer()
        if isinstance(optimizer, KFAC):
            optimizer.close()
            optimizer = optimizer.inner
        size = int(self.config.loader.batch_size)
        sizes = list(dict.fromkeys((size, max(self.world.size, size // 2))))
        batches = [self._batch(task, size, device) for size in sizes]
        return describe(task, batches, optimizer, self.world)

    def _batch(self, task: Task, size: int, device: torch.device) -> Batch:
        config = self.config.copy()
        config.loader.batch_size = size
        loaders = build(config, "loader", seed=config.seed, world=self.world)
        loader = loaders.training(self.source.samples("train"))
        batch = move_data_to_device(next(iter(loader)), device)
        count = max(1, min(size, len(self.source.samples("train"))) // self.world.size)

        def loss() -> Tensor:
            found = task.training_step(batch, 0)
            assert isinstance(found, Tensor)  # what an app's task returns
            return found

        return Batch(count, loss)

    def measure(self, config: DictConfig, steps: int) -> Trial:
        """Takes so many steps of a training, and a few before that do not count.

        Args:
            config: The composed configuration with the overrides of a plan.
            steps: To take the median of.
        """
        config = resolve(config)
        with open_dict(config):
            config.trainer.max_epochs, config.trainer.max_steps = -1, _WARM_UP + steps
            config.trainer.limit_val_batches = 0
            if "every" in config.memory:  # looks at gradients are rare; the first ones are not
                config.memory.every = _WARM_UP
        OmegaConf.resolve(config)
        clock = Clock()
        exchange = self._exchange(config)
        traffic = GradientTraffic(self.world, exchange)
        memory = None
        if "_target_" in config.memory:
            memory = build(config, "memory", world=self.world)
        task = make_task(config, self.facts, self.world)
        loaders = build(config, "loader", seed=config.seed, world=self.world)
        training = loaders.training(self.source.samples("train"))
        with tempfile.TemporaryDirectory() as folder:
            solver = build(
                config, "solver", trainer=build(config, "trainer"), world=self.world,
                callbacks=[*([memory] if memory else []), traffic, clock], loggers=[],
                folder=Path(folder), progress_bar=False,
            )  # fmt: skip
            solver.fit(task, training, loaders.evaluation(self.source.samples("val")), None)
        for optimizer in solver.trainer.optimizers:
            if isinstance(optimizer, KFAC):
                optimizer.close()
        sent = exchange.sent_bytes / max(1, solver.trainer.global_step)
        found = self.world.gather(Trial(clock.median(_WARM_UP), sent))
        return max(found, key=lambda trial: trial.seconds)

    def _exchange(self, config: DictConfig) -> GradientExchange:
        if "_target_" not in (config.get("comm") or {}):
            return GradientExchange(self.world)
        with open_dict(config):  # PowerSGD is exact at first, which is not what is measured
            if "start" in config.comm:
                config.comm.start = 2
        exchange: GradientExchange = build(config, "comm", world=self.world)
        return exchange


class Clock(Callback):
    """Times optimizer steps, from the end of one to that of the next."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self._step = 0

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A micro-batch is done; where it was the last of a step, so is the step."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.ends.append(perf_counter())

    def median(self, warm_up: int) -> float:
        """Seconds of a step, without the first ones."""
        ends = self.ends[warm_up - 1 :]
        gaps = [after - before for before, after in pairwise(ends)]
        return statistics.median(gaps)


def _silent(*_: Any, **__: Any) -> None:
    """Stands for ``task.log``, which wants a trainer."""
