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

    codes: Any  # int32, ``BEFORE`` zeros and 1024 codes
    errors: Any  # float64, 1024
    residuals: Any  # uint32, 1024
    kept: Any  # uint32, those that are not zero, and 32 more
    widths: Any  # uint32, 32: of rows
    groups: Any  # uint32, 32: widths of groups of what is kept
    masks: Any  # uint32, 32: of what is kept in each row


BEFORE = 1056  # a row is predicted from what lies up to 1024 codes before, and whole rows are read
ROOM_WORDS = 6304


@njit(nogil=True)
def room_of(memory: Any) -> Any:
    """A room in ``ROOM_WORDS`` words of uint32, zeros at first: one array is passed to a kernel
    sooner than eight.
    """
    return Room(
        codes=memory[0:2080].view(I32),
        errors=memory[2080:4128].view(np.float64),
        residuals=memory[4128:5152],
        kept=memory[5152:6208],
        widths=memory[6208:6240],
        groups=memory[6240:6272],
        masks=memory[6272:6304],
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


@njit(nogil=True)
def planes_of(descriptor: Any) -> Any:
    """How many planes the widths take."""
    flag = descriptor >> WIDTHS
    return I64(6) if flag == U32(3) else I64(2) + I64(flag)
