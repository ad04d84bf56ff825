"""What networks for maps of the globe are made of.

Suffixes: B batch, C channel, K class, H latitude, W longitude.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.errors import ConfigError, nearest
from scadl_core.workflow.tiles import FieldNorm, enlarged

MOST_GROUPS = 4  # of group normalisation; fewer where the channels are not a multiple
NORMS = ("group", "channel", "batch")


class GlobeNetwork(nn.Module):
    """Base of networks from maps of C variables to logits of K classes.

    Laws: With `periodic` there is no seam: rolling the input in longitude by a multiple of `stride`
    columns rolls the output by as much, where the width of the map is such a multiple, too. A map's
    output does not depend on the other maps of its batch, nor on how a batch is cut over ranks, but
    with the norm "batch". The output has the height and width of the input, whatever they are.
    """

    stride: int  # pixels of the map in one of the coarsest level
    _periodic = True

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
        row = enlarged(height, self.stride, around=False)
        column = enlarged(width, self.stride, around=self.periodic)
        if (len(row), len(column)) != (height, width):
            row, column = (torch.from_numpy(it).to(image_BCHW.device) for it in (row, column))
            image_BCHW = image_BCHW[..., row[:, None], column]
        return self.logits(image_BCHW)[..., :height, :width]

    def logits(self, image_BCHW: Tensor) -> Tensor:
        """Logits BKHW of images whose height and width are multiples of the stride."""
        raise NotImplementedError


class GlobePad(nn.Module):
    """A margin on each side: periodic in longitude, the last row repeated at a pole.

    Rows are not wrapped, as ClimateNet's CGNet does: that makes neighbours of the poles. (Beyond a
    pole lies the same row half a turn further; repeating is local.) The backward of split and cat
    is deterministic on every device, which that of replication padding is not on CUDA.
    """

    periodic = True

    def __init__(self, margin: int = 1) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW to BC(H+2m)(W+2m)."""
        wide = _extend(image_BCHW, -1, self.margin, self.periodic)
        return _extend(wide, -2, self.margin, False)


def _extend(image: Tensor, axis: int, margin: int, around: bool) -> Tensor:
    size = image.shape[axis]
    if around and margin > size // 2:
        turns = -(-margin // size)
        several = torch.cat([image] * (2 * turns + 1), axis)
        return several.narrow(axis, turns * size - margin, size + 2 * margin)
    if around:
        first, inner, last = image.split([margin, size - 2 * margin, margin], axis)
        return torch.cat([last, first, inner, last, first], axis)
    if size == 1:
        return torch.cat([image] * (2 * margin + 1), axis)
    first, inner, last = image.split([1, size - 2, 1], axis)
    return torch.cat([first] * (margin + 1) + [inner] + [last] * (margin + 1), axis)


class Zoom(nn.Module):
    """Bilinear interpolation to a multiple of the size, across the date line as well."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor, self.pad = factor, GlobePad()

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """BCHW to BC(fH)(fW)."""
        wide = functional.interpolate(
            self.pad(image_BCHW), scale_factor=float(self.factor), mode="bilinear"
        )
        return wide[..., self.factor : -self.factor, self.factor : -self.factor]


class ChannelNorm(nn.LayerNorm):
    """Normalises each pixel over its channels (Ba et al. 2016, arXiv:1607.06450), BCHW to BCHW."""

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """The same size and type."""
        return super().forward(image_BCHW.movedim(1, -1)).movedim(-1, 1)


def make_norm(norm: str, channels: int) -> nn.Module:
    """One of `NORMS`: over a map and a group of channels, over the channels of a pixel, or over a
    batch.
    """
    if norm == "group":
        groups = next(n for n in range(MOST_GROUPS, 0, -1) if channels % n == 0)
        return FieldNorm(groups, channels)
    return ChannelNorm(channels) if norm == "channel" else nn.BatchNorm2d(channels)


def convolution(
    before: int, after: int, kernel: int = 3, stride: int = 1, dilation: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A padded convolution of odd kernel. It has no bias, as norms have one."""
    layer = nn.Conv2d(
        before, after, kernel, stride=stride, dilation=dilation, groups=groups, bias=False
    )
    return [GlobePad(dilation * (kernel // 2)), layer] if kernel > 1 else [layer]


def check_arguments(norm: str, counts: Mapping[str, int], **lists: Sequence[int]) -> None:
    """Refuses a count, or a list of them, that is no whole number of at least 1; an unknown norm.

    Raises:
        ConfigError: The first such argument.
    """
    for name, value in (counts | lists).items():
        listed = isinstance(value, list | tuple)
        valid = [type(it) is int and it >= 1 for it in (value if listed else [value])]
        if listed != (name in lists) or not valid or not all(valid):
            expected = "a list of whole numbers" if name in lists else "a whole number"
            raise ConfigError(f"model.{name}: expected {expected} of at least 1, got {value!r}")
    if norm not in NORMS:
        found = f"got {norm!r}{nearest(norm, NORMS)}"
        raise ConfigError(f"model.norm: expected a known norm, {found}")
