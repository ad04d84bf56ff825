"""What packing and unpacking of a tile share: its words' meaning and a thread's working memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64
RAW, CONSTANT = U32(33), U32(34)  # in place of the number of planes
SIZE_MASK, SPARSE, ZIGZAG, WIDTHS = U32(0xFFF), U32(1 << 12), U32(1 << 13), U32(14)


class Room(NamedTuple):
    """A thread's working memory for one tile."""

    codes: Any  # int32, one zero and 1024 codes
    errors: Any  # float64, 1024
    differences: Any  # uint32, 1024 zeros and 1024 differences along a row
    residuals: Any  # uint32, 1024
    kept: Any  # uint32, those that are not zero, and 32 more
    widths: Any  # uint32, 32: of rows
    groups: Any  # uint32, 32: widths of groups of what is kept
    masks: Any  # uint32, 32: of what is kept in each row


ROOM_WORDS = 7297


@njit(nogil=True)
def room_of(memory: Any) -> Any:
    """A room in ``ROOM_WORDS`` words of uint32, zeros at first: one array is passed to a kernel
    sooner than eight.
    """
    return Room(
        codes=memory[6272:7297].view(I32),
        errors=memory[4224:6272].view(np.float64),
        differences=memory[0:2048],
        residuals=memory[2048:3072],
        kept=memory[3072:4128],
        widths=memory[4128:4160],
        groups=memory[4160:4192],
        masks=memory[4192:4224],
    )


def most_words(bits: int) -> int:
    """How many words a tile of elements of so many bits can take: every row raw or all planes."""
    return 32 * max(bits, 32) + 8


@njit(nogil=True)
def words_of(width: Any, halves: Any) -> Any:
    """How many words a row of this width takes."""
    if width == RAW:
        return I64(16 * halves)
    if width == CONSTANT:
        return I64((halves + 1) // 2)
    return I64(width)
