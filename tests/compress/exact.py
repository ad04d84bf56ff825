"""The bound in exact arithmetic, and a decoder written from docs/compress_format.md alone."""

from __future__ import annotations

import zlib
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Finite values exactly: in float64, or for float64 in long double (64 bits of significand)."""
    return array.astype(np.float64 if array.itemsize < 8 else np.longdouble)


def assert_bound(x: NDArray[Any], y: NDArray[Any], eps: float, relative: bool = False) -> None:
    """|x - y| <= eps (times |x|) for finite elements, the same bits for the others.

    Rounding is monotonic, so an element beyond the bound is not below it in the wider type either;
    those that are not below it by a margin are compared as fractions.
    """
    assert x.shape == y.shape
    assert x.dtype == y.dtype
    kind = UNSIGNED[x.itemsize]
    finite = np.isfinite(x)
    same = x.view(kind) == y.view(kind)
    assert same[~finite].all(), "NaN or infinity changed"
    x, y = x[finite & ~same], y[finite & ~same]
    assert np.isfinite(y).all()
    error = np.abs(widened(x) - widened(y))
    limit = eps * np.abs(widened(x)) if relative else np.full(1, eps)
    for i in np.flatnonzero(error >= limit * (1 - 2.0**-50)):
        exact = abs(Fraction(float(x[i])) - Fraction(float(y[i])))
        allowed = Fraction(eps) * (abs(Fraction(float(x[i]))) if relative else 1)
        assert exact <= allowed, (float(x[i]), float(y[i]), float(exact / allowed))


def decode_stream(stream: bytes) -> NDArray[np.uint32 | np.float64]:
    """Codes (int64) of a container without second stage; elements of raw rows are 0."""
    assert zlib.crc32(stream[:-4]) == int.from_bytes(stream[-4:], "little")
    at = 12 + int.from_bytes(stream[10:12], "little")
    fixed = stream[12:at]
    predictor, flags, axes = fixed[3], fixed[4], fixed[5]
    width = int.from_bytes(fixed[8:12], "little")
    num_tiles = int.from_bytes(fixed[-24:-16], "little")
    form = {0: 2, 1: 4, 2: 1, 3: 1}[fixed[0]]  # 16-bit words an element
    body = stream[at + 10 * axes : -4]
    descriptors = np.frombuffer(body, "<u2", num_tiles, 8 * -(-num_tiles // 32))
    words = np.frombuffer(body[8 * -(-num_tiles // 32) + -(-2 * num_tiles // 8) * 8 :], "<u4")
    codes, at = np.zeros((num_tiles, 1024), np.int64), 0
    for tile, descriptor in enumerate(descriptors.tolist()):
        size = descriptor & 0xFFF
        part = [int(w) for w in words[at : at + size]]
        codes[tile] = _tile(part, descriptor, predictor, width, form, bool(flags & 1))
        at += size
    assert at == words.size
    return codes.reshape(-1)


def _tile(
    words: list[int], descriptor: int, predictor: int, width: int, halves: int, dithered: bool
) -> NDArray[np.int64]:
    values = [0] * 1024
    planes = (2, 3, 4, 6)[descriptor >> 14]
    if words and descriptor >> 12 & 1:
        rows = [row for row in range(32) if words[0] >> row & 1]
        masks = dict(zip(rows, words[1:], strict=False))
        places = [32 * r + lane for r in rows for lane in range(32) if masks[r] >> lane & 1]
        at = 1 + len(rows)
        widths = _planes(words[at : at + planes])
        at += planes
        for group in range(-(-len(places) // 32)):
            lanes = _planes(words[at : at + widths[group]])
            at += widths[group]
            for place, value in zip(places[32 * group :], lanes, strict=False):
                values[place] = value + (not dithered)
        assert at == len(words)
    elif words:
        widths, at = _planes(words[:planes]), planes
        for row in range(32):
            taken = {33: 16 * halves, 34: -(-halves // 2)}.get(widths[row], widths[row])
            if widths[row] <= 32:
                values[32 * row : 32 * row + 32] = _planes(words[at : at + taken])
            at += taken
        assert at == len(words)
    residuals = np.array(values, np.int64)
    if descriptor >> 13 & 1:
        residuals = np.where(residuals & 1, -(residuals + 1) // 2, residuals // 2)
    if predictor == 2:
        for i in range(width, 1024):
            residuals[i] += residuals[i - width]
    if predictor:
        residuals = np.cumsum(residuals)
    return residuals.astype(np.uint32).astype(np.int32).astype(np.int64)


def _planes(words: list[int]) -> list[int]:
    return [sum((word >> lane & 1) << p for p, word in enumerate(words)) for lane in range(32)]
