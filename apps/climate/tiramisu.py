"""Tiramisu, a U-Net of dense blocks.

Suffixes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from apps.climate.globe import GlobeNetwork, GlobePad, check_arguments, convolution, make_norm
from scadl_core.errors import ConfigError


class Tiramisu(GlobeNetwork):
    """FC-DenseNet (Jegou et al. 2017, arXiv:1611.09326, table 2 with the defaults).

    Kurth et al. 2018 (arXiv:1810.01993) have it for climate: growth 32, kernel 5, fewer layers.

    Args:
        width: Channels of the first convolution.
        growth: Channels that each layer adds.
        layers: Layers of each dense block on the way down, the last of which is the bottom.
        kernel: Rows and columns of the convolutions, odd.
        dropout: Share of values dropped after each convolution. What is dropped depends on how a
            batch is cut over ranks.
        common: See :class:`apps.climate.globe.GlobeNetwork`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, width: int = 48, growth: int = 16,
        layers: Sequence[int] = (4, 5, 7, 10, 12, 15), kernel: int = 3, dropout: float = 0.0,
        norm: str = "group", periodic: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        counts = {"in_channels": in_channels, "num_classes": num_classes, "width": width}
        check_arguments(norm, counts | {"growth": growth, "kernel": kernel}, layers=layers)
        if kernel % 2 == 0:
            raise ConfigError(f"model.kernel: expected an odd number, got {kernel}")
        self.stride = 2 ** (len(layers) - 1)
        self.stem = convolution(in_channels, width, kernel)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        layer, features, skips = (kernel, dropout, norm), width, []
        for count in layers:
            self.down.append(DenseBlock(features, growth, count, *layer))
            features += count * growth
            skips.append(features)
        for features in skips[:-1]:
            same = _layer(features, features, 1, dropout, norm)
            self.shrink.append(nn.Sequential(same, nn.MaxPool2d(2)))
        self.widen, self.up = nn.ModuleList(), nn.ModuleList()
        features, new = skips[-1], layers[-1] * growth
        for count, skip in zip(reversed(layers[:-1]), reversed(skips[:-1]), strict=True):
            self.widen.append(nn.Sequential(GlobePad(), nn.ConvTranspose2d(new, new, 3, stride=2)))
            self.up.append(DenseBlock(new + skip, growth, count, *layer))
            features, new = new + skip + count * growth, count * growth
        self.head = nn.Conv2d(features, num_classes, 1)
        self.periodic = periodic

    def logits(self, image_BCHW: Tensor) -> Tensor:
        """Down to the bottom, and up again: only what a block adds goes up."""
        hidden, skips = self.stem(image_BCHW), []
        for block, shrink in zip(self.down, [*self.shrink, None], strict=True):
            skips.append(block(hidden))
            hidden = shrink(skips[-1]) if shrink else skips[-1][:, hidden.shape[1] :]
        features = skips.pop()
        for block, widen, skip in zip(self.up, self.widen, reversed(skips), strict=True):
            height, width = skip.shape[-2:]
            wide = widen(hidden)[..., 2 : 2 + height, 2 : 2 + width]  # less what is of the margin
            joined = torch.cat([wide, skip], 1)
            features = block(joined)
            hidden = features[:, joined.shape[1] :]
        return self.head(features)


class DenseBlock(nn.Sequential):
    """Layers each of which sees the input and what all layers before it have added."""

    def __init__(
        self, before: int, growth: int, count: int, kernel: int, dropout: float, norm: str
    ) -> None:
        widths = (before + index * growth for index in range(count))
        super().__init__(*(_layer(width, growth, kernel, dropout, norm) for width in widths))

    def forward(self, features_BCHW: Tensor) -> Tensor:
        """The input and what is added to it, in one."""
        for layer in self:
            features_BCHW = torch.cat([features_BCHW, layer(features_BCHW)], 1)
        return features_BCHW


def _layer(before: int, after: int, kernel: int, dropout: float, norm: str) -> nn.Sequential:
    layers = convolution(before, after, kernel)
    return nn.Sequential(make_norm(norm, before), nn.ReLU(), *layers, nn.Dropout(dropout))
