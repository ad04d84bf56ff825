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

DEEPEST = 8  # halvings; the channels double with each, and the map has to be a multiple of 2**8
MOST_GROUPS = 4  # of group normalisation; fewer where the channels are not a multiple
NORMS = ("group", "channel", "batch")


class GlobeNetwork(nn.Module):
    """Base of networks from maps of C variables to logits of K classes.

    Laws: With `periodic` there is no seam: rolling the input in longitude by a multiple of `stride`
    columns rolls the output by as much, where the width of the map is such a multiple, too. A map's
    output does not depend on the other maps of its batch, nor on how a batch is cut over ranks,
    unless the norm is "batch". The output has the height and width of the input, whatever they are.

    All take `in_channels` (C), `num_classes` (K), `norm` (see `make_norm`) and `periodic`: whether
    columns go once around the globe, or the map is regional. They raise a ConfigError for an
    argument that is out of range.
    """

    stride: int  # columns of the map to one of the coarsest level
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
        return _extend(wide, -2, self.margin, around=False)


def _extend(image: Tensor, axis: int, margin: int, around: bool) -> Tensor:
    size = image.shape[axis]
    if around and 2 * margin > size:
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
        factor, wide = self.factor, self.pad(image_BCHW)
        wide = functional.interpolate(wide, scale_factor=float(factor), mode="bilinear")
        return wide[..., factor:-factor, factor:-factor]


class ChannelNorm(nn.LayerNorm):
    """Normalises each pixel over its channels (Ba et al. 2016, arXiv:1607.06450), BCHW to BCHW."""

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """The same size and type."""
        normed_BHWC = super().forward(image_BCHW.movedim(1, -1))
        # Left in this order in memory, DeepLab's backward ends torch 2.13 on CPUs (double free).
        return normed_BHWC.movedim(-1, 1).contiguous()


def make_norm(norm: str, channels: int) -> nn.Module:
    """Normalises "group": over a group of channels and the map; "channel": over the channels of
    each pixel; "batch": each channel over the batch, on which results then depend.
    """
    if norm == "group":
        groups = next(n for n in range(MOST_GROUPS, 0, -1) if channels % n == 0)
        return FieldNorm(groups, channels)
    return ChannelNorm(channels) if norm == "channel" else nn.BatchNorm2d(channels)


def convolution(before: int, after: int, kernel: int = 3, **how: int) -> nn.Sequential:
    """A padded convolution of odd kernel. It has no bias, as norms have one."""
    layer = nn.Conv2d(before, after, kernel, bias=False, **how)
    margin = how.get("dilation", 1) * (kernel // 2)
    return nn.Sequential(*[GlobePad(margin)] * (margin > 0), layer)


def unit(before: int, after: int, norm: str, kernel: int = 3, **how: int) -> nn.Sequential:
    """A convolution, a norm and ReLU."""
    layers = convolution(before, after, kernel, **how)
    return nn.Sequential(*layers, make_norm(norm, after), nn.ReLU())


def check_arguments(norm: str, counts: Mapping[str, int], **lists: Sequence[int]) -> None:
    """Refuses a count, or a list of them, that is no whole number of at least 1, too many halvings,
    or an unknown norm.

    Raises:
        ConfigError: The first such argument.
    """
    for name, value in (counts | lists).items():
        listed = isinstance(value, list | tuple)
        valid = [type(it) is int and it >= 1 for it in (value if listed else [value])]
        if listed != (name in lists) or not valid or not all(valid):
            expected = "a list of whole numbers" if name in lists else "a whole number"
            raise ConfigError(f"model.{name}: expected {expected} of at least 1, got {value!r}")
        if (many := len(value) if listed else value * (name == "depth")) > DEEPEST:
            most = f"{DEEPEST} numbers" if listed else DEEPEST
            raise ConfigError(f"model.{name}: expected at most {most}, got {many}")
    if norm not in NORMS:
        found = f"got {norm!r}{nearest(str(norm), NORMS)}"
        raise ConfigError(f"model.norm: expected a known norm, {found}")
