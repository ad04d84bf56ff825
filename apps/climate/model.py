"""The networks: U-Net, and from files beside this one CGNet, DeepLabv3+ and Tiramisu.

Suffixes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from apps.climate.cgnet import CGNet as CGNet
from apps.climate.deeplab import DeepLab as DeepLab
from apps.climate.globe import GlobeNetwork, check_arguments, unit
from apps.climate.tiramisu import Tiramisu as Tiramisu
from scadl_core.errors import ConfigError

DEEPEST = 8  # halvings; the channels double with each, and the map has to be a multiple of 2**8


class UNet(GlobeNetwork):
    """U-Net (Ronneberger et al. 2015, arXiv:1505.04597) for maps that go around the globe.

    Args:
        width: Channels of the first level; they double from level to level, but for the last.
        depth: How often the resolution is halved.
        common: See :class:`apps.climate.globe.GlobeNetwork`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, width: int = 16, depth: int = 3,
        norm: str = "group", periodic: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        counts = {"in_channels": in_channels, "num_classes": num_classes, "width": width}
        check_arguments(norm, counts | {"depth": depth})
        if depth > DEEPEST:
            raise ConfigError(f"model.depth: expected at most {DEEPEST}, got {depth}")
        self.stride = 2**depth
        levels = [width * 2 ** min(level, depth - 1) for level in range(depth + 1)]
        pairs = zip([in_channels, *levels], levels, strict=False)
        self.down = nn.ModuleList(_block(before, after, norm) for before, after in pairs)
        self.up = nn.ModuleList(  # from the coarsest to the finest
            _block(2 * levels[level], levels[max(level - 1, 0)], norm)
            for level in reversed(range(depth))
        )
        self.head = nn.Conv2d(width, num_classes, kernel_size=1)
        self.periodic = periodic

    def stages(self) -> list[nn.Module]:
        """The same network as a chain that carries its skips as a tuple; for maps whose height and
        width are multiples of the stride.
        """
        return [*map(_Down, self.down), *map(_Up, self.up), _Head(self.head)]

    def logits(self, image_BCHW: Tensor) -> Tensor:
        """Down to the coarsest level, and up again."""
        hidden, skips = image_BCHW, []
        for level, block in enumerate(self.down):
            hidden = block(functional.max_pool2d(hidden, 2) if level else hidden)
            skips.append(hidden)
        for block, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            wide = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
            hidden = block(torch.cat([wide, skip], dim=1))
        return self.head(hidden)


def _block(before: int, after: int, norm: str) -> nn.Sequential:
    return nn.Sequential(*unit(before, after, norm), *unit(after, after, norm))


class _Down(nn.Module):
    """Adds a level to a tuple of levels."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, levels: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if isinstance(levels, Tensor):
            return (self.block(levels),)
        return (*levels, self.block(functional.max_pool2d(levels[-1], 2)))


class _Up(nn.Module):
    """Joins the last level into the one before."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, levels: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        *finer, skip, hidden = levels
        wide = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
        return (*finer, self.block(torch.cat([wide, skip], dim=1)))


class _Head(nn.Module):
    """Logits of the finest level."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, levels: tuple[Tensor, ...]) -> Tensor:
        return self.head(levels[0])
