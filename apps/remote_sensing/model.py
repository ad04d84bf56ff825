"""Networks for super-resolution: EDSR and RCAN; SwinIR is in ``swinir.py``.

All add what they learn to the bicubic interpolation of their input, with which they begin. Edges
are padded by repetition, so that an image of one row has a result too.

Suffixes: B batch, C band, F feature, H row, W column.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from scadl_core.errors import check_whole
from scadl_core.workflow.tiles import FieldMean


def bicubic(image_BCHW: Tensor, scale: int) -> Tensor:
    """Keys' interpolation (1981), a = -0.75, clamped at the edges; pixels are squares that are cut,
    not points.
    """
    return functional.interpolate(
        image_BCHW, scale_factor=scale, mode="bicubic", align_corners=False
    )


def convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """3 x 3, of the same size."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, padding_mode="replicate")


def upsampler(features: int, channels: int, scale: int) -> nn.Sequential:
    """From features to an image of more pixels (Shi et al. 2016, arXiv:1609.05158), 0 at first."""
    layers: list[nn.Module] = []
    for factor in {2: (2,), 3: (3,), 4: (2, 2)}[scale]:
        wide = convolution(features, features * factor**2)
        layers += [wide, nn.PixelShuffle(factor), nn.ReLU()]
    last = convolution(features, channels)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*layers[:-1], last)


class Residual(nn.Module):
    """An EDSR block: its input and, scaled down, what two convolutions make of it."""

    def __init__(self, features: int, strength: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(features, features), nn.ReLU(), convolution(features, features)
        )
        self.strength = strength

    def forward(self, field_BFHW: Tensor) -> Tensor:
        """BFHW to BFHW."""
        return field_BFHW + self.strength * self.body(field_BFHW)


class Attention(nn.Module):
    """Weighs features by their means over the whole image (RCAN, eq. 5), tiled or not."""

    def __init__(self, features: int, reduction: int) -> None:
        super().__init__()
        self.mean = FieldMean()
        narrow = max(features // reduction, 1)
        self.weigh = nn.Sequential(
            nn.Conv2d(features, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, features, 1), nn.Sigmoid()
        )

    def forward(self, field_BFHW: Tensor) -> Tensor:
        """BFHW to BFHW."""
        return field_BFHW * self.weigh(self.mean(field_BFHW))


class Chain(nn.Module):
    """A network as head, blocks and tail; stages for a solver that trains them apart.

    A stage gives the features, the head's features, and the image, which the tail needs.
    """

    head: nn.Module
    blocks: nn.ModuleList
    tail: nn.Module  # behind the blocks, before the head's features are added
    up: nn.Module
    scale: int
    recompute = False

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW in units of white to BCHW of more pixels."""
        first_BFHW = field_BFHW = self.head(image_BCHW)
        for block in self.blocks:
            if self.recompute and self.training:
                field_BFHW = checkpoint(block, field_BFHW, use_reentrant=False)
            else:
                field_BFHW = block(field_BFHW)
        detail_BCHW: Tensor = self.up(self.tail(field_BFHW) + first_BFHW)
        return detail_BCHW + bicubic(image_BCHW, self.scale)

    def stages(self) -> list[nn.Module]:
        """Modules whose composition is this network."""
        blocks = (Stage(block) for block in self.blocks)
        return [Begin(self.head), *blocks, End(self.tail, self.up, self.scale)]


class Begin(nn.Module):
    """The first stage."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, image_BCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, once to go on from and once to be added at the end, and the image."""
        field_BFHW = self.head(image_BCHW)
        return field_BFHW, field_BFHW, image_BCHW


class Stage(nn.Module):
    """A stage in the middle."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Other features; the rest goes through."""
        field_BFHW, first_BFHW, image_BCHW = state
        return self.block(field_BFHW), first_BFHW, image_BCHW


class End(nn.Module):
    """The last stage."""

    def __init__(self, tail: nn.Module, up: nn.Module, scale: int) -> None:
        super().__init__()
        self.tail, self.up, self.scale = tail, up, scale

    def forward(self, state: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The image of more pixels."""
        field_BFHW, first_BFHW, image_BCHW = state
        detail_BCHW: Tensor = self.up(self.tail(field_BFHW) + first_BFHW)
        return detail_BCHW + bicubic(image_BCHW, self.scale)


class EDSR(Chain):
    """Residual blocks without normalisation (Lim et al. 2017, arXiv:1707.02921).

    Args:
        in_channels: Bands.
        scale: How many times more pixels in each direction.
        width: Features; 64 and 16 blocks are the paper's baseline, 256 and 32 its EDSR.
        blocks: Residual blocks.
        strength: Of a block's own part; 0.1 keeps deep ones stable.
        recompute: Computes blocks again in the backward pass instead of keeping what they made.

    Raises:
        ConfigError: A size below 1.
    """

    def __init__(
        self, in_channels: int, scale: int, width: int = 32, blocks: int = 6,
        strength: float = 0.1, recompute: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(width=width, blocks=blocks)
        self.scale, self.recompute = scale, recompute
        self.head = convolution(in_channels, width)
        self.blocks = nn.ModuleList(Residual(width, strength) for _ in range(blocks))
        self.tail = convolution(width, width)
        self.up = upsampler(width, in_channels, scale)


class RCAN(Chain):
    """Groups of residual blocks that weigh their features by means over the whole image (Zhang et
    al. 2018, arXiv:1807.02758).

    Args:
        in_channels: Bands.
        scale: How many times more pixels in each direction.
        width: Features; 64, 10 groups and 20 blocks in the paper.
        groups: Residual groups.
        blocks: Of each group.
        reduction: Features a feature of the attention's bottleneck.

    Raises:
        ConfigError: A size below 1.
    """

    def __init__(
        self, in_channels: int, scale: int, width: int = 32, groups: int = 3, blocks: int = 4,
        reduction: int = 8,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(width=width, groups=groups, blocks=blocks, reduction=reduction)

        def block() -> nn.Module:
            return Sum(
                convolution(width, width), nn.ReLU(), convolution(width, width),
                Attention(width, reduction),
            )  # fmt: skip

        self.scale = scale
        self.head = convolution(in_channels, width)
        self.blocks = nn.ModuleList(
            Sum(*(block() for _ in range(blocks)), convolution(width, width)) for _ in range(groups)
        )
        self.tail = convolution(width, width)
        self.up = upsampler(width, in_channels, scale)


class Sum(nn.Sequential):
    """Its input and what its layers make of it, added."""

    def forward(self, field_BFHW: Tensor) -> Tensor:
        """BFHW to BFHW."""
        body: Callable[[Tensor], Tensor] = super().forward
        return field_BFHW + body(field_BFHW)


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        check_whole(f"model.{name}", size)
