"""Batches that stay the same from epoch to epoch, since variables belong to their samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scadl_core.admm.block import Visit
from scadl_core.errors import ConfigError


@dataclass(frozen=True)
class Data:
    """Samples in memory.

    Attributes:
        inputs: Shape (N, ...).
        targets: Shape (N, ...).
        batches: Indices of the samples of each batch; the first is the largest.
        seed: Of the order in which batches are visited.
    """

    inputs: Tensor
    targets: Tensor
    batches: tuple[Tensor, ...]
    seed: int = 0

    @classmethod
    def of(
        cls, inputs: Tensor, targets: Tensor, batch_size: int | None = None, seed: int = 0
    ) -> Data:
        """Cuts samples into batches once.

        Args:
            inputs: Shape (N, ...).
            targets: Shape (N, ...).
            batch_size: None: all in one. The last, smaller batch is kept.
            seed: Of the cut and of the order of visits.

        Raises:
            ConfigError: Not as many targets as inputs, or a batch size below 1.
        """
        count = len(inputs)
        if len(targets) != count:
            raise ConfigError(f"ADMM: {count} inputs but {len(targets)} targets")
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"ADMM: batch_size: expected 1 or more, got {batch_size}")
        if batch_size is None or batch_size >= count:
            return cls(inputs, targets, (torch.arange(count),), seed)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        return cls(inputs, targets, torch.split(order, batch_size), seed)

    def visit(self, batch: int) -> Visit:
        """A batch by its number."""
        if len(self.batches) == 1:
            return Visit(batch, self.inputs, self.targets)
        samples = self.batches[batch]
        return Visit(batch, self.inputs[samples], self.targets[samples])

    def visits(self, first: int = 0) -> Iterator[Visit]:
        """Without end, every epoch in an order of its own; the first epoch in that of the batches.

        Args:
            first: How many visits are done, when a stopped training goes on.
        """
        count = len(self.batches)
        while True:
            epoch, at = divmod(first, count)
            yield self.visit(order(count, self.seed, epoch)[at])
            first += 1


def order(count: int, seed: int, epoch: int) -> list[Any]:
    """The order in which an epoch visits its batches."""
    if epoch == 0 or count == 1:
        return list(range(count))
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(count, generator=generator).tolist()
