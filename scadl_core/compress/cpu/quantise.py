"""Values to integer codes and back, a tile of 1024 at a time.

Two laws. *Linear*: code s = rint(x / step), x' = s * step. *Logarithmic*: the pattern of |x|
without its lowest bits, which is uniform in relative error. Each element is decoded again here and
checked; a row with an element outside the bound is named in the returned word and is kept raw.

Every operation is one IEEE 754 operation rounded to nearest, or an integer operation: no fused
multiply-add, no reciprocal, no logarithm. So any device gives the same codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from scadl_core.compress.cpu.lanes import (
    bits_of_double,
    bits_of_float,
    double_of_bits,
    float_of_bits,
    judge_floats,
    quantise_floats,
)
from scadl_core.compress.laws import KINDS, LOGARITHMIC

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64
F32, F64 = np.float32, np.float64
LARGEST_FLOAT_CODE = F32(2.0**22)  # rint of float32 is exact below, and so is the product's factor
LARGEST_DOUBLE_CODE = F64(2.0**30)  # codes are 32 bit
LARGEST_PATTERN_CODE = 2**30
# Errors are summed as integers, in units of step / 2048, so that their order does not matter.
ERROR_UNITS = 2048.0
NOTHING = I32(-(2**31))
HALF = KINDS["float16"]


@njit(nogil=True)
def bfloat_of_float(value: Any) -> Any:
    """The float32 nearest to ``value`` that is a bfloat16, as its pattern; ties to even."""
    bits = bits_of_float(value)
    return (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) & U32(0xFFFF0000)


@njit(nogil=True)
def half_of_float(value: Any) -> Any:
    """The pattern of the nearest float16; infinity's where there is none; ties to even."""
    bits = bits_of_float(value)
    sign = (bits >> U32(16)) & U32(0x8000)
    size = bits & U32(0x7FFFFFFF)
    # Adding 1/2 to a small number leaves its multiple of 2**-24 in the lowest bits.
    small = bits_of_float(float_of_bits(size) + F32(0.5)) - U32(0x3F000000)
    normal = (size + U32(0xC8000FFF) + ((size >> U32(13)) & U32(1))) >> U32(13)
    pattern = small if size < U32(0x38800000) else normal
    return sign | (pattern if size < U32(0x477FF000) else U32(0x7C00))


@njit(nogil=True)
def float_of_half(pattern: Any) -> Any:
    """The float32 of a float16 pattern."""
    size = (U32(pattern) & U32(0x7FFF)) << U32(13)
    normal = size + U32(0x38000000 if size < U32(0x0F800000) else 0x70000000)
    small = bits_of_float(float_of_bits(size + U32(0x38800000)) - float_of_bits(U32(0x38800000)))
    bits = small if size < U32(0x00800000) else normal
    return float_of_bits(bits | ((U32(pattern) & U32(0x8000)) << U32(16)))


@njit(nogil=True)
def float_of_bfloat(pattern: Any) -> Any:
    """The float32 of a bfloat16 pattern."""
    return float_of_bits(U32(pattern) << U32(16))


@njit(nogil=True)
def itself(value: Any) -> Any:
    """What float32 needs in place of a conversion."""
    return value


@njit(nogil=True)
def rounded_to_half(value: Any) -> Any:
    """The float32 of the nearest float16."""
    return float_of_half(half_of_float(value))


@njit(nogil=True)
def rounded_to_bfloat(value: Any) -> Any:
    """The float32 of the nearest bfloat16."""
    return float_of_bits(bfloat_of_float(value))


@njit(nogil=True)
def noise(seed: Any, index: Any) -> Any:
    """Uniform in [-1/2, 1/2), a multiple of 2**-24, from a hash of the element's index alone.

    The finaliser of MurmurHash3 (Appleby 2016) over the index and the seed.
    """
    value = U32(index) ^ U32(seed)
    value = U32((value ^ (value >> U32(16))) * U32(0x85EBCA6B))
    value = U32((value ^ (value >> U32(13))) * U32(0xC2B2AE35))
    value = U32(value ^ (value >> U32(16)))
    return F32(I32(value >> U32(8))) * F32(2.0**-24) - F32(0.5)


