"""What all pipelines' tasks share: a network, its optimizer, and noise that depends on the step
alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from lightning import LightningModule
from torch import nn
from torch.optim import Optimizer

from scadl_core.comm import World
from scadl_core.errors import ConfigError
from scadl_core.optim import KFAC
from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.seeds import derive


class Task(LightningModule, ABC):
    """Base of an app's ``task.py``, which adds ``training_step``, the evaluation steps and
    ``scores``.

    A validation logs ``val/score``, by which the best checkpoint is chosen: one number, higher is
    better.

    Args:
        network: The model.
        facts: What :meth:`scadl_core.workflow.contracts.Source.facts` found.
        world: The processes that share each batch; losses are sums over them
            (:meth:`World.global_sum`).
        seed: The seed of the run.
        optimizer: Makes the optimizer from the parameters.
        schedule: Makes the scheduler from ``optimizer`` and ``total_steps``.
    """

    def __init__(
        self,
        network: nn.Module,
        facts: dict[str, Any],
        world: World,
        seed: int = 0,
        optimizer: Callable[..., Optimizer] | None = None,
        schedule: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.facts = facts
        self.world = world
        self.seed = seed
        self.make_optimizer = optimizer
        self.make_schedule = schedule

    @abstractmethod
    def scores(self) -> dict[str, float]:
        """The scores of the last evaluation, by name, without the name of the split."""

    def exportable(self) -> Exportable:
        """What ``scadl export`` writes; a pipeline that has no export keeps this."""
        raise ConfigError(f"{type(self).__name__} of this pipeline cannot be exported yet")

    def configure_optimizers(self) -> Any:
        """Called by Lightning: the configured optimizer and its schedule, stepped after every
        optimizer step.
        """
        optimizer = self.new_optimizer()
        if self.make_schedule is None:
            return optimizer
        scheduler = self.make_schedule(
            optimizer=optimizer, total_steps=int(self.trainer.estimated_stepping_batches)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def new_optimizer(self) -> Optimizer:
        """The configured optimizer of this task's parameters; second-order ones are made from the
        task itself, whose layers they watch.
        """
        assert self.make_optimizer is not None, "a task made for prediction cannot be trained"
        kind = getattr(getattr(self.make_optimizer, "partial", self.make_optimizer), "func", None)
        if not getattr(kind, "takes_model", False):
            return self.make_optimizer(self.parameters())
        return self.make_optimizer(self, world=self.world)

    def on_fit_start(self) -> None:
        """Called by Lightning when model and optimizers are in their places."""
        for optimizer in self.trainer.optimizers:
            if isinstance(optimizer, KFAC):
                optimizer.scaler = getattr(self.trainer.precision_plugin, "scaler", None)
                optimizer.overlap(self.trainer.strategy.model or self)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Called by Lightning: makes dropout and the like a function of (seed, step, rank)."""
        batches_done = self.trainer.fit_loop.epoch_loop.total_batch_idx
        torch.manual_seed(derive(self.seed, "step", batches_done, self.world.rank))
