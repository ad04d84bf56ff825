"""ParticleNet (Qu and Gouskos 2020, arXiv:1902.08570): convolutions over nearest neighbours.

Neighbours that fill up the batch are left out of every mean, and normalisation is of each
constituent alone, so that neither padding nor the other rows of a batch have an effect; there the
published network has batch normalisation.

Suffixes: B batch, P constituent, N neighbour, C channel, D coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scadl_core.errors import ConfigError, check_whole

FAR = 1e9


class ParticleNet(nn.Module):
    """Classifies sets of points.

    Args:
        num_particles: Features of a constituent.
        num_flat: Features of a row, joined after the pooling.
        num_points: Coordinates in which the first neighbours are looked for; later ones are in the
            space of features.
        num_vectors: Not used.
        num_classes: Logits that it gives.
        widths: Channels of each block.
        neighbours: How many of each constituent.
        head: Channels of the last hidden layer.
    """

    def __init__(
        self, num_particles: int, num_flat: int, num_points: int, num_vectors: int,
        num_classes: int, widths: Sequence[int] = (32, 64), neighbours: int = 8, head: int = 64,
    ) -> None:  # fmt: skip
        super().__init__()
        if not num_particles or not num_points:
            raise ConfigError(
                "model: ParticleNet needs data.inputs.particles and data.constituents.points"
            )
        for name, size in (("neighbours", neighbours), ("head", head)):
            check_whole(f"model.{name}", size)
        if isinstance(widths, str) or not widths:
            raise ConfigError(f"model.widths: expected one or more numbers, got {widths!r}")
        for number, width in enumerate(widths):
            check_whole(f"model.widths[{number}]", width)
        self.first = nn.LayerNorm(num_particles)
        pairs = zip([num_particles, *widths], widths, strict=False)
        self.blocks = nn.ModuleList(EdgeConv(*pair, neighbours) for pair in pairs)
        self.head = nn.Sequential(
            nn.Linear(sum(widths) + num_flat, head), nn.ReLU(), nn.Linear(head, num_classes)
        )

    def forward(
        self, features_BPF: Tensor, mask_BP: Tensor, points_BPD: Tensor, vectors_BPD: Tensor,
        flat_BG: Tensor,
    ) -> Tensor:  # fmt: skip
        """Logits, shape (B, K)."""
        hidden_BPC, place_BPD, found = self.first(features_BPF), points_BPD, []
        for block in self.blocks:
            hidden_BPC = block(hidden_BPC, place_BPD, mask_BP)
            place_BPD = hidden_BPC
            found.append(hidden_BPC)
        there_BP1 = mask_BP[..., None].to(features_BPF.dtype)
        total_BC = (torch.cat(found, -1) * there_BP1).sum(1)
        mean_BC = total_BC / there_BP1.sum(1).clamp_min(1)
        return self.head(torch.cat([mean_BC, flat_BG], 1))


class EdgeConv(nn.Module):
    """A convolution over the nearest neighbours (Wang et al. 2019, arXiv:1801.07829).

    The first layer, of (x_i, x_j - x_i), is linear, so it is applied to each constituent once, not
    to each pair.
    """

    def __init__(self, before: int, width: int, neighbours: int) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.own, self.other = nn.Linear(before, width), nn.Linear(before, width, bias=False)
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, width)
        self.skip, self.out = nn.Linear(before, width), nn.LayerNorm(width)

    def forward(self, hidden_BPC: Tensor, place_BPD: Tensor, mask_BP: Tensor) -> Tensor:
        """Shape (B, P, width)."""
        index_BPN, there_BPN = nearest(place_BPD, mask_BP, self.neighbours)
        batch, count, _ = index_BPN.shape
        rows = torch.arange(batch, device=index_BPN.device)[:, None, None] * count
        other_BPNC = self.other(hidden_BPC).flatten(0, 1)[index_BPN + rows]
        edge_BPNC = self.norm(self.own(hidden_BPC)[:, :, None] + other_BPNC).relu()
        there_BPN1 = there_BPN[..., None].to(edge_BPNC.dtype)
        total_BPC = (self.last(edge_BPNC).relu() * there_BPN1).sum(2)
        mean_BPC = total_BPC / there_BPN1.sum(2).clamp_min(1)
        return self.out(self.skip(hidden_BPC) + mean_BPC).relu()


def nearest(place_BPD: Tensor, mask_BP: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
    """Numbers of the nearest other constituents, shape (B, P, N), and whether they are there."""
    squares_BP = place_BPD.square().sum(2)
    products_BPP = place_BPD @ place_BPD.transpose(1, 2)
    away_BPP = squares_BP[:, :, None] + squares_BP[:, None] - 2 * products_BPP
    itself = torch.eye(place_BPD.shape[1], dtype=torch.bool, device=mask_BP.device)
    away_BPP = away_BPP.masked_fill(~mask_BP[:, None] | itself, FAR)
    away_BPN, index_BPN = away_BPP.topk(min(neighbours, away_BPP.shape[2]), 2, largest=False)
    return index_BPN, away_BPN < FAR / 2
