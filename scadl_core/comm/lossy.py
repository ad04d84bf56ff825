"""What exchanges have in common that lose something, and send it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from scadl_core.comm.gradients import Queued
from scadl_core.comm.memory import Memory
from scadl_core.comm.world import World


class Lossy(Queued):
    """Base of exchanges with error feedback; see :class:`scadl_core.comm.memory.Memory`.

    Args:
        world: The processes of the run.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.memory = Memory()
        self.numbers: dict[str, int] = {}

    def attach(self, model: DistributedDataParallel) -> None:
        """Takes over the exchange of a model; before its first backward pass, on every rank."""
        super().attach(model)
        self.numbers = {name: number for number, name in enumerate(self.names.values())}

    def names_of(self, bucket: GradBucket) -> list[str]:
        """Of the parameters of a bucket, as they lie in it."""
        return [self.names[parameter] for parameter in bucket.parameters()]

    def pieces_of(self, bucket: GradBucket) -> list[Tensor]:
        """Views of the flat tensor, one a parameter, flat."""
        sizes = [parameter.numel() for parameter in bucket.parameters()]
        return list(bucket.buffer().split(sizes))

    def with_errors(self, names: Sequence[str], gradients: Sequence[Tensor]) -> list[Tensor]:
        """What this rank has to tell: its gradients and what was not sent before.

        Args:
            names: Of the parameters.
            gradients: Flat, of any floating dtype; float16 and bfloat16 become float32.
        """
        self.memory.rescale(self.loss_scale)
        found = []
        for name, gradient in zip(names, gradients, strict=True):
            value = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
            error = self.memory.get("error", name, value)
            found.append(value.clone() if error is None else value + error)
        return found

    def remember(self, names: Sequence[str], errors: Sequence[Tensor], bucket: GradBucket) -> None:
        """Ends a bucket, in whose flat tensor the averages now are.

        Args:
            names: Of the parameters.
            errors: What remains to be sent of each.
            bucket: The bucket.
        """
        for name, error in zip(names, errors, strict=True):
            self.memory.put("error", name, error)
        self.memory.end_bucket(bucket.buffer(), bucket.is_last())

    def state_dict(self) -> dict[str, Any]:
        """What this rank has to remember: plain values and tensors on the CPU."""
        return self.memory.state_dict()

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Goes on from what all ranks remembered, also where there were more or fewer of them."""
        self.memory.load_state_dicts(states, self.world.rank, self.world.size)
