"""Codes of a tile to words: predict, choose a mode, cut into bit planes.

The words are described in ``docs/compress_format.md``. All arithmetic is on integers that wrap at
32 bits, so prediction loses nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from scadl_core.compress.cpu.lanes import (
    bit_length,
    compact_lanes,
    nonzero_lanes,
    or_of_lanes,
    pack_planes,
    popcount,
)
from scadl_core.compress.cpu.tiles import CONSTANT, RAW, SPARSE, WIDTHS, ZIGZAG, words_of

U32, I32, I64 = np.uint32, np.int32, np.int64


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
def _raw_width(raw: Any, first: Any, halves: Any) -> Any:
    """CONSTANT where all elements of a raw row have one pattern, else RAW."""
    for i in range(halves, 32 * halves):
        if raw[first + i] != raw[first + i - halves]:
            return RAW
    return CONSTANT


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
    for row in range(room.masks.size):
        width = room.widths[row]
        words = words_of(width, halves)
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
    for row in range(room.masks.size):
        k = compact_lanes(residuals, row * 32, room.masks[row], kept, k)
    for i in range(1024):
        kept[i] -= less
    kept[k : (k + 31) // 32 * 32] = 0
    widest = U32(0)
    for group in range(room.masks.size):
        room.groups[group] = 0
        if group * 32 < count:
            room.groups[group] = bit_length(or_of_lanes(kept, group * 32))
            widest = max(widest, room.groups[group])
    return widest


@njit(nogil=True)
def _measure_rows(room: Any, raw: Any, start: Any, halves: Any, bad_rows: Any) -> Any:
    """Widths of the rows: words they take, the widest, and how many are not empty."""
    words, widest, rows = I64(0), U32(0), I64(0)
    for row in range(room.masks.size):
        width = bit_length(or_of_lanes(room.residuals, row * 32))
        if (bad_rows >> U32(row)) & U32(1):
            width = _raw_width(raw, (start + row * 32) * halves, halves)
        room.widths[row] = width
        widest = max(widest, width)
        words += words_of(width, halves)
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
        for row in range(room.masks.size):
            if room.masks[row] != U32(0xFFFFFFFF):
                bad_rows = U32(bad_rows | U32(U32(1) << U32(row)))
    if bad_rows != U32(0):
        _bridge(room, law, bad_rows)
    union = _predict(room, law)
    count = I64(0)
    for row in range(room.masks.size):
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
    for row in range(room.masks.size):
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
