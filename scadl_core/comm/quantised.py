"""Gradients averaged as small integers on a scale that all ranks share, which can be added up on
the way.

One reduction before tells the largest magnitude of each parameter over all ranks; the integers
then are so small that their sum fits, and the reduction of the library does the rest.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket

from scadl_core.comm.lossy import Lossy
from scadl_core.comm.world import World

_FEWEST = 7  # levels on either side of zero; with fewer, 16 bits are used


class Quantised(Lossy):
    """Averages gradients in 8 bits (16 where many ranks leave few levels), with error feedback.

    An element is sent with an error of at most ``max |x| / (2 levels)`` over the elements of its
    parameter on all ranks, where ``levels`` is 127 over the number of ranks, rounded down.

    Args:
        world: The processes of the run.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        narrow = 127 // world.size
        self.dtype = torch.int8 if narrow >= _FEWEST else torch.int16
        self.levels = narrow if narrow >= _FEWEST else 32767 // world.size

    def average(self, bucket: GradBucket) -> Tensor:
        """The averaged flat tensor of a bucket, the same on every rank."""
        names, gradients = self.names_of(bucket), self.pieces_of(bucket)
        values = self.with_errors(names, gradients)
        # A NaN has no place in a maximum.
        largest_K = torch.stack([v.abs().amax().nan_to_num(torch.inf, torch.inf) for v in values])
        self._reduce(largest_K, dist.ReduceOp.MAX)
        scale_K = largest_K / self.levels
        scale_N = torch.repeat_interleave(
            scale_K, torch.tensor([len(v) for v in values], device=scale_K.device)
        )
        value_N = torch.cat(values)
        steps_N = (value_N / scale_N).nan_to_num(0, 0, 0).round()
        code_N = steps_N.clamp(-self.levels, self.levels).to(self.dtype)
        error_N = value_N - code_N * scale_N
        self._reduce(code_N, dist.ReduceOp.SUM)
        # Where the largest is infinite, this is 0 * infinity on every rank: NaN.
        bucket.buffer().copy_(code_N * (scale_N / self.world.size))
        self.remember(names, error_N.split([len(v) for v in values]), bucket)
        return bucket.buffer()

    def _reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
        self.count(values.nbytes)
        dist.all_reduce(values, operation, group=self.group)
