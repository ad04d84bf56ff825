"""The exchange of gradients in data-parallel training, counted.

Annotations are objects here, not texts: DistributedDataParallel compares them.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from scadl_core.comm.world import World


def counted_average(world: World, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages one bucket of gradients over ranks, as DistributedDataParallel does by itself, and
    counts its bytes.

    Args:
        world: Whose traffic is counted; the state of
            ``DistributedDataParallel.register_comm_hook``.
        bucket: Gradients in one flat tensor, on the device of the model.

    Returns:
        A future of the averaged flat tensor.
    """
    world.traffic.count(bucket.buffer())
    group = dist.group.WORLD
    assert group is not None, "gradients are exchanged in a process group"
    return allreduce_hook(group, bucket)
