"""Runs of tiles: the kernels that the codec calls, each compiled once an array type.

They touch only what they are given, so threads may run them side by side without the interpreter's
lock. Arrays hold whole tiles; the caller pads the last one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scadl_core.compress.cpu import pack, tiles, unpack
from scadl_core.compress.cpu import quantise as values
from scadl_core.compress.laws import Law

U32, I64 = np.uint32, np.int64
_Law: Any = Law  # its fields are numbers of numba's here


class Kernel:
    """A function compiled for the machine, once for each kind of arguments, each kept in a file of
    its own where the interpreter keeps its code.

    In numba's cache the signatures of one function share an index: two processes that compile
    different ones at the same time may number them alike, and one's code then runs on the other's
    arrays (``IndexDataCacheFile.save`` reads the index, and writes it later, without a lock).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.compiled: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """What the function gives."""
        # Found by numbers: to write out the kinds takes as long as ten tiles.
        key = tuple([
            (it.dtype.num, it.flags.num, it.ndim) if isinstance(it, np.ndarray) else type(it)
            for it in arguments
        ])  # fmt: skip
        known = self._known.get(key)
        if known is None:
            kind = "_".join(map(_kind, arguments))
            if kind not in self.compiled:
                self.compiled[kind] = _compiled(self._function, kind)
            known = self._known[key] = self.compiled[kind]
        return known(*arguments)


def _kind(argument: Any) -> str:
    """What numba tells arguments apart by, as text."""
    if not isinstance(argument, np.ndarray):
        return type(argument).__name__
    flags = argument.flags
    order = "c" * flags.c_contiguous + "r" * (not flags.writeable) + "u" * (not flags.aligned)
    return f"{argument.dtype.name}{argument.ndim}{order}"


def _compiled(function: Callable[..., Any], kind: str) -> Any:
    """Without a place to keep it (a read-only installation without a home), it is compiled in each
    process.
    """
    named = FunctionType(
        function.__code__, function.__globals__, function.__name__, None, function.__closure__
    )
    # It names the file. numba looks for changes in the file of the outer function alone.
    named.__qualname__ = f"{function.__name__}.{kind}.{_digest()}"
    try:
        return njit(nogil=True, cache=True)(named)
    except RuntimeError:
        return njit(nogil=True)(named)