def _linear(widened: Callable[..., Any], rounded: Callable[..., Any], dithered: bool) -> Any:
    """The linear law for values that a float32 holds.

    Args:
        widened: Makes a float32 of what the array holds.
        rounded: Rounds a float32 to the type of the array.
        dithered: Whether noise is added before rounding and subtracted after (Schuchman 1964).
    """

    @njit(nogil=True)
    def quantise(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
        inverse, step = F32(law.inverse), F32(law.step)
        error = errors.view(np.float32)[:1024]  # what a tile of doubles left lies behind
        for i in range(1024):
            value = widened(x[i])
            scaled = value * inverse
            if dithered:
                scaled = scaled + noises[i]
            code = np.rint(scaled)
            code = code if np.abs(code) < LARGEST_FLOAT_CODE else F32(0)
            codes[i] = I32(code)
            if dithered:
                code = F32(0) if value == F32(0) else code - noises[i]
            error[i] = np.abs(value - rounded(code * step))
        found = judge_floats(error, inverse, step, F32(0), F32(law.tolerance), codes)
        return _noted(found, stats)

    return quantise


@njit(nogil=True)
def _float(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
    """The linear law for float32 without dither, all of it in registers."""
    inverse, step, tolerance = F32(law.inverse), F32(law.step), F32(law.tolerance)
    found = quantise_floats(x, inverse, step, LARGEST_FLOAT_CODE, tolerance, codes)
    return _noted(found, stats)


@njit(nogil=True)
def _noted(found: Any, stats: Any) -> Any:
    """Adds to the statistics what the judge found; the rows outside the bound."""
    bad_rows, worst, squares = found
    stats[0] = max(stats[0], F64(float_of_bits(U32(worst))))
    stats[1] += F64(squares)
    return U32(bad_rows)


@njit(nogil=True)
def _judge_doubles(errors: Any, inverse: Any, tolerance: Any, stats: Any) -> Any:
    """Finds rows with an error above the tolerance."""
    # Compared as patterns, which order as the values do and set NaN above all.
    bad_rows, worst, squares = U32(0), I64(0), I64(0)
    most = I64(bits_of_double(tolerance))
    for row in range(32):
        top, row_squares = I64(0), I64(0)
        for lane in range(32):
            error = errors[row * 32 + lane]
            top = max(top, I64(bits_of_double(error)))
            steps = error * inverse
            unit = I64(np.rint((steps if steps < 1.0 else 1.0) * ERROR_UNITS))
            row_squares += unit * unit
        bad = top > most
        bad_rows = U32(bad_rows | U32(U32(bad) << U32(row)))
        squares += I64(0) if bad else row_squares
        worst = worst if bad else max(worst, top)
    stats[0] = max(stats[0], double_of_bits(U64(worst)))
    stats[1] += F64(squares)
    return bad_rows


@njit(nogil=True)
def _double(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
    """The linear law for float64. The noise is zero where there is no dither."""
    inverse, step = law.inverse, law.step
    for i in range(1024):
        value = x[i]
        code = np.rint(value * inverse + F64(noises[i]))
        code = code if np.abs(code) < LARGEST_DOUBLE_CODE else F64(0)
        codes[i] = I32(code)
        code = F64(0) if value == F64(0) else code - F64(noises[i])
        errors[i] = np.abs(value - code * step)
    return _judge_doubles(errors, inverse, law.tolerance, stats)


@njit(nogil=True)
def _pattern(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
    """The logarithmic law for patterns of any width; without a shift it is exact.

    With p the pattern of |x| and h = 2**(shift - 1), |p - p'| <= h, so |x - x'| <= eps |x| for
    h <= eps 2**mantissa: within a binade one unit of p is 2**-mantissa of its lower end; across its
    upper end units double, and so has |x|.
    """
    shift, base = U64(law.shift), U64(law.base)
    half = (U64(1) << shift) >> U64(1)
    magnitude = U64(law.sign_bit) - U64(1)
    bad_rows = U32(0)
    worst, squares = U64(0), U64(0)
    for row in range(x.size // 32):
        bad, top, sum_of_squares = U32(0), U64(0), U32(0)
        for lane in range(32):
            bits = U64(x[row * 32 + lane])
            size = bits & magnitude
            negative = bits > magnitude
            code = (size - base + half) >> shift
            again = (code << shift) + base
            fits = size >= base and code < U64(LARGEST_PATTERN_CODE)
            fits = fits and (shift == U64(0) or (size < U64(law.infinity) > again))
            error = size - again if size > again else again - size
            code = code + U64(1)
            zero = size == U64(0) and (shift > U64(0) or not negative)
            code = U64(0) if zero or not fits else code
            error = U64(0) if zero else error
            codes[row * 32 + lane] = I32(U64(0) - code if negative else code)
            bad |= U32(0) if fits or zero else U32(1)
            top = max(top, error)
            unit = U32((error << U64(11)) >> shift)
            sum_of_squares += U32(unit * unit)
        bad_rows |= bad << U32(row)
        if bad == 0:
            worst = max(worst, top)
            squares += U64(sum_of_squares)
    stats[0] = max(stats[0], F64(worst))
    stats[1] += F64(squares)
    return bad_rows


_FLOAT_DITHERED = _linear(itself, itself, True)
_HALF = _linear(float_of_half, rounded_to_half, False)
_HALF_DITHERED = _linear(float_of_half, rounded_to_half, True)
_BFLOAT = _linear(float_of_bfloat, rounded_to_bfloat, False)
_BFLOAT_DITHERED = _linear(float_of_bfloat, rounded_to_bfloat, True)


def quantise(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
    """Codes of a tile, by the type of the array and the law.

    Args:
        x: The tile: float32, float64, or patterns of 16 bits for the linear laws; patterns for the
            logarithmic.
        law: A :class:`scadl_core.compress.laws.Law`.
        codes: int32, receives 1024 codes.
        noises: float32, 1024 values of :func:`noise`.
        errors: float64, room for 1024.
        stats: float64, the largest error and the sum of squared errors in units of step / 2048.

    Returns:
        uint32; bit r says that row r holds an element outside the bound.
    """
    raise NotImplementedError


@overload(quantise, jit_options={"nogil": True})
def _quantise(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
    def of_floats(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
        if law.dithered:
            return _FLOAT_DITHERED(x, law, codes, noises, errors, stats)
        return _float(x, law, codes, noises, errors, stats)

    def of_shorts(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
        if law.kind == LOGARITHMIC:
            return _pattern(x, law, codes, noises, errors, stats)
        if law.kind == HALF:
            if law.dithered:
                return _HALF_DITHERED(x, law, codes, noises, errors, stats)
            return _HALF(x, law, codes, noises, errors, stats)
        if law.dithered:
            return _BFLOAT_DITHERED(x, law, codes, noises, errors, stats)
        return _BFLOAT(x, law, codes, noises, errors, stats)

    def of_doubles(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
        return _double(x, law, codes, noises, errors, stats)

    def of_patterns(x: Any, law: Any, codes: Any, noises: Any, errors: Any, stats: Any) -> Any:
        return _pattern(x, law, codes, noises, errors, stats)

    found = {types.float32: of_floats, types.float64: of_doubles, types.uint16: of_shorts}
    return found.get(x.dtype, of_patterns)


def dequantise(codes: Any, law: Any, noises: Any, x: Any) -> Any:
    """Values of the codes of a tile.

    Args:
        codes: int32; ``NOTHING`` for an exact zero under dither.
        law: As for :func:`quantise`.
        noises: As for :func:`quantise`.
        x: What :func:`quantise` took, receives the values.
    """
    raise NotImplementedError


@overload(dequantise, jit_options={"nogil": True})
def _dequantise(codes: Any, law: Any, noises: Any, x: Any) -> Any:
    def to_floats(codes: Any, law: Any, noises: Any, x: Any) -> Any:
        step = F32(law.step)
        if not law.dithered:
            for i in range(1024):
                x[i] = F32(codes[i]) * step
            return
        for i in range(1024):
            x[i] = _denoised(codes[i], noises[i], step)

    def to_shorts(codes: Any, law: Any, noises: Any, x: Any) -> Any:
        step = F32(law.step)
        if law.kind == LOGARITHMIC:
            _unpattern(codes, law, x)
        elif law.kind == HALF:
            for i in range(1024):
                x[i] = half_of_float(_denoised(codes[i], noises[i], step))
        else:
            for i in range(1024):
                value = _denoised(codes[i], noises[i], step)
                x[i] = bfloat_of_float(value) >> U32(16)

    def to_doubles(codes: Any, law: Any, noises: Any, x: Any) -> Any:
        for i in range(1024):
            code = codes[i]
            value = (F64(code) - F64(noises[i])) * law.step
            x[i] = F64(0) if law.dithered and code == NOTHING else value

    def to_patterns(codes: Any, law: Any, noises: Any, x: Any) -> Any:
        _unpattern(codes, law, x)

    found = {types.float32: to_floats, types.float64: to_doubles, types.uint16: to_shorts}
    return found.get(x.dtype, to_patterns)


@njit(nogil=True)
def _denoised(code: Any, noise: Any, step: Any) -> Any:
    return F32(0) if code == NOTHING else (F32(code) - noise) * step


@njit(nogil=True)
def _unpattern(codes: Any, law: Any, x: Any) -> Any:
    shift, base = U64(law.shift), U64(law.base)
    for i in range(1024):
        code = np.int64(codes[i])
        size = ((U64(abs(code)) - U64(1)) << shift) + base
        sign = U64(law.sign_bit) if code < 0 else U64(0)
        x[i] = U64(0) if code == 0 else size | sign
