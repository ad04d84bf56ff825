"""Batches: which samples, in which order, on which rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, default_collate

from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError
from scadl_core.workflow.contracts import Batches, Samples
from scadl_core.workflow.seeds import derive, generator


class Draw(NamedTuple):
    """One reading of one sample; augmentation may differ from epoch to epoch."""

    epoch: int
    sample: int


class Drawn(Dataset[dict[str, Any]]):
    """Reads samples; in training each reading has its own random generator, whatever process does
    it.

    Args:
        samples: What the app's source offers for one split.
        seed: The seed of the run, or None to read the samples as they are.
    """

    def __init__(self, samples: Samples, seed: int | None) -> None:
        self.samples = samples
        self.seed = seed

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        rng = None if self.seed is None else generator(self.seed, "sample", draw.epoch, draw.sample)
        return self.samples.read(draw.sample, rng)

    def __getitems__(self, draws: list[Draw]) -> Any:
        """A whole batch, as PyTorch asks for it: made by the samples themselves where they can."""
        if not isinstance(self.samples, Batches):
            return [self[draw] for draw in draws]
        key = None if self.seed is None else derive(self.seed, "batch", draws[0].epoch)
        return self.samples.batch([draw.sample for draw in draws], key)


def collate(found: Any) -> Any:
    """Tensors, of a list of samples or of a batch of arrays; any other batch as it is."""
    if isinstance(found, list):
        return default_collate(found)
    if isinstance(found, dict):
        arrays = {name: it for name, it in found.items() if isinstance(it, np.ndarray)}
        return found | {name: torch.from_numpy(values) for name, values in arrays.items()}
    return found


class ShardedBatches:
    """The batches of one rank, one list of draws a batch.

    A global batch is cut over ranks, so that its content does not depend on how many there are. In
    training the order is a function of (seed, epoch) and a last, smaller batch is left out; in
    evaluation every sample is read once.

    Args:
        num_samples: Samples in the split.
        batch_size: Samples a batch over all ranks together.
        world: Who takes which share.
        seed: The seed of the run; None for evaluation.
        shuffled: Gives an order of all samples, in evaluation too, where it is always the same;
            None: any in training, theirs in evaluation.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        world: World,
        seed: int | None,
        shuffled: Callable[[np.random.Generator], NDArray[np.int64]] | None = None,
    ) -> None:
        self.num_samples = num_samples
        self.shuffled = shuffled
        self.batch_size = max(world.size, min(batch_size, num_samples))
        self.world = world
        self.seed = seed
        self.epoch = 0
        self.first_batch = 0

    @property
    def sampler(self) -> ShardedBatches:
        """Itself: Lightning tells the epoch to the sampler of a batch sampler, not to the batch
        sampler.
        """
        return self

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch

    def start_at(self, epoch: int, batch: int) -> None:
        """Makes the next iteration begin inside an epoch, as when a stopped run goes on.

        Args:
            epoch: The epoch, from 0.
            batch: How many of its batches are done.
        """
        self.epoch, self.first_batch = epoch, batch

    def __len__(self) -> int:
        full, rest = divmod(self.num_samples, self.batch_size)
        return full if self.seed is not None else full + (self.world.rank < rest)

    @property
    def common(self) -> int:
        """How many batches every rank has; only during these may ranks wait for one another."""
        full, rest = divmod(self.num_samples, self.batch_size)
        return full if self.seed is not None else full + (rest >= self.world.size)

    def _order(self) -> NDArray[np.int64]:
        if self.seed is None:
            evaluation = generator(0, "evaluation")
            return self.shuffled(evaluation) if self.shuffled else np.arange(self.num_samples)
        epoch = generator(self.seed, "order", self.epoch)
        return self.shuffled(epoch) if self.shuffled else epoch.permutation(self.num_samples)

    def __iter__(self) -> Iterator[list[Draw]]:
        order = self._order()
        first, self.first_batch = self.first_batch, 0
        for number in range(first, len(self)):
            batch = order[number * self.batch_size : (number + 1) * self.batch_size]
            share = batch[self.world.rank :: self.world.size].tolist()
            yield [Draw(self.epoch, index) for index in share]


class Loaders:
    """Makes the loaders of a run.

    Args:
        batch_size: Samples a batch over all ranks together.
        workers: Reading processes a rank; 0 reads in the training process.
        seed: The seed of the run.
        world: The processes that share each batch.

    Raises:
        ConfigError: A batch that cannot be shared by the ranks, or a negative number of workers.
    """

    def __init__(self, batch_size: int, workers: int, seed: int, world: World) -> None:
        if batch_size < world.size:
            raise ConfigError(
                f"loader.batch_size: expected at least one sample a rank ({world.size} ranks), "
                f"got {batch_size}"
            )
        if workers < 0:
            raise ConfigError(f"loader.workers: expected 0 or more, got {workers}")
        self.batch_size, self.workers, self.seed, self.world = batch_size, workers, seed, world

    def training(self, samples: Samples) -> DataLoader[dict[str, Any]]:
        """Shuffled, augmented, without the last partial batch."""
        if len(samples) < self.world.size:
            raise DataError(
                f"the training split has {len(samples)} samples for {self.world.size} ranks; "
                "start fewer ranks or widen data.split"
            )
        return self._loader(samples, self.seed)

    def evaluation(self, samples: Samples) -> DataLoader[dict[str, Any]]:
        """As they are, every sample once, in an order that is always the same.

        Raises:
            DataError: Fewer samples than ranks: one without any would not come to the collectives
                at the end of an epoch.
        """
        if len(samples) < self.world.size:
            raise DataError(
                f"a split that is evaluated has {len(samples)} samples for {self.world.size} "
                "ranks; start fewer ranks or widen data.split"
            )
        return self._loader(samples, None)

    def _loader(self, samples: Samples, seed: int | None) -> DataLoader[dict[str, Any]]:
        shuffled = getattr(samples, "order", None)
        batches = ShardedBatches(len(samples), self.batch_size, self.world, seed, shuffled)
        return DataLoader(
            Drawn(samples, seed),
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
        )
