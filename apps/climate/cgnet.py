"""CGNet, a small network that sees the surroundings of a pixel and the whole map.

Suffixes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from apps.climate.globe import GlobeNetwork, GlobePad, Zoom, check_arguments, convolution, make_norm
from scadl_core.workflow.tiles import FieldMean


class CGNet(GlobeNetwork):
    """Context-guided network (Wu et al. 2018, arXiv:1811.08201), with which ClimateNet is published
    (Kapp-Schwoerer et al. 2020): the default has as many parameters.

    Args:
        width: Channels after the first halving of the resolution; each stage doubles them.
        blocks: Blocks of each stage. A stage halves the resolution, and doubles the dilation.
        common: See :class:`apps.climate.globe.GlobeNetwork`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, width: int = 32,
        blocks: Sequence[int] = (3, 21), norm: str = "group", periodic: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        counts = {"in_channels": in_channels, "num_classes": num_classes, "width": width}
        check_arguments(norm, counts, blocks=blocks)
        self.stride = 2 ** (1 + len(blocks))
        self.shrink = nn.Sequential(GlobePad(), nn.AvgPool2d(3, stride=2))
        self.stem = nn.Sequential(
            _conv(in_channels, width, norm, stride=2), *(_conv(width, width, norm) for _ in "23")
        )
        joined = [width + in_channels]
        self.stages = nn.ModuleList()
        for stage, count in enumerate(blocks, start=1):
            after = width * 2**stage
            more = (after, 2**stage, 4 * 2**stage, norm)
            inner = [ContextGuided(after, *more) for _ in range(count - 1)]
            first = ContextGuided(joined[-1], *more, halve=True)
            self.stages.append(nn.ModuleList([first, nn.Sequential(*inner)]))
            joined.append(2 * after + in_channels * (stage < len(blocks)))
        self.joins = nn.ModuleList(
            nn.Sequential(make_norm(norm, channels), nn.PReLU(channels)) for channels in joined
        )
        self.head = nn.Conv2d(joined[-1], num_classes, 1, bias=False)
        self.zoom = Zoom(self.stride)
        self.periodic = periodic

    def logits(self, image_BCHW: Tensor) -> Tensor:
        """The shrunken image joins in before each stage."""
        hidden, small = [self.stem(image_BCHW)], self.shrink(image_BCHW)
        for join, (first, inner) in zip(self.joins, self.stages, strict=False):
            halved = first(join(torch.cat([*hidden, small], 1)))
            hidden, small = [inner(halved), halved], self.shrink(small)
        return self.zoom(self.head(self.joins[-1](torch.cat(hidden, 1))))


class ContextGuided(nn.Module):
    """Joins a pixel's neighbours and its surroundings, a dilation away, and weighs channels by the
    whole map, in a space narrower by `reduction`. Where it does not halve the resolution, the input
    is added to the output.
    """

    def __init__(
        self, before: int, after: int, dilation: int, reduction: int, norm: str, halve: bool = False
    ) -> None:
        super().__init__()
        self.halve, part = halve, after if halve else after // 2
        self.enter = _conv(before, part, norm, *((3, 2) if halve else (1,)))
        self.near = convolution(part, part, groups=part)
        self.around = convolution(part, part, dilation=dilation, groups=part)
        reduce = convolution(2 * part, after, kernel=1) if halve else []
        self.join = nn.Sequential(make_norm(norm, 2 * part), nn.PReLU(2 * part), *reduce)
        narrow = max(after // reduction, 1)
        self.weigh = nn.Sequential(
            FieldMean(), nn.Conv2d(after, narrow, 1), nn.ReLU(),
            nn.Conv2d(narrow, after, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW to BCHW, or half the height and width."""
        entered = self.enter(image_BCHW)
        joined = self.join(torch.cat([self.near(entered), self.around(entered)], 1))
        weighed = joined * self.weigh(joined)
        return weighed if self.halve else image_BCHW + weighed


def _conv(before: int, after: int, norm: str, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    layers = convolution(before, after, kernel, stride=stride)
    return nn.Sequential(*layers, make_norm(norm, after), nn.PReLU(after))
