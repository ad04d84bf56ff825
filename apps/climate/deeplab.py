"""DeepLabv3+ on a residual network.

Suffixes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from apps.climate.globe import GlobeNetwork, Zoom, check_arguments, convolution, make_norm, unit
from scadl_core.workflow.tiles import FieldMean


class DeepLab(GlobeNetwork):
    """DeepLabv3+ (Chen et al. 2018, arXiv:1802.02611), with a residual network (He et al. 2016,
    arXiv:1512.03385) of any size under it in place of Xception.

    Args:
        width: Channels at full resolution; they double with each halving, up to 8 times. The
            pyramid and the decoder have 4 times as many.
        depth: How often the resolution is halved. The decoder begins half way.
        blocks: Residual blocks of each resolution.
        rates: Dilations of the pyramid.
        common: See :class:`apps.climate.globe.GlobeNetwork`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, width: int = 32, depth: int = 4, blocks: int = 2,
        rates: Sequence[int] = (6, 12, 18), norm: str = "group", periodic: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        counts = {"in_channels": in_channels, "num_classes": num_classes, "width": width}
        check_arguments(norm, counts | {"depth": depth, "blocks": blocks}, rates=rates)
        self.stride, self.middle = 2**depth, depth // 2
        levels = [width * 2 ** min(level, 3) for level in range(depth + 1)]
        self.stem = unit(in_channels, width, norm)
        self.stages = nn.ModuleList(
            nn.Sequential(
                Residual(before, after, norm, stride=2),
                *(Residual(after, after, norm) for _ in range(blocks - 1)),
            )
            for before, after in pairwise(levels)
        )
        features, fine = 4 * width, max(3 * width // 4, 1)  # 256 and 48 in the paper
        self.pyramid = Pyramid(levels[-1], features, rates, norm)
        self.reduce = unit(levels[self.middle], fine, norm, kernel=1)
        self.decode = nn.Sequential(
            unit(features + fine, features, norm), unit(features, features, norm),
            nn.Conv2d(features, num_classes, 1), Zoom(2**self.middle),
        )  # fmt: skip
        self.zoom = Zoom(2 ** (depth - self.middle))
        self.periodic = periodic

    def logits(self, image_BCHW: Tensor) -> Tensor:
        """The pyramid of the coarsest resolution joins the features of the middle one."""
        levels = [self.stem(image_BCHW)]
        for stage in self.stages:
            levels.append(stage(levels[-1]))
        coarse = self.zoom(self.pyramid(levels[-1]))
        return self.decode(torch.cat([coarse, self.reduce(levels[self.middle])], 1))


class Pyramid(nn.Module):
    """Atrous spatial pyramid pooling: several dilations, and the mean of the map, side by side."""

    def __init__(self, before: int, after: int, rates: Sequence[int], norm: str) -> None:
        super().__init__()
        dilated = [unit(before, after, norm, dilation=rate) for rate in rates]
        self.branches = nn.ModuleList([unit(before, after, norm, kernel=1), *dilated])
        # No norm: a batch of one map has a single value of each channel here.
        self.whole = nn.Sequential(FieldMean(), nn.Conv2d(before, after, 1), nn.ReLU())
        self.join = unit((len(rates) + 2) * after, after, norm, kernel=1)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW to BCHW."""
        parts = [branch(image_BCHW) for branch in self.branches]
        return self.join(torch.cat([*parts, self.whole(image_BCHW).expand_as(parts[0])], 1))


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, norm: str, stride: int = 1) -> None:
        super().__init__()
        second = [*convolution(after, after), make_norm(norm, after)]
        self.body = nn.Sequential(unit(before, after, norm, stride=stride), *second)
        shortcut = [*convolution(before, after, 1, stride=stride), make_norm(norm, after)]
        self.shortcut = nn.Sequential(*shortcut) if stride > 1 else nn.Identity()

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW to BCHW, height and width divided by the stride."""
        return functional.relu(self.body(image_BCHW) + self.shortcut(image_BCHW))
