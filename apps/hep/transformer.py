"""Particle Transformer (Qu, Li and Qian 2022, arXiv:2202.03772): attention between constituents,
biased by what pairs of momenta have in common.

Attention goes through torch's fused kernels, which do not keep the matrix of weights. Layer
normalisation stands where the published network has that of a batch.

Suffixes: B batch, P constituent, T pair of them, C channel, H head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.errors import ConfigError, check_whole

SMALLEST = 1e-8
PAIRS = 4  # ln of distance, of transverse momentum and its share, of mass squared
PAIR_CENTRE, PAIR_WIDTH = (-1.5, 0.0, -2.0, 2.0), (1.5, 2.0, 1.5, 3.0)  # of jets, about


class ParticleTransformer(nn.Module):
    """Classifies sets of momenta.

    Args:
        num_particles: Features of a constituent.
        num_flat: Features of a row, joined to the class token's.
        num_points: Not used.
        num_vectors: Four: px, py, pz, energy.
        num_classes: Logits that it gives.
        width: Channels.
        heads: Of attention.
        layers: Blocks of attention between constituents.
        pair_width: Channels of the layer that makes biases of pairs.
    """

    def __init__(
        self, num_particles: int, num_flat: int, num_points: int, num_vectors: int,
        num_classes: int, width: int = 64, heads: int = 4, layers: int = 3, pair_width: int = 16,
    ) -> None:  # fmt: skip
        super().__init__()
        if not num_particles or num_vectors != 4:
            raise ConfigError(
                "model: ParticleTransformer needs data.inputs.particles and "
                "data.constituents.vectors"
            )
        sizes = {"width": width, "heads": heads, "layers": layers, "pair_width": pair_width}
        for name, size in sizes.items():
            check_whole(f"model.{name}", size, most=1000 if name == "layers" else None)
        if width % heads:
            raise ConfigError(f"model.width={width} must be a multiple of model.heads={heads}")
        self.embed = nn.Sequential(
            nn.Linear(num_particles, width), nn.GELU(), nn.Linear(width, width)
        )
        self.pairs = nn.Sequential(
            nn.Linear(PAIRS, pair_width), nn.GELU(), nn.Linear(pair_width, heads)
        )
        self.blocks = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.read = Attention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width + num_flat, num_classes)

    def forward(
        self, features_BPF: Tensor, mask_BP: Tensor, points_BPD: Tensor, vectors_BPD: Tensor,
        flat_BG: Tensor,
    ) -> Tensor:  # fmt: skip
        """Logits, shape (B, K)."""
        hidden_BPC = self.embed(features_BPF)
        open_BP = torch.zeros_like(hidden_BPC[..., 0])
        closed_BP = open_BP.masked_fill(~mask_BP, torch.finfo(open_BP.dtype).min / 2)
        closed_B11P = closed_BP[:, None, None]
        bias_BTH, pair_PP = self.pairs(in_common(vectors_BPD)), pair_of(mask_BP)
        bias_BHPP = bias_BTH[:, pair_PP].permute(0, 3, 1, 2) + closed_B11P
        for block in self.blocks:
            hidden_BPC = block(hidden_BPC, hidden_BPC, bias_BHPP)
        token_B1C = self.token.expand(mask_BP.shape[0], -1, -1)
        seen_BPC = torch.cat([token_B1C, hidden_BPC], 1)  # itself, where there is nothing else
        token_B1C = self.read(token_B1C, seen_BPC, functional.pad(closed_B11P, (1, 0)))
        return self.head(torch.cat([self.norm(token_B1C[:, 0]), flat_BG], 1))


class Attention(nn.Module):
    """Attention and a layer on each constituent alone, both normalised first and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_seen = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.seen = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.each = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, hidden_BPC: Tensor, seen_BPC: Tensor, bias_BHPP: Tensor) -> Tensor:
        """Shape (B, P, C): what looks, at what, and how much more or less than by itself."""
        query = self._split(self.query(self.norm(hidden_BPC)))
        key, value = map(self._split, self.seen(self.norm_seen(seen_BPC)).chunk(2, -1))
        shape = (*query.shape[:3], key.shape[2])
        bias_BHPP = bias_BHPP.expand(shape)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias_BHPP)
        joined_BPC = torch.cat(found.unbind(1), 2)  # a view would be of one kernel's strides
        hidden_BPC = hidden_BPC + self.out(joined_BPC)
        return hidden_BPC + self.each(hidden_BPC)

    def _split(self, values_BPC: Tensor) -> Tensor:
        return values_BPC.unflatten(2, (self.heads, -1)).transpose(1, 2)


def pair_of(mask_BP: Tensor) -> Tensor:
    """The number of each pair in what :func:`in_common` gives, shape (P, P)."""
    count = mask_BP.shape[1]
    index_P = torch.arange(count, device=mask_BP.device)
    low_PP = torch.minimum(index_P[:, None], index_P)
    high_PP = torch.maximum(index_P[:, None], index_P)
    return low_PP * (2 * count - low_PP + 1) // 2 + high_PP - low_PP


def in_common(vectors_BPD: Tensor) -> Tensor:
    """What two momenta have in common, shape (B, T, 4), scaled to about one: logarithms of
    their distance, of the transverse momentum between them, of the softer one's share, and of
    their squared mass. Pairs are (0, 0), (0, 1), ..., (1, 1), ...: the other way round is the same.
    """
    count = vectors_BPD.shape[1]
    first_T, second_T = torch.triu_indices(count, count, device=vectors_BPD.device)
    px, py, pz, energy = vectors_BPD.unbind(2)
    pt_BP = (px.square() + py.square()).sqrt()  # ONNX has no hypot
    rapidity_BP = 0.5 * torch.log(
        (energy + pz).clamp_min(SMALLEST) / (energy - pz).clamp_min(SMALLEST)
    )
    phi_BP = torch.atan2(py, px)

    def pair(values_BP: Tensor) -> tuple[Tensor, Tensor]:
        return values_BP[:, first_T], values_BP[:, second_T]

    (y_1, y_2), (phi_1, phi_2), (pt_1, pt_2) = map(pair, (rapidity_BP, phi_BP, pt_BP))
    turn = torch.remainder(phi_1 - phi_2 + torch.pi, 2 * torch.pi) - torch.pi
    distance = ((y_1 - y_2).square() + turn.square()).clamp_min(SMALLEST**2).sqrt()
    softer = torch.minimum(pt_1, pt_2)
    share = softer / (pt_1 + pt_2).clamp_min(SMALLEST)
    total = vectors_BPD[:, first_T] + vectors_BPD[:, second_T]
    squared = total[..., 3].square() - total[..., :3].square().sum(-1)
    found = torch.stack([distance, softer * distance, share, squared], -1)
    found = found.clamp_min(SMALLEST).log()
    centre, width = found.new_tensor(PAIR_CENTRE), found.new_tensor(PAIR_WIDTH)
    return ((found - centre) / width).clamp(-5, 5)
