"""A U-Net for maps of the globe.

Suffixes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.errors import ConfigError, nearest

DEEPEST = 8  # halvings; the channels double with each, and the map has to be a multiple of 2**8
MOST_GROUPS = 4  # of GroupNorm; fewer where the channels are not a multiple
NORMS = ("group", "batch")


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015, arXiv:1505.04597) for maps that go around the globe.

    Laws: With `periodic` there is no seam: rolling the input in longitude by a multiple of 2**depth
    columns rolls the output by as much, where the width of the map is such a multiple, too. With
    the default norm a map's output does not depend on the other maps of its batch, nor on how a
    batch is cut over ranks. The output has the height and width of the input, whatever they are.

    Args:
        in_channels: C, number of input variables.
        num_classes: K.
        width: Channels of the first level; they double from level to level, but for the last.
        depth: How often the resolution is halved.
        norm: "group", or "batch", with which results do depend on the batch.
        periodic: Whether the columns go once around the globe; False for a regional map.

    Raises:
        ConfigError: An argument is out of range.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        width: int = 16,
        depth: int = 3,
        norm: str = "group",
        periodic: bool = True,
    ) -> None:
        super().__init__()
        counts = {"in_channels": in_channels, "num_classes": num_classes}
        for name, count in (counts | {"width": width, "depth": depth}).items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                found = f"expected a whole number of at least 1, got {count!r}"
                raise ConfigError(f"model.{name}: {found}")
        if depth > DEEPEST:
            raise ConfigError(f"model.depth: expected at most {DEEPEST}, got {depth}")
        if norm not in NORMS:
            found = f"got {norm!r}{nearest(norm, NORMS)}"
            raise ConfigError(f"model.norm: expected a known norm, {found}")
        self.depth = depth
        levels = [width * 2 ** min(level, depth - 1) for level in range(depth + 1)]
        pairs = zip([in_channels, *levels], levels, strict=False)
        self.down = nn.ModuleList(_block(before, after, norm) for before, after in pairs)
        self.up = nn.ModuleList(  # from the coarsest to the finest
            _block(2 * levels[level], levels[max(level - 1, 0)], norm)
            for level in reversed(range(depth))
        )
        self.head = nn.Conv2d(width, num_classes, kernel_size=1)
        self.periodic = periodic

    @property
    def periodic(self) -> bool:
        """Whether the columns go once around the globe; may be set at any time."""
        return self._periodic

    @periodic.setter
    def periodic(self, periodic: bool) -> None:
        self._periodic = periodic
        for module in self.modules():
            if isinstance(module, GlobePad):
                module.periodic = periodic

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """Logits BKHW of images BCHW, in the float type of the weights."""
        height, width = image_BCHW.shape[-2:]
        hidden = _enlarge(image_BCHW, 2**self.depth, self.periodic)
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            hidden = block(functional.max_pool2d(hidden, 2) if level else hidden)
            skips.append(hidden)
        for block, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            wide = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
            hidden = block(torch.cat([wide, skip], dim=1))
        return self.head(hidden)[..., :height, :width]


class GlobePad(nn.Module):
    """A row and a column more on each side: periodic in longitude, the last row repeated at a pole.

    Rows are not wrapped, as ClimateNet's CGNet does: that makes neighbours of the poles. (Beyond a
    pole lies the same row half a turn further; repeating is local.) The backward of split and cat
    is deterministic on every device, which that of replication padding is not on CUDA.
    """

    periodic = True

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW to BC(H+2)(W+2), H and W at least 2."""
        west, inner, east = image_BCHW.split([1, image_BCHW.shape[-1] - 2, 1], dim=-1)
        around = (east, west) if self.periodic else (west, east)
        wide = torch.cat([around[0], west, inner, east, around[1]], dim=-1)
        south, inner, north = wide.split([1, wide.shape[-2] - 2, 1], dim=-2)
        return torch.cat([south, south, inner, north, north], dim=-2)


def _block(before: int, after: int, norm: str) -> nn.Sequential:
    """Two 3x3 convolutions. They have no bias, as the norm after them has one."""
    groups = next(n for n in range(MOST_GROUPS, 0, -1) if after % n == 0)
    layers: list[nn.Module] = []
    for channels in (before, after):
        convolution = nn.Conv2d(channels, after, kernel_size=3, bias=False)
        normed = nn.GroupNorm(groups, after) if norm == "group" else nn.BatchNorm2d(after)
        layers += [GlobePad(), convolution, normed, nn.ReLU()]
    return nn.Sequential(*layers)


def _enlarge(image_BCHW: Tensor, multiple: int, periodic: bool) -> Tensor:
    """Goes on around the globe and beyond the pole, up to a multiple (at least twice)."""
    old = image_BCHW.shape[-2:]
    new = [max(-(-size // multiple), 2) * multiple for size in old]
    if new == list(old):
        return image_BCHW
    row, column = (torch.arange(size, device=image_BCHW.device) for size in new)
    column = column % old[1] if periodic else column.clamp_max(old[1] - 1)
    return image_BCHW[..., row.clamp_max(old[0] - 1)[:, None], column]
