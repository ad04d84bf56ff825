"""SwinIR-light: attention within windows, which every other layer moves by half a window (Liang et
al. 2021, arXiv:2108.10257, with the direct upsampling of its light version).

Suffixes: B batch, C band, F feature, H row, W column, N window, P pixel of a window, A head, D
feature of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from apps.remote_sensing.model import bicubic, convolution
from scadl_core.errors import ConfigError
from scadl_core.workflow.tiles import enlarged

APART = -100.0  # added to the logits of pixels that a move has brought together


class SwinIR(nn.Module):
    """Residual groups of window attention; adds what it learns to bicubic interpolation.

    Args:
        in_channels: Bands.
        scale: How many times more pixels in each direction.
        width: Features, a multiple of the heads.
        depths: Attention layers of each group.
        heads: Of each layer.
        window: Pixels of a window's side, even.
        expansion: Of the multilayer perceptron behind each attention.

    Raises:
        ConfigError: Sizes that do not fit one another.
    """

    def __init__(
        self, in_channels: int, scale: int, width: int = 60, depths: Sequence[int] = (6, 6, 6, 6),
        heads: int = 6, window: int = 8, expansion: int = 2,
    ) -> None:  # fmt: skip
        super().__init__()
        if width < 1 or width % heads:
            raise ConfigError(f"model.width: expected a multiple of {heads} heads, got {width}")
        if window < 2 or window % 2:
            raise ConfigError(f"model.window: expected an even number, got {window}")
        if not depths or min(depths) < 1:
            raise ConfigError(f"model.depths: expected numbers from 1, got {list(depths)}")
        self.scale, self.stride = scale, window
        self.head = convolution(in_channels, width)
        self.groups = nn.ModuleList(
            Group(width, depth, heads, window, expansion) for depth in depths
        )
        self.norm = nn.LayerNorm(width)
        self.tail = convolution(width, width)
        self.up = nn.Sequential(convolution(width, in_channels * scale**2), nn.PixelShuffle(scale))
        for parameter in self.up.parameters():
            nn.init.zeros_(parameter)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW in units of white to BCHW of more pixels."""
        height, width = image_BCHW.shape[2:]
        index = (torch.from_numpy(enlarged(size, self.stride, False)) for size in (height, width))
        rows, columns = (it.to(image_BCHW.device) for it in index)
        whole_BCHW = image_BCHW[:, :, rows][..., columns]
        first_BFHW = self.head(whole_BCHW)
        field_BHWF = first_BFHW.permute(0, 2, 3, 1)
        for group in self.groups:
            field_BHWF = group(field_BHWF)
        field_BFHW = self.norm(field_BHWF).permute(0, 3, 1, 2)
        detail_BCHW: Tensor = self.up(self.tail(field_BFHW) + first_BFHW)
        detail_BCHW = detail_BCHW + bicubic(whole_BCHW, self.scale)
        return detail_BCHW[..., : height * self.scale, : width * self.scale]


class Group(nn.Module):
    """Attention layers and a convolution, around which the input goes (RSTB)."""

    def __init__(self, width: int, depth: int, heads: int, window: int, expansion: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(width, heads, window, window // 2 * (number % 2), expansion)
            for number in range(depth)
        )
        self.convolution = convolution(width, width)

    def forward(self, field_BHWF: Tensor) -> Tensor:
        """BHWF to BHWF."""
        inner_BHWF = field_BHWF
        for layer in self.layers:
            inner_BHWF = layer(inner_BHWF)
        inner_BFHW = self.convolution(inner_BHWF.permute(0, 3, 1, 2))
        return field_BHWF + inner_BFHW.permute(0, 2, 3, 1)


class Layer(nn.Module):
    """Attention within windows that may be moved, then a perceptron (STL)."""

    def __init__(self, width: int, heads: int, window: int, move: int, expansion: int) -> None:
        super().__init__()
        self.move = move
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window)
        self.perceptron = nn.Sequential(
            nn.Linear(width, width * expansion), nn.GELU(), nn.Linear(width * expansion, width)
        )

    def forward(self, field_BHWF: Tensor) -> Tensor:
        """BHWF to BHWF."""
        moved_BHWF = self.first(field_BHWF)
        if self.move:
            moved_BHWF = moved_BHWF.roll((-self.move, -self.move), (1, 2))
        moved_BHWF = self.attention(moved_BHWF, self.move)
        if self.move:
            moved_BHWF = moved_BHWF.roll((self.move, self.move), (1, 2))
        field_BHWF = field_BHWF + moved_BHWF
        return field_BHWF + self.perceptron(self.second(field_BHWF))


class WindowAttention(nn.Module):
    """Attention among the pixels of each window, with a bias for how they lie to each other."""

    places_PP: Tensor

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.bias = nn.Parameter(torch.empty((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.bias, std=0.02)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        place_P2 = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        apart_PP2 = place_P2[:, None] - place_P2[None] + window - 1
        places_PP = apart_PP2[..., 0] * (2 * window - 1) + apart_PP2[..., 1]
        self.register_buffer("places_PP", places_PP, persistent=False)

    def forward(self, field_BHWF: Tensor, move: int) -> Tensor:
        """BHWF to BHWF; its sides are multiples of the window."""
        batch, height, width, features = field_BHWF.shape
        side, across = self.window, (height // self.window, width // self.window)
        windows = field_BHWF.reshape(batch, across[0], side, across[1], side, features)
        windows_NPF = windows.transpose(2, 3).reshape(-1, side * side, features)
        each = self.inward(windows_NPF).view(len(windows_NPF), side * side, 3, self.heads, -1)
        query_NAPD, key_NAPD, value_NAPD = each.permute(2, 0, 3, 1, 4)
        bias_APP = self.bias[self.places_PP].permute(2, 0, 1)[None]
        if move:
            apart_NPP = _apart(height, width, side, move).to(bias_APP)
            bias_APP = (bias_APP + apart_NPP[:, None]).repeat(batch, 1, 1, 1)
        mixed_NAPD = functional.scaled_dot_product_attention(
            query_NAPD, key_NAPD, value_NAPD, attn_mask=bias_APP
        )
        windows_NPF = self.outward(mixed_NAPD.transpose(1, 2).flatten(2))
        windows = windows_NPF.view(batch, across[0], across[1], side, side, features)
        return windows.transpose(2, 3).reshape(field_BHWF.shape)


@lru_cache(maxsize=8)
def _apart(height: int, width: int, window: int, move: int) -> Tensor:
    """What is added to logits within moved windows: pixels from opposite edges stay apart."""
    zones = []
    for size in (height, width):
        zone = torch.zeros(size, dtype=torch.int64)
        zone[size - window :], zone[size - move :] = 1, 2
        zones.append(zone)
    zone_HW = zones[0][:, None] * 3 + zones[1]
    cut = zone_HW.view(height // window, window, width // window, window)
    zone_NP = cut.transpose(1, 2).reshape(-1, window * window)
    return (zone_NP[:, :, None] != zone_NP[:, None]) * APART
