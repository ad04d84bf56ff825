"""The networks: deep sets, and from files beside this one ParticleNet and Particle Transformer.

All see a set: the order of constituents does not matter, and what fills up a batch has no effect.

Suffixes: B batch, P constituent, F feature, D coordinate, G feature of a row, C channel, K class.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from apps.hep.particlenet import ParticleNet as ParticleNet
from apps.hep.transformer import ParticleTransformer as ParticleTransformer
from scadl_core.errors import check_whole

SCALE = 10.0  # divides sums over constituents, of which there are some tens


class DeepSets(nn.Module):
    """Particle Flow Network: a sum over constituents between two networks.

    Komiske, Metodiev and Thaler 2019, arXiv:1810.05165; Zaheer et al. 2017, arXiv:1703.06114. The
    features of the row itself enter as one more constituent. ``blocks`` is a chain: each takes one
    tensor and gives one, so any cut of it makes two networks.

    Args:
        num_particles: Features of a constituent.
        num_flat: Features of a row.
        num_points: Not used, as are
        num_vectors: these.
        num_classes: Logits that it gives.
        width: Channels of every layer.
        depth: Layers before the sum.
        head: Layers after it, without the last.
    """

    def __init__(
        self, num_particles: int, num_flat: int, num_points: int, num_vectors: int,
        num_classes: int, width: int = 64, depth: int = 3, head: int = 2,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, size in (("width", width), ("depth", depth), ("head", head)):
            check_whole(f"model.{name}", size, most=None if name == "width" else 1000)
        widths = [num_particles + num_flat, *[width] * depth]
        each = [Each(before, after) for before, after in pairwise(widths)]
        after = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(head)]
        self.blocks = nn.Sequential(*each, Sum(), *after, nn.Linear(width, num_classes))

    def forward(
        self, features_BPF: Tensor, mask_BP: Tensor, points_BPD: Tensor, vectors_BPD: Tensor,
        flat_BG: Tensor,
    ) -> Tensor:  # fmt: skip
        """Logits, shape (B, K)."""
        return self.blocks(self.join(features_BPF, mask_BP, flat_BG))

    def stages(self) -> list[nn.Module]:
        """The same as a chain, whose first part ends with the sum: from there on, what is sent
        does not depend on how many constituents a batch has.
        """
        last = next(n for n, it in enumerate(self.blocks) if isinstance(it, Sum))
        return [Constituents(self.blocks[: last + 1]), *self.blocks[last + 1 :]]

    @staticmethod
    def join(features_BPF: Tensor, mask_BP: Tensor, flat_BG: Tensor) -> Tensor:
        """The one tensor that the blocks take: features of constituents, then of rows, the mask
        last; shape (B, P + 1, F + G + 1), or without the row itself where it has no features.
        """
        mask_BP1 = mask_BP[..., None].to(features_BPF.dtype)
        zeros_BPG = features_BPF.new_zeros((*mask_BP.shape, flat_BG.shape[1]))
        joined = torch.cat([features_BPF, zeros_BPG, mask_BP1], 2)
        if not flat_BG.shape[1]:
            return joined
        zeros_BF = flat_BG.new_zeros((flat_BG.shape[0], features_BPF.shape[2]))
        row_BC = torch.cat([zeros_BF, flat_BG, torch.ones_like(flat_BG[:, :1])], 1)
        return torch.cat([joined, row_BC[:, None]], 1)


class Constituents(nn.Module):
    """The first stage: of constituents, to their sum."""

    def __init__(self, blocks: nn.Sequential) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Shape (B, C), of what the network is called with."""
        features_BPF, mask_BP, _, _, flat_BG = inputs
        return self.blocks(DeepSets.join(features_BPF, mask_BP, flat_BG))


class Each(nn.Module):
    """A layer on every constituent alone; hands the mask on."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = nn.Linear(before, after)

    def forward(self, state_BPC: Tensor) -> Tensor:
        """Shape (B, P, C + 1), the mask last, before and after."""
        hidden = self.linear(state_BPC[..., :-1]).relu()
        return torch.cat([hidden, state_BPC[..., -1:]], -1)


class Sum(nn.Module):
    """The sum over constituents that are there."""

    def forward(self, state_BPC: Tensor) -> Tensor:
        """Shape (B, C) of (B, P, C + 1)."""
        return (state_BPC[..., :-1] * state_BPC[..., -1:]).sum(1) / SCALE
