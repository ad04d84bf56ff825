"""K-FAC within the blocks of the ADMM solver."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Optimizer

from scadl_core.admm.block import Block
from scadl_core.comm import World
from scadl_core.optim import KFAC

_DAMPING, _KL_CLIP = 1e-2, 1e-3  # of a loss; a coupled block has rho times the squared distance


class LocalKFAC:
    """Puts K-FAC around the optimizer of a block; ranks share no factors, since none shares a
    block.

    The last block has the gradients of the loss, so its matrix is the empirical Fisher's. One that
    is coupled to the next knows its likelihood, a Gaussian's, and its gradients vanish with the
    distance to the target: from those no curvature could be seen, so it is sampled.
    """

    def __init__(self) -> None:
        self._made: dict[int, KFAC] = {}

    @property
    def inversions(self) -> int:
        """Of factors, in the blocks that were made here."""
        return sum(int(it.report()["refreshed"]) for it in self._made.values())

    def __call__(self, block: Block, inner: Optimizer) -> KFAC:
        """The optimizer of a block, in the place of an earlier one of it."""
        if block.index in self._made:
            self._made.pop(block.index).close()

        def scale(_: int) -> float:
            return 1.0 if block.is_last else block.penalty

        parts = [part for part in (block.module, block.head) if part is not None]
        optimizer = self._made[block.index] = KFAC(
            nn.ModuleList(parts),
            inner,
            damping=lambda step: _DAMPING * scale(step),
            kl_clip=lambda step: _KL_CLIP * scale(step),
            factor_period=5,
            fisher="empirical" if block.is_last else "sampled",
            scaler=_SumOverBatch(block),
            world=World(),
        )
        return optimizer


class _SumOverBatch:
    """How many times the mean the loss is of which K-FAC sees the gradients: a rule's objective is
    a sum over samples.
    """

    def __init__(self, block: Block) -> None:
        self.block = block

    def scale(self, value: Tensor) -> Tensor:
        """As :meth:`torch.amp.GradScaler.scale`."""
        return value * self.block.facts["samples"]
