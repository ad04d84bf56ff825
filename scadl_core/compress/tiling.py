"""The words of an array's tiles, without which law made them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

TILE = 1024  # elements
GROUP = 32  # tiles from one base to the next
CHUNK = 256  # tiles a thread does at a time; a multiple of GROUP
SIZE_MASK = 0xFFF
SLACK = 64  # words behind the last that a decoder may touch


@dataclass(frozen=True, eq=False)
class Tiles:
    """Descriptors and words.

    Attributes:
        descriptors: uint16, one a tile: bits 0-11 its size in words, 12 sparse, 13 zigzag, 14-15
            how many planes its widths take.
        words: uint32, all tiles' words one after the other, and slack that a decoder may touch.
    """

    descriptors: NDArray[np.uint16]
    words: NDArray[np.uint32]

    @cached_property
    def bases(self) -> NDArray[np.uint64]:
        """The first word of every 32nd tile, and behind them the number of words."""
        sizes = (self.descriptors & SIZE_MASK).astype(np.uint64)
        padded = np.zeros(-(-sizes.size // GROUP) * GROUP, np.uint64)
        padded[: sizes.size] = sizes
        sums = np.zeros(padded.size // GROUP + 1, np.uint64)
        np.cumsum(padded.reshape(-1, GROUP).sum(1, dtype=np.uint64), out=sums[1:])
        return sums

    @property
    def num_words(self) -> int:
        """How many words there are, without the slack."""
        return int(self.bases[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of bases, descriptors and words."""
        return 8 * (self.bases.size - 1) + 2 * self.descriptors.size + 4 * self.num_words


def count_tiles(size: int) -> int:
    """How many tiles an array of ``size`` elements has."""
    return -(-size // TILE)
