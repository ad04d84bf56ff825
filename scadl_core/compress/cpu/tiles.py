"""Codes of a tile to words and back: predict, choose a mode, cut into bit planes.

The words of a tile are described in ``docs/compress_format.md``. All arithmetic is on integers that
wrap at 32 bits, so prediction loses nothing. A decoder checks, before it reads a word, that the
tile's parts add up to its size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from scadl_core.compress.cpu.lanes import (
    bit_length,
    compact_lanes,
    expand_lanes,
    nonzero_lanes,
    or_of_lanes,
    pack_planes,
    popcount,
    running_sum,
    unpack_planes,
)
from scadl_core.compress.cpu.quantise import NOTHING

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


def make_room() -> Room:
    """Empty working memory."""
    return Room(
        np.zeros(1025, I32),
        np.zeros(1024),
        np.zeros(2048, U32),
        np.zeros(1024, U32),
        np.zeros(1024 + 32, U32),
        np.zeros(32, U32),
        np.zeros(32, U32),
        np.zeros(32, U32),
    )


def most_words(bits: int) -> int:
    """How many words a tile of elements of so many bits can take: every row raw or all planes."""
    return 32 * max(bits, 32) + 8


@njit(nogil=True)
def _predict(room: Any, law: Any) -> Any:
    """Residuals of the codes; returns the OR of all."""
    codes, differences, residuals = room.codes, room.differences, room.residuals
    union = U32(0)
    if law.predictor == 0:
        for i in range(1024):
            value = U32(codes[i + 1])
            union |= value
            residuals[i] = value
    elif law.predictor == 1:
        for i in range(1024):
            value = U32(codes[i + 1] - codes[i])
            union |= value
            residuals[i] = value
    else:
        for i in range(1024):
            differences[1024 + i] = U32(codes[i + 1] - codes[i])
        above = differences[1024 - law.width :]
        for i in range(1024):
            value = U32(differences[1024 + i] - above[i])
            union |= value
            residuals[i] = value
    return union


@njit(nogil=True)
def _bridge(room: Any, law: Any, bad_rows: Any) -> Any:
    """Gives the elements of raw rows the codes that are predicted, so that the row costs nothing
    else and prediction goes on behind it.
    """
    codes, width = room.codes, law.width
    for i in range(1024):
        if (bad_rows >> U32(i >> 5)) & U32(1):
            value = I32(0)
            if law.predictor > 0:
                value = codes[i]
            if law.predictor == 2 and i >= width:
                value = I32(value + codes[i + 1 - width] - codes[i - width])
            codes[i + 1] = value


@njit(nogil=True)
def _zigzag(residuals: Any) -> Any:
    for i in range(1024):
        value = I32(residuals[i])
        residuals[i] = U32((value << 1) ^ (value >> 31))


@njit(nogil=True)
def _unzigzag(residuals: Any) -> Any:
    for i in range(1024):
        value = residuals[i]
        residuals[i] = U32(value >> U32(1)) ^ U32(-I32(value & U32(1)))


@njit(nogil=True)
def _raw_width(raw: Any, first: Any, halves: Any) -> Any:
    """CONSTANT where all elements of a raw row have one pattern, else RAW."""
    for i in range(halves, 32 * halves):
        if raw[first + i] != raw[first + i - halves]:
            return RAW
    return CONSTANT


@njit(nogil=True)
def _words_of(width: Any, halves: Any) -> Any:
    """How many words a row of this width takes."""
    if width == RAW:
        return I64(16 * halves)
    if width == CONSTANT:
        return I64((halves + 1) // 2)
    return I64(width)


@njit(nogil=True)
def _width_planes(widest: Any) -> Any:
    """How many planes the widths of rows take, and the two bits that say so."""
    if widest < U32(4):
        return I64(2), U32(0)
    if widest < U32(8):
        return I64(3), U32(1)
    if widest < U32(16):
        return I64(4), U32(2)
    return I64(6), U32(3)


@njit(nogil=True)
def _write_row(values: Any, row: Any, width: Any, out: Any, at: Any) -> Any:
    for plane in range(0, I64(width), 8):
        pack_planes(values, row * 32, U32(plane), out, at + plane)


@njit(nogil=True)
def _write_dense(room: Any, raw: Any, start: Any, halves: Any, out: Any, at: Any) -> Any:
    for row in range(32):
        width = room.widths[row]
        words = _words_of(width, halves)
        if width <= U32(32):
            _write_row(room.residuals, row, width, out, at)
        else:
            first = (start + row * 32) * halves
            for j in range(words):
                high = U32(raw[first + 2 * j + 1]) << U32(16)
                out[at + j] = U32(raw[first + 2 * j]) | U32(high)
        at += words
    return at


@njit(nogil=True)
def _compact(room: Any, count: Any, dithered: Any) -> Any:
    """Moves what is kept to the front and measures it by groups of 32; the widest group's width.

    Without dither zeros are exactly what is not kept, so one less is stored of each.
    """
    residuals, kept, less = room.residuals, room.kept, U32(0 if dithered else 1)
    k = I64(0)
    for row in range(32):
        k = compact_lanes(residuals, row * 32, room.masks[row], kept, k)
    for i in range(1024):
        kept[i] -= less
    kept[k : (k + 31) // 32 * 32] = 0
    widest = U32(0)
    for group in range(32):
        room.groups[group] = 0
        if group * 32 < count:
            room.groups[group] = bit_length(or_of_lanes(kept, group * 32))
            widest = max(widest, room.groups[group])
    return widest


@njit(nogil=True)
def _measure_rows(room: Any, raw: Any, start: Any, halves: Any, bad_rows: Any) -> Any:
    """Widths of the rows: words they take, the widest, and how many are not empty."""
    words, widest, rows = I64(0), U32(0), I64(0)
    for row in range(32):
        width = bit_length(or_of_lanes(room.residuals, row * 32))
        if (bad_rows >> U32(row)) & U32(1):
            width = _raw_width(raw, (start + row * 32) * halves, halves)
        room.widths[row] = width
        widest = max(widest, width)
        words += _words_of(width, halves)
        rows += I64(room.masks[row] != U32(0))
    return words, widest, rows


@njit(nogil=True)
def pack_tile(
    room: Any, law: Any, bad_rows: Any, raw: Any, start: Any, halves: Any, out: Any, at: Any
) -> Any:
    """Writes the words of one tile.

    Args:
        room: Holds the codes; under dither also the masks of what is not an exact zero.
        law: See :class:`scadl_core.compress.laws.Law`.
        bad_rows: Rows to keep raw, a bit each.
        raw: uint16, the memory of the array.
        start: The tile's first element.
        halves: uint16 words an element.
        out: uint32, with some words more than a tile can need.
        at: Where to begin.

    Returns:
        uint16 descriptor; its lowest 12 bits are the number of words written.
    """
    if law.dithered and bad_rows != U32(0):  # a dense tile cannot keep zeros exactly
        for row in range(32):
            if room.masks[row] != U32(0xFFFFFFFF):
                bad_rows |= U32(U32(1) << U32(row))
    if bad_rows != U32(0):
        _bridge(room, law, bad_rows)
    union = _predict(room, law)
    count = I64(0)
    for row in range(32):
        if not law.dithered:
            room.masks[row] = nonzero_lanes(room.residuals, row * 32)
        count += I64(popcount(room.masks[row]))
    if count == 0 and bad_rows == U32(0):
        return U32(0)
    zigzag = U32(0)
    if union >> U32(31):
        _zigzag(room.residuals)
        zigzag = ZIGZAG
    words, widest, rows = _measure_rows(room, raw, start, halves, bad_rows)
    planes, flag = _width_planes(widest)
    words += planes
    groups = (count + 31) // 32
    promising = (32 - groups) * I64(widest) + groups > rows
    if law.dithered:
        promising = count < 1024
    if bad_rows == U32(0) and promising:
        widest = _compact(room, count, law.dithered)
        sparse_planes, sparse_flag = _width_planes(widest)
        sparse_words = 1 + rows + sparse_planes
        for group in range(groups):
            sparse_words += I64(room.groups[group])
        if sparse_words < words or law.dithered:
            _write_sparse(room, groups, sparse_planes, out, at)
            return U32(sparse_words) | SPARSE | zigzag | U32(sparse_flag << WIDTHS)
    pack_planes(room.widths, 0, U32(0), out, at)
    _write_dense(room, raw, start, halves, out, at + planes)
    return U32(words) | zigzag | U32(flag << WIDTHS)


@njit(nogil=True)
def _write_sparse(room: Any, groups: Any, planes: Any, out: Any, at: Any) -> Any:
    rows = U32(0)
    end = at + 1
    for row in range(32):
        if room.masks[row] != U32(0):
            rows |= U32(U32(1) << U32(row))
            out[end] = room.masks[row]
            end += 1
    out[at] = rows
    pack_planes(room.groups, 0, U32(0), out, end)
    end += planes
    for group in range(groups):
        _write_row(room.kept, group, room.groups[group], out, end)
        end += I64(room.groups[group])


@njit(nogil=True)
def _read_widths(words: Any, at: Any, planes: Any, widths: Any) -> Any:
    widths[:] = 0
    unpack_planes(words, at, U32(planes), widths, 0, U32(0))


@njit(nogil=True)
def _read_row(words: Any, at: Any, width: Any, values: Any, first: Any) -> Any:
    for plane in range(0, I64(width), 8):
        unpack_planes(words, at + plane, U32(I64(width) - plane), values, first, U32(plane))


@njit(nogil=True)
def _read_dense(room: Any, words: Any, at: Any, size: Any, planes: Any, halves: Any) -> Any:
    """Residuals of a dense tile; False where its parts do not add up to its size."""
    _read_widths(words, at, planes, room.widths)
    total = planes
    for row in range(32):
        if room.widths[row] > CONSTANT:
            return False
        total += _words_of(room.widths[row], halves)
    if total != size:
        return False
    room.residuals[:] = 0
    at += planes
    for row in range(32):
        width = room.widths[row]
        if width <= U32(32):
            _read_row(words, at, width, room.residuals, row * 32)
        at += _words_of(width, halves)
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
    for row in range(32):
        room.masks[row] = 0
        if (rows >> U32(row)) & U32(1):
            room.masks[row] = words[at]
            count += I64(popcount(words[at]))
            at += 1
    return used, count


@njit(nogil=True)
def _expand(room: Any, dithered: Any) -> Any:
    """Puts what was kept to its places; what was not is zero."""
    residuals, kept, more = room.residuals, room.kept, U32(0 if dithered else 1)
    for i in range(1024):
        kept[i] += more
    k = I64(0)
    for row in range(32):
        k = expand_lanes(kept, k, room.masks[row], residuals, row * 32)


@njit(nogil=True)
def _read_sparse(room: Any, words: Any, at: Any, size: Any, planes: Any, dithered: Any) -> Any:
    """Residuals of a sparse tile; False where its parts do not add up to its size."""
    rows, count = _read_masks(room, words, at, size)
    if rows < 0 or 1 + rows + planes > size:
        return False
    room.widths[:] = 0
    _read_widths(words, at + 1 + rows, planes, room.groups)
    groups = (count + 31) // 32
    total = 1 + rows + planes
    for group in range(32):
        width = room.groups[group]
        if width > U32(32) or (group >= groups and width > U32(0)):
            return False
        total += I64(width)
    if total != size:
        return False
    room.kept[:] = 0
    at += 1 + rows + planes
    for group in range(groups):
        _read_row(words, at, room.groups[group], room.kept, group * 32)
        at += I64(room.groups[group])
    _expand(room, dithered)
    return True


@njit(nogil=True)
def _add_rows_above(residuals: Any, width: Any) -> Any:
    if width < 32:
        for i in range(width, 1024):
            residuals[i] += residuals[i - width]
        return
    for first in range(width, 1024, width):
        above = residuals[first - width : first]
        row = residuals[first : min(first + width, 1024)]
        for i in range(row.size):
            row[i] += above[i]


@njit(nogil=True)
def unpack_tile(room: Any, law: Any, words: Any, at: Any, descriptor: Any, halves: Any) -> Any:
    """Reads one tile into the room's codes, the first at index 1.

    Args:
        room: Working memory; its widths afterwards say which rows are raw.
        law: See :class:`scadl_core.compress.laws.Law`.
        words: uint32, with ``SLACK`` words behind the tile.
        at: The tile's first word.
        descriptor: What :func:`pack_tile` returned.
        halves: uint16 words an element.

    Returns:
        Whether the tile is whole.
    """
    size = I64(descriptor & SIZE_MASK)
    if size == 0:
        room.codes[1:] = NOTHING if law.dithered else I32(0)
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
    if descriptor & ZIGZAG:
        _unzigzag(room.residuals)
    _restore(room, law)
    if law.dithered and sparse:
        for i in range(1024):
            if not (room.masks[i >> 5] >> U32(i & 31)) & U32(1):
                room.codes[i + 1] = NOTHING
    return True


@njit(nogil=True)
def planes_of(descriptor: Any) -> Any:
    """How many planes the widths take."""
    flag = descriptor >> WIDTHS
    return I64(6) if flag == U32(3) else I64(2) + I64(flag)


@njit(nogil=True)
def _restore(room: Any, law: Any) -> Any:
    """Codes from residuals."""
    codes, residuals = room.codes, room.residuals
    if law.predictor == 0:
        for i in range(1024):
            codes[i + 1] = I32(residuals[i])
        return
    if law.predictor == 2:
        _add_rows_above(residuals, law.width)
    total = U32(0)
    for row in range(32):
        total = running_sum(residuals, row * 32, total, codes, row * 32 + 1)


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
    for row in range(32):
        width = room.widths[row]
        if width > U32(32):
            first = (start + row * 32) * halves
            for i in range(32 * halves):
                j = i if width == RAW else i % halves
                raw[first + i] = (words[at + (j >> 1)] >> U32(16 * (j & 1))) & U32(0xFFFF)
        at += _words_of(width, halves)
