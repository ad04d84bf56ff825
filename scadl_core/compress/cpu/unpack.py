"""Words of a tile to codes.

Before a word is read the parts of the tile are known to add up to its size, whoever wrote it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from scadl_core.compress.cpu.lanes import (
    expand_lanes,
    popcount,
    running_sum,
    running_sum_across,
    unpack_higher_planes,
    unpack_planes,
)
from scadl_core.compress.cpu.quantise import NOTHING
from scadl_core.compress.cpu.tiles import (
    BEFORE,
    CONSTANT,
    RAW,
    SIZE_MASK,
    SPARSE,
    ZIGZAG,
    planes_of,
    words_of,
)

U32, I32, I64 = np.uint32, np.int32, np.int64


@njit(nogil=True)
def _read_row(words: Any, at: Any, width: Any, values: Any, first: Any) -> Any:
    unpack_planes(words, at, U32(width), values, first, U32(0))
    for plane in range(8, I64(width), 8):
        unpack_higher_planes(words, at + plane, U32(I64(width) - plane), values, first, U32(plane))


@njit(nogil=True)
def _read_dense(room: Any, words: Any, at: Any, size: Any, planes: Any, halves: Any) -> Any:
    """Residuals of a dense tile; False where its parts do not add up to its size."""
    unpack_planes(words, at, U32(planes), room.widths, 0, U32(0))
    total = planes
    for row in range(room.masks.size):
        if room.widths[row] > CONSTANT:
            return False
        total += words_of(room.widths[row], halves)
    if total != size:
        return False
    at += planes
    for row in range(room.masks.size):
        width = room.widths[row]
        _read_row(words, at, width if width <= U32(32) else U32(0), room.residuals, row * 32)
        at += words_of(width, halves)
    return True


@njit(nogil=True)
def _read_masks(room: Any, words: Any, at: Any, size: Any) -> Any:
    """Masks of a sparse tile: how many rows are not empty, how many elements; -1 where they do not
    fit.
    """
    rows = words[at]
    used, count = I64(popcount(rows)), I64(0)
    if used + 1 > size:
        return I64(-1), count
    at += 1
    for row in range(room.masks.size):
        room.masks[row] = 0
        if (rows >> U32(row)) & U32(1):
            room.masks[row] = words[at]
            count += I64(popcount(words[at]))
            at += 1
    return used, count


@njit(nogil=True)
def _expand(room: Any, dithered: Any) -> Any:
    """Puts what was kept to its places; what was not is zero."""
    k, more = I64(0), U32(0 if dithered else 1)
    for row in range(room.masks.size):
        k = expand_lanes(room.kept, k, room.masks[row], more, room.residuals, row * 32)


@njit(nogil=True)
def _read_sparse(room: Any, words: Any, at: Any, size: Any, planes: Any, dithered: Any) -> Any:
    """Residuals of a sparse tile; False where its parts do not add up to its size."""
    rows, count = _read_masks(room, words, at, size)
    if rows < 0 or 1 + rows + planes > size:
        return False
    room.widths[:] = 0
    unpack_planes(words, at + 1 + rows, U32(planes), room.groups, 0, U32(0))
    groups = (count + 31) // 32
    total = 1 + rows + planes
    for group in range(room.masks.size):
        width = room.groups[group]
        if width > U32(32) or (group >= groups and width > U32(0)):
            return False
        total += I64(width)
    if total != size:
        return False
    at += 1 + rows + planes
    for group in range(groups):
        _read_row(words, at, room.groups[group], room.kept, group * 32)
        at += I64(room.groups[group])
    _expand(room, dithered)
    return True


@njit(nogil=True)
def unpack_tile(room: Any, law: Any, words: Any, at: Any, descriptor: Any, halves: Any) -> Any:
    """Reads one tile into the room's codes, the first at index ``BEFORE``.

    Args:
        room: Working memory; its widths afterwards say which rows are raw.
        law: See :class:`scadl_core.compress.laws.Law`.
        words: uint32, with ``SLACK`` words behind the tile.
        at: The tile's first word.
        descriptor: What :func:`plan_tile` returned.
        halves: uint16 words an element.

    Returns:
        Whether the tile is whole.
    """
    size = I64(descriptor & SIZE_MASK)
    if size == 0:
        room.codes[BEFORE:] = NOTHING if law.dithered else I32(0)
        room.widths[:] = 0
        return descriptor == U32(0)
    planes = planes_of(descriptor)
    if planes > size:
        return False
    sparse = (descriptor & SPARSE) != U32(0)
    if sparse and not _read_sparse(room, words, at, size, planes, law.dithered):
        return False
    if not sparse and not _read_dense(room, words, at, size, planes, halves):
        return False
    _restore(room, law, U32((descriptor & ZIGZAG) != U32(0)))
    if law.dithered and sparse:
        for i in range(1024):
            if not (room.masks[i >> 5] >> U32(i & 31)) & U32(1):
                room.codes[BEFORE + i] = NOTHING
    return True


@njit(nogil=True)
def _restore(room: Any, law: Any, zigzag: Any) -> Any:
    """Codes from residuals. Sums along rows and across them may be taken in either order."""
    residuals, codes, total = room.residuals, room.codes, U32(0)
    if law.predictor == 0:
        for i in range(1024):
            value = residuals[i]
            codes[BEFORE + i] = I32((value >> zigzag) ^ U32(-I32(value & zigzag)))
    elif law.predictor == 2 and law.width >= 32:
        for row in range(room.masks.size):
            first, at = row * 32, BEFORE + row * 32
            total = running_sum_across(residuals, first, zigzag, total, codes, at, law.width)
    else:
        for row in range(room.masks.size):
            first, at = row * 32, BEFORE + row * 32
            total = running_sum(residuals, first, zigzag, total, codes, at, 0)
        if law.predictor == 2:
            for i in range(BEFORE + law.width, BEFORE + 1024):
                codes[i] += codes[i - law.width]


@njit(nogil=True)
def read_raw_rows(room: Any, words: Any, at: Any, halves: Any, raw: Any, start: Any) -> Any:
    """Overwrites the raw rows of a dense tile that :func:`unpack_tile` has read.

    Args:
        room: As it was left.
        words: uint32, the stream.
        at: The word behind the tile's widths.
        halves: uint16 words an element.
        raw: uint16, the memory of the array that is written.
        start: The tile's first element.
    """
    for row in range(room.masks.size):
        width = room.widths[row]
        if width > U32(32):
            first = (start + row * 32) * halves
            for i in range(32 * halves):
                j = i if width == RAW else i % halves
                raw[first + i] = (words[at + (j >> 1)] >> U32(16 * (j & 1))) & U32(0xFFFF)
        at += words_of(width, halves)
