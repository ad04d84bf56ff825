"""The exchange of gradients in data-parallel training: exact, or in bfloat16; and its count.

Annotations of the hook are objects here, not texts: DistributedDataParallel compares them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
)
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from scadl_core.comm.world import World


class GradientExchange:
    """Averages gradients over ranks as DistributedDataParallel does by itself, and counts them.

    Laws of every exchange: all ranks get the same values; a NaN or an infinity on any rank is
    none the less on all ranks afterwards, so that a gradient scaler skips the step everywhere.

    Args:
        world: The processes of the run.

    Attributes:
        sent_bytes: What this rank has handed to collectives; also in ``world.traffic``.
        plain_bytes: What an exchange of the gradients as they are would have handed over.
        loss_scale: By which the loss, and so every gradient, is multiplied at present; a gradient
            scaler changes it.
        message_bound: Relative error of what ranks send of activations, where a solver sends such;
            None where the exchange says nothing of these.
    """

    message_bound: float | None = None

    def __init__(self, world: World) -> None:
        self.world, self.loss_scale = world, 1.0
        self.sent_bytes = self.plain_bytes = 0
        self.names: dict[Tensor, str] = {}

    def attach(self, model: DistributedDataParallel) -> None:
        """Takes over the exchange of a model; before its first backward pass, on every rank."""
        self.names = {parameter: name for name, parameter in model.module.named_parameters()}
        model.register_comm_hook(self, exchange_hook)

    def start(self, bucket: GradBucket) -> Future[Tensor]:
        """Begins to average one bucket.

        Args:
            bucket: Gradients in one flat tensor, on the device of the model.

        Returns:
            A future of the averaged flat tensor.
        """
        self.count(bucket.buffer().nbytes)
        return allreduce_hook(_everyone(), bucket)

    def count(self, num_bytes: int) -> None:
        """Counts what is handed to a collective."""
        self.sent_bytes += num_bytes
        self.world.traffic.sent_bytes += num_bytes

    def close(self) -> None:
        """Ends what the exchange started; nothing may be under way."""

    def state_dict(self) -> dict[str, Any]:
        """What this rank has to remember: plain values and tensors on the CPU."""
        return {}

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Goes on from what all ranks remembered, also where there were more or fewer of them."""


def exchange_hook(exchange: GradientExchange, bucket: GradBucket) -> Future[torch.Tensor]:
    """The hook of DistributedDataParallel; see :meth:`GradientExchange.start`."""
    exchange.plain_bytes += bucket.buffer().nbytes
    return exchange.start(bucket)


class Bfloat16(GradientExchange):
    """Averages in bfloat16: half of the bytes of float32, 8 bits of precision."""

    def start(self, bucket: GradBucket) -> Future[Tensor]:
        """Begins to average one bucket."""
        self.count(bucket.buffer().numel() * torch.bfloat16.itemsize)
        return bf16_compress_hook(_everyone(), bucket)


class Queued(GradientExchange, ABC):
    """Base of exchanges that need several messages a bucket.

    A thread takes one bucket after the other, in the order in which the backward pass completes
    them, which is the same on every rank; started from the callbacks of futures, the messages of
    two buckets would cross. The group is its own: other messages are on their way meanwhile.
    """

    def attach(self, model: DistributedDataParallel) -> None:
        """Takes over the exchange of a model; before its first backward pass, on every rank."""
        super().attach(model)
        self.group: Any = dist.new_group()
        self._thread = ThreadPoolExecutor(1, "gradients")

    def start(self, bucket: GradBucket) -> Future[Tensor]:
        """Begins to average one bucket; on a GPU, in the order of its stream, does it."""
        flat = bucket.buffer()
        if flat.is_cuda:
            done: Future[Tensor] = Future(devices=[flat.device])
            done.set_result(self.average(bucket))
            return done
        future: Future[Tensor] = Future()
        self._thread.submit(self._answer, bucket, future)
        return future

    def _answer(self, bucket: GradBucket, future: Future[Tensor]) -> None:
        try:
            future.set_result(self.average(bucket))
        except Exception as error:  # the backward pass raises it
            future.set_exception(error)  # type: ignore[arg-type]  # annotated wrongly there

    @abstractmethod
    def average(self, bucket: GradBucket) -> Tensor:
        """The averaged flat tensor of a bucket."""

    def close(self) -> None:
        """Ends the thread."""
        if hasattr(self, "_thread"):
            self._thread.shutdown()


def _everyone() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None, "gradients are exchanged in a process group"
    return group
