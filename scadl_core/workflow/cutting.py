"""A pipeline's task as an ADMM problem: its network cut into blocks, its loss as a function of the
network's output, its samples in batches that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from scadl_core.admm.balance import partition
from scadl_core.admm.problem import cut
from scadl_core.comm import World
from scadl_core.errors import ConfigError
from scadl_core.workflow.loaders import Draw, Drawn, ShardedBatches
from scadl_core.workflow.seeds import generator
from scadl_core.workflow.task import Task


def cut_network(network: nn.Module, blocks: int) -> list[nn.Module]:
    """Cuts a network into consecutive blocks, with about as many parameters each.

    Args:
        network: A Sequential, or one whose ``stages()`` gives modules of which it is the
            composition; they may take and give tuples of tensors of shape (B, ...), and what one
            gives has the same shape in every batch.
        blocks: How many.

    Raises:
        ConfigError: It does not say how it can be cut, or not into so many.
    """
    if isinstance(network, nn.Sequential):
        return list(cut(network, blocks))
    chain: Any = getattr(network, "stages", list)
    stages: list[nn.Module] = list(chain())
    if not stages:
        raise ConfigError(
            f"solver=admm: {type(network).__name__} does not say how it can be cut; give it a "
            "method stages() that returns a list of modules whose composition it is, or choose a "
            "model that is an nn.Sequential"
        )
    if not 1 <= blocks <= len(stages):
        raise ConfigError(
            f"solver.blocks: expected 1 to {len(stages)} (stages of {type(network).__name__}), "
            f"got {blocks}"
        )
    costs = [float(sum(p.numel() for p in stage.parameters())) for stage in stages]
    parts = partition([cost + 1 for cost in costs], blocks)
    return [nn.Sequential(*(stages[index] for index in part)) for part in parts]


class _CaughtError(Exception):
    """A network was called: with what."""


class TaskLoss:
    """What a task's network is given, and the loss of what it gives, for any task.

    The task's own training step runs with another ``forward`` in the place of the network's, alone
    in its world.

    Args:
        task: Whose loss is a mean over the batch.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def inputs(self, batch: Any) -> Any:
        """What the network is called with: a tensor, or a tuple of several."""

        def caught(*values: Any) -> None:
            raise _CaughtError(*values)

        with self._instead(caught):
            try:
                self.task.training_step(batch, 0)
            except _CaughtError as error:
                return error.args if len(error.args) > 1 else error.args[0]
        raise ConfigError("solver=admm: the task's training step does not call its network")

    def __call__(self, output: Tensor, batch: Any) -> Tensor:
        """The sum over samples of the loss of an output."""
        with self._instead(lambda *_: output):
            loss: Any = self.task.training_step(batch, 0)
        total: Tensor = loss * len(output)
        return total

    @contextmanager
    def _instead(self, forward: Callable[..., Any]) -> Iterator[None]:
        task: Any = self.task
        world, network = task.world, task.network
        try:
            task.world, network.forward = World(), forward
            task.log = task.log_dict = lambda *_, **__: None
            yield
        finally:
            task.world = world
            del network.forward, task.log, task.log_dict


class FixedBatches(ShardedBatches):
    """Batches of the same samples in every epoch, in an order of the epoch's, on every rank.

    Variables belong to samples, so these are read as they are, without augmentation.
    """

    def __iter__(self) -> Iterator[list[Draw]]:
        assert self.seed is not None, "only training has fixed batches"
        samples = generator(self.seed, "order", 0).permutation(self.num_samples).tolist()
        first, self.first_batch = self.first_batch, 0
        for position in range(first, len(self)):
            start = self.number(self.epoch, position) * self.batch_size
            yield [Draw(0, index) for index in samples[start : start + self.batch_size]]

    def number(self, epoch: int, position: int) -> int:
        """Which batch comes at a position of an epoch."""
        assert self.seed is not None, "only training has fixed batches"
        return int(generator(self.seed, "batches", epoch).permutation(len(self))[position])


def with_fixed_batches(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A training loader whose every rank reads the whole of each batch."""
    drawn, sharded = loader.dataset, loader.batch_sampler
    assert isinstance(drawn, Drawn) and isinstance(sharded, ShardedBatches)
    fixed = FixedBatches(sharded.num_samples, sharded.batch_size, World(), sharded.seed)
    return DataLoader(
        Drawn(drawn.samples, None),
        batch_sampler=fixed,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        persistent_workers=loader.num_workers > 0,
    )
