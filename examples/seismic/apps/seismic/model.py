"""PhaseNet: a U-Net along time (Zhu and Beroza 2019, doi:10.1093/gji/ggy423).

Suffixes: B batch, C component, K class, T sample in time.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def unit(before: int, after: int, stride: int = 1) -> nn.Sequential:
    """A convolution over seven samples; its norm is of each record alone."""
    conv = nn.Conv1d(before, after, 7, stride, padding=3)
    return nn.Sequential(conv, nn.GroupNorm(1, after), nn.ReLU())


class PhaseNet(nn.Module):
    """Logits of noise and phases at each sample.

    Args:
        in_channels: C.
        num_classes: K.
        width: Channels of the first level; they double from level to level.
        depth: How often the rate is divided by four.
    """

    def __init__(self, in_channels: int, num_classes: int, width: int = 8, depth: int = 4) -> None:
        super().__init__()
        levels = [width * 2**level for level in range(depth + 1)]
        self.stride = 4**depth
        self.first = unit(in_channels, width)
        self.down = nn.ModuleList(
            nn.Sequential(unit(before, after, 4), unit(after, after))
            for before, after in pairwise(levels)
        )
        self.up = nn.ModuleList(
            unit(levels[level + 1] + levels[level], levels[level])
            for level in reversed(range(depth))
        )
        self.head = nn.Conv1d(width, num_classes, 1)

    def forward(self, record_BCT: Tensor) -> Tensor:
        """BCT to BKT, for any T."""
        length = record_BCT.shape[-1]
        record_BCT = functional.pad(record_BCT, (0, -length % self.stride))
        levels = [self.first(record_BCT)]
        for block in self.down:
            levels.append(block(levels[-1]))
        hidden = levels.pop()
        for block, skip in zip(self.up, reversed(levels), strict=True):
            wide = functional.interpolate(hidden, scale_factor=4.0, mode="nearest")
            hidden = block(torch.cat([wide, skip], 1))
        return self.head(hidden)[..., :length]