@cache
def _digest() -> str:
    """Of the sources of all kernels."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


@njit(nogil=True)
def _noise_of_tile(law: Any, first: Any, noises: Any) -> Any:
    for i in range(1024):
        noises[i] = values.noise(law.seed, first + i)


@njit(nogil=True)
def _mask_exact_zeros(raw: Any, start: Any, halves: Any, masks: Any) -> Any:
    for row in range(32):
        mask = U32(0)
        for lane in range(32):
            first = (start + row * 32 + lane) * halves
            union = U32(raw[first + halves - 1]) & U32(0x7FFF)
            for j in range(halves - 1):
                union |= U32(raw[first + j])
            mask |= U32((U32(1) if union else U32(0)) << U32(lane))
        masks[row] = mask


@njit(nogil=True)
def _law_of(whole: Any, real: Any) -> Any:
    return _Law(
        I64(whole[0]), I64(whole[1]), I64(whole[2]), whole[3] != 0, I64(whole[4]),
        real[0], real[1], real[2],
        I64(whole[5]), I64(whole[6]), whole[7], I64(whole[8]),
    )  # fmt: skip


def numbers_of(law: Law) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """A law as the two arrays that a kernel takes: passing twelve numbers costs more."""
    whole = [law.kind, law.predictor, law.width, law.dithered, law.seed]
    patterns = [law.shift, law.base, law.sign_bit, law.infinity]
    real = [law.inverse, law.step, law.tolerance]
    return np.array(whole + patterns, np.uint64), np.array(real)


@Kernel
def encode(
    x: Any, raw: Any, whole: Any, real: Any, memory: Any, at: Any, out: Any, descriptors: Any,
    noises: Any, stats: Any,
) -> Any:  # fmt: skip
    """Writes the words and descriptors of tiles; gives how many words there are."""
    halves = raw.size // x.size
    noises[:] = 0
    law, room = _law_of(whole, real), tiles.room_of(memory)
    used = I64(0)
    for tile in range(descriptors.size):
        first = tile * 1024
        if law.dithered:
            _noise_of_tile(law, at + first, noises)
            _mask_exact_zeros(raw, first, halves, room.masks)
        bad_rows = values.quantise(
            x[first : first + 1024], law, room.codes[tiles.BEFORE :], noises, room.errors, stats
        )
        described = pack.plan_tile(
            room, law.predictor, law.width, law.dithered, bad_rows, raw, first, halves
        )
        pack.write_tile(room, described, raw, first, halves, out, used)
        descriptors[tile] = described
        used += I64(described & tiles.SIZE_MASK)
    return used


@Kernel
def measure(
    x: Any, raw: Any, whole: Any, real: Any, memory: Any, stride: Any, widths: Any, noises: Any,
    sizes: Any,
) -> Any:  # fmt: skip
    """Adds to ``sizes[p]`` how many words tiles take under predictor p, of each with a width."""
    halves = raw.size // x.size
    noises[:] = 0
    law, room = _law_of(whole, real), tiles.room_of(memory)
    codes, stats = room.codes[tiles.BEFORE :], np.zeros(2)
    for first in range(0, x.size, stride * 1024):
        bad_rows = values.quantise(x[first : first + 1024], law, codes, noises, room.errors, stats)
        for predictor in range(widths.size):
            described = pack.plan_tile(
                room, predictor, widths[predictor], False, bad_rows, raw, first, halves
            )
            sizes[predictor] += I64(described & tiles.SIZE_MASK)


@Kernel
def decode(
    words: Any, offset: Any, limit: Any, descriptors: Any, whole: Any, real: Any, memory: Any,
    at: Any, noises: Any, x: Any, raw: Any, start: Any,
) -> Any:  # fmt: skip
    """Reads tiles; gives the first that is damaged, or -1."""
    halves = raw.size // x.size
    noises[:] = 0
    law, room = _law_of(whole, real), tiles.room_of(memory)
    for tile in range(descriptors.size):
        described = U32(descriptors[tile])
        size = I64(described & tiles.SIZE_MASK)
        if offset + size > limit:
            return I64(tile)
        if not unpack.unpack_tile(room, law, words, offset, described, halves):
            return I64(tile)
        first = start + tile * 1024
        if law.dithered:
            _noise_of_tile(law, at + first, noises)
        values.dequantise(room.codes[tiles.BEFORE :], law, noises, x[first : first + 1024])
        behind = offset + tiles.planes_of(described)
        if size > 0 and not described & tiles.SPARSE:
            unpack.read_raw_rows(room, words, behind, halves, raw, first)
        offset += size
    return I64(-1)


@Kernel
def scan(patterns: Any, sign_bit: Any, infinity: Any) -> Any:
    """Smallest and largest finite value and smallest magnitude above zero, by their patterns.

    Args:
        patterns: Unsigned.
        sign_bit: Of a pattern.
        infinity: The pattern of infinity.

    Returns:
        int64: keys that order as the values do (a pattern where it is not negative), and a pattern;
        with no finite value the first is above the second.
    """
    top = I64(infinity)
    low, high, least = top, -top, top
    for i in range(patterns.size):
        bits = np.uint64(patterns[i])
        size = I64(bits & np.uint64(sign_bit - np.uint64(1)))
        key = -size if bits >= np.uint64(sign_bit) else size
        finite = size < top
        low = min(low, key if finite else top)
        high = max(high, key if finite else -top)
        least = min(least, size if size > 0 else top)
    return low, high, least
