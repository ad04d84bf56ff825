"""PyTorch's PowerSGD (Vogels, Karimireddy and Jaggi 2019), with a state that can be saved.

PyTorch keeps errors and factors by the number of a bucket, of which there are others after the
first step of every run. Here they are taken apart by parameter after each bucket, and put together
again before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel

from scadl_core.comm.lossy import Lossy
from scadl_core.comm.world import World
from scadl_core.errors import ConfigError


class PowerSGD(Lossy):
    """Averages gradients as products of two thin matrices, with error feedback and warm start.

    Vectors, and matrices that would not become half as large, are averaged as they are.

    Args:
        world: The processes of the run.
        rank: Of the products.
        start: Steps that are exact before; at least 2.

    Raises:
        ConfigError: A number outside of its range.
    """

    def __init__(self, world: World, rank: int = 2, start: int = 20) -> None:
        super().__init__(world)
        if rank < 1:
            raise ConfigError(f"comm.rank: expected at least 1, got {rank!r}")
        if start < 2:
            raise ConfigError(
                f"comm.start: expected at least 2 (buckets change after the first step), got "
                f"{start!r}"
            )
        self.rank, self.begins, self._steps = rank, start, 0

    def attach(self, model: DistributedDataParallel) -> None:
        """Takes over the exchange of a model; before its first backward pass, on every rank."""
        scalars = [name for name, p in model.module.named_parameters() if p.dim() == 0]
        if scalars:
            raise ConfigError(
                f"comm=powersgd: PyTorch's PowerSGD takes no parameter without dimensions, which "
                f"{scalars[0]} is; give it the shape (1,), or choose comm=compressed"
            )
        super().attach(model)
        self.state = PowerSGDState(self.group, self.rank, self.begins)
        self.state.iter = self._steps

    def average(self, bucket: GradBucket) -> Tensor:
        """The averaged flat tensor of a bucket, the same on every rank."""
        flat, names, state = bucket.buffer(), self.names_of(bucket), self.state
        if state.iter < state.start_powerSGD_iter:
            self.count(flat.nbytes)
            return powerSGD_hook(state, bucket).wait()
        self.memory.rescale(self.loss_scale)
        known = (state.error_dict, state.p_memory_dict, state.q_memory_dict)
        sizes = self._sizes(bucket)
        for kind, place in zip(("error", "p", "q"), known, strict=True):
            place.pop(bucket.index(), None)
            parts = [self.memory.get(kind, names[k], flat) for k in sizes[kind]]
            if parts and all(part is not None for part in parts):
                place[bucket.index()] = torch.cat(parts)  # type: ignore[arg-type]
        before = state.total_numel_after_compression
        powerSGD_hook(state, bucket).wait()
        self.count((state.total_numel_after_compression - before) * flat.itemsize)
        for kind, place in zip(("error", "p", "q"), known, strict=True):
            pieces = place[bucket.index()].split(list(sizes[kind].values()))
            for k, piece in zip(sizes[kind], pieces, strict=True):
                self.memory.put(kind, names[k], piece.clone())
        self.memory.end_bucket(flat, bucket.is_last())
        return flat

    def _sizes(self, bucket: GradBucket) -> dict[str, dict[int, int]]:
        """Elements of errors, and of the two factors where there are any, by parameter in the
        order in which PyTorch lays them out: parameters of one shape are together.
        """
        gradients = bucket.gradients()
        by_shape: dict[tuple[int, int], list[int]] = {}
        for k, gradient in enumerate(gradients):
            rows, columns = gradient.shape[0], gradient[0].numel()
            rank = min(rows, columns, self.rank)
            if (rows + columns) * rank * self.state.min_compression_rate < rows * columns:
                by_shape.setdefault((rows, columns), []).append(k)
        order = [(k, shape) for shape, ks in by_shape.items() for k in ks]
        return {
            "error": {k: gradient.numel() for k, gradient in enumerate(gradients)},
            "p": {k: rows * min(rows, columns, self.rank) for k, (rows, columns) in order},
            "q": {k: columns * min(rows, columns, self.rank) for k, (rows, columns) in order},
        }

    def state_dict(self) -> dict[str, Any]:
        """What this rank has to remember: plain values and tensors on the CPU."""
        steps = self.state.iter if hasattr(self, "state") else self._steps
        return {**super().state_dict(), "steps": steps}

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Goes on from what all ranks remembered, also where there were more or fewer of them."""
        super().load_state_dicts(states)
        self._steps = states[0]["steps"]
