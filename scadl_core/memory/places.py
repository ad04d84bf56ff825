"""Indices of pooling layers, without loss in a few bits each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# As many bytes side by side, in the order of the machine's, as numbers of so many bits in a byte.
_WIDE = {1: torch.int64, 2: torch.int32, 4: torch.int16, 8: torch.uint8}


@dataclass(frozen=True)
class NarrowCodes:
    """Small numbers side by side in bytes, in 1, 2, 4 or 8 bits each."""

    data: Tensor
    bits: int
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.data.nbytes

    def restore(self) -> Tensor:
        """The numbers, uint8."""
        count, wide = 8 // self.bits, self.data.to(_WIDE[self.bits])
        spread = wide.clone()
        for place in range(1, count):  # to the lowest bits of a byte each
            spread |= wide << ((8 - self.bits) * place)
        mask = torch.full((count,), 2**self.bits - 1, dtype=torch.uint8).view(_WIDE[self.bits])
        spread &= mask.to(spread.device)
        return spread.view(torch.uint8)[: math.prod(self.shape)].reshape(self.shape)


def narrow_codes(codes: Tensor) -> NarrowCodes:
    """Packs uint8 numbers into as many bits as the largest needs, rounded up to a divisor of 8."""
    needed = int(codes.max()).bit_length()
    bits = next(b for b in (1, 2, 4, 8) if b >= needed)
    flat = codes.reshape(-1)
    wide = torch.nn.functional.pad(flat, (0, -flat.numel() % (8 // bits))).view(_WIDE[bits])
    data = wide.clone()
    for place in range(1, 8 // bits):  # what a byte holds lies beside what the byte before holds
        data |= wide >> ((8 - bits) * place)
    return NarrowCodes((data & 255).to(torch.uint8), bits, tuple(codes.shape))


@dataclass(frozen=True)
class Places:
    """Indices of a pooling layer: where in its window each maximum lies.

    Row and column of an index are those of the window's first element, the same for every map, and
    a small rest.

    Attributes:
        rows: int32 (H, 1), the smallest row that any map has in the row of windows.
        columns: int32 (1, W).
        rest: What is added, as row times ``across`` plus column, in bits.
        across: Columns of a window.
        width: Columns of the input.
    """

    rows: Tensor
    columns: Tensor
    rest: NarrowCodes
    across: int
    width: int

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.rows.nbytes + self.columns.nbytes + self.rest.nbytes

    def restore(self) -> Tensor:
        """The indices, int64."""
        codes = torch.arange(256, device=self.rows.device)
        row = torch.div(codes, self.across, rounding_mode="floor")
        rest = (row * self.width + codes - row * self.across)[self.rest.restore().int()]
        return rest.add_((self.rows * self.width + self.columns).long())


def places_of(index: Tensor, width: int) -> Places | None:
    """Keeps indices into maps of ``width`` columns; None where windows do not lie on a grid.

    Args:
        index: int64 (..., H, W).
        width: Columns of the input.
    """
    narrow = index.int()  # a map has fewer than 2^31 pixels, and narrow numbers are faster
    row = torch.div(narrow, width, rounding_mode="floor")
    column = narrow - row * width
    maps = tuple(range(index.ndim - 2))
    rows = row.amin((*maps, -1), keepdim=True)
    columns = column.amin((*maps, -2), keepdim=True)
    row, column = row - rows, column - columns
    across = int(column.max()) + 1
    rest = row * across + column
    if int(rest.max()) > 255:
        return None
    return Places(rows, columns, narrow_codes(rest.to(torch.uint8)), across, width)
