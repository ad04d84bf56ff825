"""A field of any size through a convolutional network, in tiles that equal the untiled field.

A tile is read with a margin as wide as the receptive field, aligned to the stride. At an edge of
the field it ends, so that padding falls where it does untiled; where columns go around, it goes on.
What layers take from the whole field is summed over all tiles first, in the order of execution.

What a network may say of itself: ``stride`` (1), the pixels by which a shift of the input shifts
the output; other sizes it enlarges itself, as `enlarged` does. ``periodic`` (False), which can be
set: whether columns go around.

Suffixes: B batch, C channel, G group, K output channel, H row, W column, P pixels of an axis.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from scadl_core.errors import ConfigError
from scadl_core.memory import AliveBytes

LONGEST_PIXELS = 4096  # what reaches so far is taken to see the whole field
NARROW_PIXELS = 32  # width of the strip on which a network is tried out


def enlarged(size: int, stride: int, around: bool) -> NDArray[np.intp]:
    """The pixels of an axis, then as many more as make a multiple of the stride, at least two of
    it: again from its start where it goes around, else the last one. A stride of 1 adds none.
    """
    index_P = np.arange(size if stride == 1 else max(-(-size // stride), 2) * stride)
    return index_P % size if around else index_P.clip(max=size - 1)


class FieldMean(nn.Module):
    """Mean over a field, BCHW to BC11, also where the field comes in tiles."""

    moments: Callable[[Tensor], Tensor] | None = None  # set by `_set` while it does

    def forward(self, field_BCHW: Tensor) -> Tensor:
        """The mean, in the type of the field."""
        if self.moments is None:
            return field_BCHW.mean((2, 3), keepdim=True)
        return self.moments(field_BCHW)[0].to(field_BCHW)


class FieldNorm(nn.GroupNorm):
    """Group normalisation over a field (Wu and He 2018, arXiv:1803.08494), also in tiles."""

    moments: Callable[[Tensor], Tensor] | None = None

    def forward(self, field_BCHW: Tensor) -> Tensor:
        """BCHW to BCHW."""
        if self.moments is None:
            return super().forward(field_BCHW)
        batch, channels, height, width = field_BCHW.shape
        groups = (batch, self.num_groups, channels // self.num_groups)
        mean_BG11, square_BG11 = self.moments(field_BCHW).view(2, *groups, 1).mean(3, keepdim=True)
        deviation_BG11 = (square_BG11 - mean_BG11.square() + self.eps).sqrt()
        field_BGPW = field_BCHW.reshape(*groups[:2], -1, width)
        scaled_BGPW = (field_BGPW - mean_BG11.to(field_BGPW)) / deviation_BG11.to(field_BGPW)
        scaled_BCHW = scaled_BGPW.view(batch, channels, height, width)
        normed_BCHW: Tensor = scaled_BCHW * self.weight[:, None, None] + self.bias[:, None, None]
        return normed_BCHW


class Tiles:
    """Applies a network to a field of any size, in tiles where it is large.

    Law: the result is the network's on the whole field, but for rounding. A network that sees the
    whole field otherwise than through `FieldMean` and `FieldNorm` is refused where it needs tiles.

    Args:
        network: In ``eval`` mode; maps BCHW to BKhw, h and w multiples of H and W.
        channels: C.
        tile: Rows and columns of a tile in pixels, without margin, rounded up to the stride; None:
            the whole field if that stays within the memory, else the largest tiles that do.
        memory_GiB: For None; of the tensors alive at a time in a forward pass, as estimated from
            that of a small field. What libraries use inside a layer is not in it.

    Raises:
        ConfigError: A tile of less than a pixel, or no memory.
    """

    def __init__(
        self, network: nn.Module, channels: int, tile: int | None = None, memory_GiB: float = 4.0
    ) -> None:
        if tile is not None and (isinstance(tile, bool) or not isinstance(tile, int) or tile < 1):
            expected = "expected null or a whole number of pixels, at least 1"
            raise ConfigError(f"predict.tile: {expected}, got {tile!r}")
        if not isinstance(memory_GiB, int | float) or not memory_GiB > 0:
            raise ConfigError(f"predict.memory_GiB: expected more than 0, got {memory_GiB!r}")
        self.network, self.channels, self.tile = network, channels, tile
        stride = getattr(network, "stride", 1)  # that of a lone convolution is a pair
        self.stride = stride if isinstance(stride, int) else 1
        self.memory_bytes = memory_GiB * 2**30

    def __call__(
        self,
        read: Callable[[slice, slice], Tensor],
        height: int,
        width: int,
        wanted: Callable[[slice, slice], bool] | None = None,
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Computes the output, holding no more than a tile of it.

        Args:
            read: Gives rows and columns of the input, CHW; asked several times for the same.
            height: H of the whole field.
            width: W of the whole field.
            wanted: Whether the output that belongs to these rows and columns of the input is to be
                computed, asked once a tile, in order; None: all is. What layers take from the whole
                field is still taken from all of it.

        Yields:
            Rows and columns of the output, and what belongs there, Khw.

        Raises:
            ConfigError: Tiles are needed, and a layer, which is named, does not allow them.
        """
        around = bool(getattr(self.network, "periodic", False))
        index = enlarged(height, self.stride, False), enlarged(width, self.stride, around)
        sizes = [len(index_P) for index_P in index]
        tile = self._tile(*sizes)
        margins = self.margins if tile < max(sizes) else (0, 0)
        rows = _spans(sizes[0], tile, margins[0], False)
        columns = _spans(sizes[1], tile, margins[1], around)
        tiles, means = list(product(rows, columns)), _Means()

        moments = means.moments if len(tiles) > 1 else None

        @torch.no_grad()
        def forward(spans: Sequence[_Span]) -> Tensor:
            means.asked, means.spans = 0, spans
            pairs = zip(index, spans, strict=True)
            pixels = (it.take(range(s.first, s.last), mode="wrap") for it, s in pairs)
            with _set(self.network, moments, around and len(columns) == 1):
                output_BKHW: Tensor = self.network(_gather(read, *pixels)[None])
            return output_BKHW

        while moments and means.add(forward, tiles):
            pass
        for row, column in tiles:
            own = row.until(height), column.until(width)
            inside = (slice(span.start, span.stop) for span in own)
            there = all(span.start < span.stop for span in own)
            if there and (wanted is None or wanted(*inside)):
                output_BKHW = forward((row, column))
                scale = output_BKHW.shape[2] // (row.last - row.first)
                rows_out, columns_out = (slice(s.start * scale, s.stop * scale) for s in own)
                yield rows_out, columns_out, _inner(output_BKHW, own)[0]

    def _tile(self, height: int, width: int) -> int:
        if self.tile is not None:
            return -(-self.tile // self.stride) * self.stride
        most_pixels = int(self.memory_bytes / self.bytes_per_pixel)
        if height * width <= most_pixels:
            return max(height, width)
        side = math.isqrt(most_pixels) - 2 * max(self.margins)
        return max(side // self.stride, 1) * self.stride

    @cached_property
    def _trial(self) -> nn.Module:
        """A copy: on a CPU in float64, convolutions spread no NaN beyond their kernel."""
        return copy.deepcopy(self.network).cpu().double()

    @cached_property
    def bytes_per_pixel(self) -> float:
        """The most bytes alive at a time in the forward pass of a small field, a pixel of it."""
        side = max(2 * self.stride, 64)
        with torch.no_grad(), AliveBytes() as alive:
            self._trial(torch.zeros(1, self.channels, side, side, dtype=torch.float64))
        item_bytes = next(self.network.parameters()).element_size()
        return float(alive.most / 8 * item_bytes / side**2)

    @cached_property
    def margins(self) -> tuple[int, int]:
        """The receptive field: how far rows and columns see, rounded up to the stride."""
        with torch.no_grad(), _set(self._trial, _standard, False):
            rows, columns = (-(-self._reach(axis) // self.stride) for axis in (2, 3))
        return rows * self.stride, columns * self.stride

    def _reach(self, axis: int) -> int:
        """How far NaN in one row spreads, wherever it lies between strides."""
        length = 16 * self.stride
        while length <= LONGEST_PIXELS:
            most = length // 2 - self.stride  # what gets there may go on
            if self._spread(axis, length, 0) < most:
                reach = max(self._spread(axis, length, shift) for shift in range(self.stride))
                if reach < most:
                    return reach
            length *= 2
        name = self._culprit(axis, length // 2)
        advice = "predict whole fields: no predict.tile, and enough predict.memory_GiB"
        raise ConfigError(f"model: {name} depends on the whole field, so it has no tiles; {advice}")

    def _spread(self, axis: int, length: int, shift: int) -> int:
        strip_BCHW = torch.zeros(1, self.channels, length, NARROW_PIXELS, dtype=torch.float64)
        strip_BCHW[:, :, length // 2 + shift] = torch.nan
        output_BKHW = self._trial(strip_BCHW if axis == 2 else strip_BCHW.mT)
        touched_P = output_BKHW[0].isnan().any(0).any(3 - axis).nonzero()[:, 0]
        away_P = touched_P * length // output_BKHW.shape[axis] - length // 2 - shift
        return int(away_P.abs().max()) if len(away_P) else 0

    def _culprit(self, axis: int, length: int) -> str:
        """The first layer that makes NaN everywhere of NaN somewhere."""
        found: list[nn.Module] = []

        def look(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if output.isnan().all() and not inputs[0].isnan().all():
                found.append(layer)

        with register_module_forward_hook(look):
            self._spread(axis, length, 0)
        names = {layer: name for name, layer in self._trial.named_modules()}
        return f"{names[found[0]]} ({type(found[0]).__name__})" if found else "the network"


class _Span(NamedTuple):
    """A tile along one axis, in pixels of the enlarged field."""

    start: int  # what it gives
    stop: int
    first: int  # what it reads
    last: int

    def until(self, size: int) -> _Span:
        """Of it what is in the field."""
        return self._replace(stop=min(self.stop, size))


def _spans(size: int, tile: int, margin: int, around: bool) -> list[_Span]:
    if tile + 2 * margin >= size:  # each would read all
        return [_Span(0, size, 0, size)]
    low, high = (-margin, size + margin) if around else (0, size)
    return [
        _Span(start, stop, max(start - margin, low), min(stop + margin, high))
        for start, stop in ((start, min(start + tile, size)) for start in range(0, size, tile))
    ]


def _gather(read: Callable[[slice, slice], Tensor], *pixels: NDArray[np.intp]) -> Tensor:
    """Reads pixels in any order, by runs of neighbours."""
    runs = [np.split(it, np.flatnonzero(np.diff(it) != 1) + 1) for it in pixels]
    rows, columns = ([slice(int(run[0]), int(run[-1]) + 1) for run in axis] for axis in runs)
    return torch.cat([torch.cat([read(row, column) for column in columns], -1) for row in rows], -2)


def _inner(map_BCHW: Tensor, spans: Sequence[_Span]) -> Tensor:
    """What a tile gives, of a map of what it reads; at any resolution."""
    for axis, span in zip((2, 3), spans, strict=True):
        scale = map_BCHW.shape[axis] / (span.last - span.first)
        start, stop = (round((it - span.first) * scale) for it in span[:2])
        map_BCHW = map_BCHW.narrow(axis, start, stop - start)
    return map_BCHW


class _Reached(Exception):
    """A forward pass has come to moments that are not known: a tile's sums and pixels."""


class _Means:
    """Mean and mean square of whole fields, in the order in which a network asks for them."""

    def __init__(self) -> None:
        self.known_2BC11: list[Tensor] = []
        self.asked = 0
        self.spans: Sequence[_Span] = ()

    def moments(self, field_BCHW: Tensor) -> Tensor:
        """What is known of the whole field, float64 of shape (2, B, C, 1, 1)."""
        self.asked += 1
        if self.asked <= len(self.known_2BC11):
            return self.known_2BC11[self.asked - 1]
        inner_BCHW = _inner(field_BCHW, self.spans).double()
        powers_2BCHW = torch.stack([inner_BCHW, inner_BCHW.square()])
        raise _Reached(powers_2BCHW.sum((3, 4), keepdim=True), inner_BCHW[0, 0].numel())

    def add(self, forward: Callable[[Sequence[_Span]], Tensor], tiles: Sequence[Any]) -> bool:
        """Sums the next over all tiles; False if there is none."""
        parts = []
        for spans in tiles:
            try:
                forward(spans)
                return False
            except _Reached as reached:
                parts.append(reached.args)
        sums, pixels = zip(*parts, strict=True)
        self.known_2BC11.append(torch.stack(sums).sum(0) / sum(pixels))
        return True


def _standard(field_BCHW: Tensor) -> Tensor:
    """Moments that depend on nothing."""
    one_BC11 = torch.ones_like(field_BCHW[..., :1, :1])
    return torch.stack([one_BC11 - 1, one_BC11])


@contextmanager
def _set(network: nn.Module, moments: Any, periodic: bool) -> Iterator[None]:
    """Sets for a while where moments come from, and whether columns go around."""
    layers = [it for it in network.modules() if isinstance(it, FieldMean | FieldNorm)]
    around = getattr(network, "periodic", None)
    try:
        for layer in layers:
            layer.moments = moments
        if around is not None:
            network.periodic = periodic  # type: ignore[assignment]
        yield
    finally:
        for layer in layers:
            layer.moments = None
        if around is not None:
            network.periodic = around
