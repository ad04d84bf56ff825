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
    or_of_lanes,
    pack_higher_planes,
    pack_planes,
    popcount,
    residuals_across,
    residuals_along,
    residuals_of_codes,
)
from scadl_core.compress.cpu.tiles import (
    BEFORE,
    CONSTANT,
    RAW,
    SIZE_MASK,
    SPARSE,
    WIDTHS,
    ZIGZAG,
    planes_of,
    words_of,
)

U32, I32, I64 = np.uint32, np.int32, np.int64


@njit(nogil=True)
def _predict(room: Any, predictor: Any, width: Any, dithered: Any) -> Any:
    """Residuals of the codes in zigzag order, their rows' widths, and which are not zero, which
    under dither is known; returns the OR of all.
    """
    union = U32(0)
    for row in range(room.masks.size):
        at, first = BEFORE + row * 32, row * 32
        if predictor == 0:
            mask, bits = residuals_of_codes(room.codes, at, width, room.residuals, first)
        elif predictor == 1:
            mask, bits = residuals_along(room.codes, at, width, room.residuals, first)
        else:
            mask, bits = residuals_across(room.codes, at, width, room.residuals, first)
        if not dithered:
            room.masks[row] = mask
        room.widths[row] = bit_length(bits)
        union |= bits
    return union


@njit(nogil=True)
def _bridge(room: Any, predictor: Any, width: Any, bad_rows: Any) -> Any:
    """Gives the elements of raw rows the codes that are predicted, so that the row costs nothing
    else and prediction goes on behind it.
    """
    codes = room.codes
    for i in range(BEFORE, BEFORE + 1024):
        if (bad_rows >> U32((i - BEFORE) >> 5)) & U32(1):
            value = I32(0)
            if predictor > 0:
                value = codes[i - 1]
            if predictor == 2:
                value = I32(value + codes[i - width] - codes[i - width - 1])
            codes[i] = value


@njit(nogil=True)
def _undo_zigzag(room: Any) -> Any:
    """Residuals as they are, where none is negative: all are half as large."""
    for i in range(1024):
        room.residuals[i] >>= U32(1)
    for row in range(room.masks.size):
        room.widths[row] -= U32(room.widths[row] > U32(0))


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
    if width > U32(0):
        pack_planes(values, row * 32, U32(0), out, at)
    for plane in range(8, I64(width), 8):
        pack_higher_planes(values, row * 32, U32(plane), out, at + plane)


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
    kept, less = room.kept, U32(0 if dithered else 1)
    k = I64(0)
    for row in range(room.masks.size):
        k = compact_lanes(room.residuals, row * 32, room.masks[row], less, kept, k)
    kept[k : (k + 31) // 32 * 32] = 0
    widest = U32(0)
    for group in range((count + 31) // 32):
        room.groups[group] = bit_length(or_of_lanes(kept, group * 32))
        widest = max(widest, room.groups[group])
    room.groups[(count + 31) // 32 :] = 0
    return widest


@njit(nogil=True)
def _measure_rows(room: Any, halves: Any) -> Any:
    """Words that the rows take, the width of the widest, how many rows and elements are kept."""
    words, widest, rows, count = U32(0), U32(0), U32(0), U32(0)
    for row in range(32):
        widest = max(widest, room.widths[row])
        words += U32(words_of(room.widths[row], halves))
        rows += U32(room.masks[row] != U32(0))
        count += popcount(room.masks[row])
    return I64(words), widest, I64(rows), I64(count)


@njit(nogil=True)
def plan_tile(
    room: Any, predictor: Any, width: Any, dithered: Any, bad_rows: Any, raw: Any, start: Any,
    halves: Any,
) -> Any:  # fmt: skip
    """Predicts one tile and chooses its form.

    Args:
        room: Holds the codes; under dither also the masks of what is not an exact zero. Afterwards
            holds what :func:`write_tile` needs; the codes of raw rows are replaced.
        predictor: See :class:`scadl_core.compress.laws.Law`.
        width: See there.
        dithered: See there.
        bad_rows: Rows to keep raw, a bit each.
        raw: uint16, the memory of the array.
        start: The tile's first element.
        halves: uint16 words an element.

    Returns:
        uint16 descriptor; its lowest 12 bits are how many words the tile takes.
    """
    if dithered and bad_rows != U32(0):  # a dense tile cannot keep zeros exactly
        for row in range(room.masks.size):
            if room.masks[row] != U32(0xFFFFFFFF):
                bad_rows = U32(bad_rows | U32(U32(1) << U32(row)))
    if bad_rows != U32(0):
        _bridge(room, predictor, width, bad_rows)
    union = _predict(room, predictor, width, dithered)
    if union == U32(0) and bad_rows == U32(0) and not dithered:
        return U32(0)
    zigzag = ZIGZAG
    if not union & U32(1):
        _undo_zigzag(room)
        zigzag = U32(0)
    for row in range(room.masks.size):
        if (bad_rows >> U32(row)) & U32(1):
            room.widths[row] = _raw_width(raw, (start + row * 32) * halves, halves)
    words, widest, rows, count = _measure_rows(room, halves)
    if count == 0 and bad_rows == U32(0):
        return U32(0)
    groups = (count + 31) // 32
    # A group is about as wide as a row: then only is a sparse tile worth trying.
    promising = groups * words + rows * (rows + 1) < rows * words
    if dithered:
        promising = count < 1024
    planes, flag = _width_planes(widest)
    words += planes
    if bad_rows == U32(0) and promising:
        sparse_planes, sparse_flag = _width_planes(_compact(room, count, dithered))
        sparse_words = 1 + rows + sparse_planes
        for group in range(groups):
            sparse_words += I64(room.groups[group])
        if sparse_words < words or dithered:
            return U32(sparse_words) | SPARSE | zigzag | U32(sparse_flag << WIDTHS)
    return U32(words) | zigzag | U32(flag << WIDTHS)


@njit(nogil=True)
def write_tile(
    room: Any, descriptor: Any, raw: Any, start: Any, halves: Any, out: Any, at: Any
) -> Any:
    """Writes the words of one tile.

    Args:
        room: As :func:`plan_tile` left it.
        descriptor: What that returned.
        raw: As there.
        start: As there.
        halves: As there.
        out: uint32, with some words more than a tile can need.
        at: Where to begin.
    """
    if descriptor & SIZE_MASK:
        planes = planes_of(descriptor)
        if descriptor & SPARSE:
            _write_sparse(room, planes, out, at)
        else:
            pack_planes(room.widths, 0, U32(0), out, at)
            _write_dense(room, raw, start, halves, out, at + planes)


@njit(nogil=True)
def _write_sparse(room: Any, planes: Any, out: Any, at: Any) -> Any:
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
    for group in range(room.groups.size):
        _write_row(room.kept, group, room.groups[group], out, end)
        end += I64(room.groups[group])
