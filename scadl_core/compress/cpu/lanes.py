"""What a row of 32 codes needs and Python cannot say: bit planes, masks, counts.

Written as LLVM vectors of 32 lanes, so that every processor uses the widest registers it has. On a
GPU a row is a warp, a plane word is one ballot, and the same words come out.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from scadl_core.compress.cpu.vectors import (
    BYTES,
    CODES,
    F32,
    I8,
    I32,
    I64,
    REALS,
    WORDS,
    call,
    is_above,
    lanes_at,
    larger,
    order_of,
    permute,
    pointer,
    reduced,
    shuffle,
    splat,
    table_of,
    transpose,
    union,
)

_COMPACT = [([lane for lane in range(8) if byte >> lane & 1] + [0] * 8)[:8] for byte in range(256)]
_EXPAND = [[(byte & ((1 << lane) - 1)).bit_count() for lane in range(8)] for byte in range(256)]
# Running sums of 8 lanes (8 is a zero), within halves, which costs least, and then across.
_SUMMED = [[8, 0, 1, 2, 8, 4, 5, 6], [8, 8, 0, 1, 8, 8, 4, 5], [8, 8, 8, 8, 3, 3, 3, 3]]
_TO_PLANES = [8 * (byte % 4) + byte // 4 for byte in range(32)]
_TO_LANES = [4 * (byte % 8) + byte // 8 for byte in range(32)]


def _packer(shifts: bool) -> Any:
    """Bit planes of codes; ``shifts`` says whether from another bit than the lowest."""

    @intrinsic
    def pack(typingctx: Any, codes: Any, first: Any, shift: Any, out: Any, at: Any) -> Any:
        """Writes ``out[at + p]``, p in 0..7: bit l is bit ``shift + p`` of ``codes[first + l]``."""

        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            row = builder.load(lanes_at(context, builder, signature, values, 0, CODES), align=4)
            if shifts:
                row = builder.lshr(row, splat(builder, values[2], I32, 32))
            planes = transpose(builder, builder.trunc(row, BYTES))
            words = builder.bitcast(shuffle(builder, planes, _TO_PLANES), WORDS)
            builder.store(words, lanes_at(context, builder, signature, values, 3, WORDS), align=4)
            return context.get_dummy_value()

        return types.void(codes, types.int64, types.uint32, out, types.int64), build

    return pack


pack_planes, pack_higher_planes = _packer(False), _packer(True)


def _unpacker(joins: bool) -> Any:
    """Codes from bit planes; ``joins`` says whether lower planes are there already."""

    @intrinsic
    def unpack(
        typingctx: Any, words: Any, first: Any, count: Any, codes: Any, at: Any, shift: Any
    ) -> Any:
        """Makes bits ``shift`` and up of ``codes[at : at + 32]`` from ``count`` planes, 8 at most.

        Reads eight words whatever the count.
        """

        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            planes = builder.load(lanes_at(context, builder, signature, values, 0, WORDS), align=4)
            shuffled = shuffle(builder, builder.bitcast(planes, BYTES), _TO_LANES)
            mask = builder.sub(builder.shl(I32(1), values[2]), I32(1))
            mask = builder.select(is_above(builder, values[2], 7), I32(255), mask)
            mask = splat(builder, builder.trunc(mask, I8), I8, 32)
            codes = builder.zext(builder.and_(transpose(builder, shuffled), mask), CODES)
            target = lanes_at(context, builder, signature, values, 3, CODES)
            if joins:
                codes = builder.shl(codes, splat(builder, values[5], I32, 32))
                codes = builder.or_(builder.load(target, align=4), codes)
            builder.store(codes, target, align=4)
            return context.get_dummy_value()

        types_of = (words, types.int64, types.uint32, codes, types.int64, types.uint32)
        return types.void(*types_of), build

    return unpack


unpack_planes, unpack_higher_planes = _unpacker(False), _unpacker(True)


def _residuals(order: int) -> Any:
    """What a predictor leaves of a row of codes, by how many differences it takes."""

    @intrinsic
    def residuals(typingctx: Any, codes: Any, at: Any, width: Any, out: Any, first: Any) -> Any:
        """Writes the residuals of ``codes[at : at + 32]`` to ``out[first:]`` in zigzag order: 0,
        -1, 1, -2 and so on become 0, 1, 2, 3.

        Order 1 takes off the code before; order 2 does the same ``width`` before, too, and takes
        that off.

        Returns:
            The word whose bit l says whether residual l is not zero, and the OR of all 32.
        """

        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            def row(at: Any) -> Any:
                source = pointer(context, builder, signature, values, 0, at, CODES)
                return builder.load(source, align=4)

            def differences(at: Any) -> Any:
                return builder.sub(row(at), row(builder.sub(at, I64(1))))

            residual = row(values[1]) if order == 0 else differences(values[1])
            if order == 2:
                above = differences(builder.sub(values[1], values[2]))
                residual = builder.sub(residual, above)
            twice = builder.shl(residual, ir.Constant(CODES, [1] * 32))
            sign = builder.ashr(residual, ir.Constant(CODES, [31] * 32))
            coded = builder.xor(twice, sign)
            target = pointer(context, builder, signature, values, 3, values[4], CODES)
            builder.store(coded, target, align=4)
            mask = builder.icmp_unsigned("!=", residual, ir.Constant(CODES, None))
            found = builder.bitcast(mask, I32), union(builder, coded)
            return context.make_tuple(builder, signature.return_type, found)

        pair = types.UniTuple(types.uint32, 2)
        return pair(codes, types.int64, types.int64, out, types.int64), build

    return residuals


residuals_of_codes, residuals_along, residuals_across = map(_residuals, range(3))


@intrinsic
def or_of_lanes(typingctx: Any, codes: Any, first: Any) -> Any:
    """The bitwise OR of ``codes[first : first + 32]``."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row = builder.load(lanes_at(context, builder, signature, values, 0, CODES), align=4)
        return union(builder, row)

    return types.uint32(codes, types.int64), build


@intrinsic
def compact_lanes(
    typingctx: Any, values: Any, first: Any, mask: Any, less: Any, out: Any, at: Any
) -> Any:
    """Writes those of 32 lanes whose bit is set, each less by ``less``, one after the other;
    returns where they end.

    Up to seven more words behind them are touched.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = table_of(context, builder, "compact", _COMPACT)
        less, at = splat(builder, values[3], I32, 8), values[5]
        for block in range(4):
            byte, order = order_of(builder, table, values[2], block)
            source = lanes_at(context, builder, signature, values, 0, WORDS, 8 * block)
            lanes = builder.sub(builder.load(source, align=4), less)
            target = pointer(context, builder, signature, values, 4, at, WORDS)
            builder.store(permute(context, builder, lanes, order), target, align=4)
            at = builder.add(at, builder.zext(builder.ctpop(byte), I64))
        return at

    signature = types.int64(values, types.int64, types.uint32, types.uint32, out, types.int64)
    return signature, build


@intrinsic
def expand_lanes(
    typingctx: Any, values: Any, at: Any, mask: Any, more: Any, out: Any, first: Any
) -> Any:
    """Puts one value after the other, each more by ``more``, to those of 32 lanes whose bit is set,
    and zero to the others; returns where the values end. Up to seven more behind them are read.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = table_of(context, builder, "expand", _EXPAND)
        more, at = splat(builder, values[3], I32, 8), values[1]
        for block in range(4):
            byte, order = order_of(builder, table, values[2], block)
            source = pointer(context, builder, signature, values, 0, at, WORDS)
            lanes = builder.add(builder.load(source, align=4), more)
            bits = builder.bitcast(builder.trunc(byte, I8), ir.VectorType(ir.IntType(1), 8))
            lanes = permute(context, builder, lanes, order)
            lanes = builder.select(bits, lanes, ir.Constant(WORDS, None))
            target = lanes_at(context, builder, signature, values, 4, WORDS, 8 * block)
            builder.store(lanes, target, align=4)
            at = builder.add(at, builder.zext(builder.ctpop(byte), I64))
        return at

    signature = types.int64(values, types.int64, types.uint32, types.uint32, out, types.int64)
    return signature, build


def _summing(across: bool) -> Any:
    """Codes from residuals, by whether they were taken across rows, too."""

    @intrinsic
    def sums(
        typingctx: Any, values: Any, first: Any, zigzag: Any, total: Any, out: Any, at: Any,
        width: Any,
    ) -> Any:  # fmt: skip
        """Writes the running sums of 32 lanes, begun at ``total``; returns the last.

        With ``zigzag`` 1 the lanes are in zigzag order, with 0 as they are. To sums across rows,
        what lies ``width`` before, 32 at least, is added.
        """

        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            zigzag = splat(builder, values[2], I32, 8)
            total = splat(builder, values[3], I32, 8)
            nothing = ir.Constant(WORDS, None)
            back = [*values[:5], builder.sub(values[5], values[6])]
            for block in range(4):
                source = lanes_at(context, builder, signature, values, 0, WORDS, 8 * block)
                lanes = builder.load(source, align=4)
                sign = builder.sub(nothing, builder.and_(lanes, zigzag))
                sums = builder.xor(builder.lshr(lanes, zigzag), sign)
                for order in _SUMMED:
                    moved = builder.shuffle_vector(sums, nothing, ir.Constant(WORDS, order))
                    sums = builder.add(sums, moved)
                codes = builder.add(sums, total)
                if across:
                    above = lanes_at(context, builder, signature, back, 4, WORDS, 8 * block)
                    codes = builder.add(codes, builder.load(above, align=4))
                target = lanes_at(context, builder, signature, values, 4, WORDS, 8 * block)
                builder.store(codes, target, align=4)
                total = builder.add(total, shuffle(builder, sums, [7] * 8))
            return builder.extract_element(total, I32(0))

        whole, word = types.int64, types.uint32
        return word(values, whole, word, word, out, whole, whole), build

    return sums


running_sum, running_sum_across = _summing(False), _summing(True)


def _quantised(builder: Any, value: Any, inverse: Any, step: Any, limit: Any) -> tuple[Any, Any]:
    """Codes of values, and the errors that come of them."""
    code = call(builder, "llvm.rint", builder.fmul(value, inverse))
    fits = builder.fcmp_ordered("<", call(builder, "llvm.fabs", code), limit)
    code = builder.select(fits, code, ir.Constant(REALS, None))
    error = builder.fsub(value, builder.fmul(code, step))
    return builder.fptosi(code, WORDS), call(builder, "llvm.fabs", error)


def _squared(builder: Any, error: Any, inverse: Any) -> Any:
    """Squares of errors in 2048ths of a step, 1 at most: sums of four are exact, below 2**24."""
    one, units = (splat(builder, F32(value), F32, 8) for value in (1.0, 2048.0))
    steps = builder.fmul(error, inverse)
    steps = builder.select(builder.fcmp_ordered("<", steps, one), steps, one)
    unit = call(builder, "llvm.rint", builder.fmul(steps, units))
    return builder.fmul(unit, unit)


def _judging(codes_too: bool) -> Any:
    """Errors of a tile against a tolerance, by whether its values become codes on the way."""

    @intrinsic
    def judge(
        typingctx: Any, x: Any, inverse: Any, step: Any, limit: Any, tolerance: Any, codes: Any
    ) -> Any:
        """Writes ``codes = rint(x inverse)``, those of ``limit`` and above as 0, and takes
        ``|x - codes step|`` for errors; or takes ``x`` for errors.

        Returns:
            int64: a word whose bit r says that row r has an error above the tolerance, or NaN; of
            the other rows the pattern of the largest error and the sum of the squares of
            ``rint(2048 min(1, error inverse))``.
        """

        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            inverse, step, limit, tolerance = (
                splat(builder, value, F32, 8) for value in values[1:5]
            )
            most = builder.bitcast(tolerance, WORDS)
            zero = ir.Constant(WORDS, None)
            bad, worst, squares = (
                cgutils.alloca_once_value(builder, it) for it in (I32(0), zero, zero)
            )

            with cgutils.for_range(builder, I64(32)) as loop:
                top, total = zero, ir.Constant(REALS, None)
                for block in range(4):
                    index = builder.mul(loop.index, I64(32))
                    index = builder.add(index, I64(8 * block))
                    source = pointer(context, builder, signature, values, 0, index, REALS)
                    error = builder.load(source, align=4)
                    if codes_too:
                        codes, error = _quantised(builder, error, inverse, step, limit)
                        target = pointer(context, builder, signature, values, 5, index, WORDS)
                        builder.store(codes, target, align=4)
                    top = larger(builder, top, builder.bitcast(error, WORDS))
                    total = builder.fadd(total, _squared(builder, error, inverse))
                outside = builder.bitcast(builder.icmp_signed(">", top, most), I8)
                is_bad = builder.icmp_unsigned("!=", outside, I8(0))
                bit = builder.shl(builder.zext(is_bad, I32), builder.trunc(loop.index, I32))
                builder.store(builder.or_(builder.load(bad), bit), bad)
                top = builder.select(is_bad, zero, top)
                total = builder.select(is_bad, zero, builder.fptosi(total, WORDS))
                builder.store(larger(builder, builder.load(worst), top), worst)
                builder.store(builder.add(builder.load(squares), total), squares)
            found = [
                builder.load(bad),
                reduced(builder, "smax", builder.load(worst)),
                reduced(builder, "add", builder.load(squares)),
            ]
            wide = [builder.zext(it, I64) for it in found]
            return context.make_tuple(builder, signature.return_type, wide)

        real = types.float32
        return types.UniTuple(types.int64, 3)(x, real, real, real, real, codes), build

    return judge


judge_floats, quantise_floats = _judging(False), _judging(True)


@intrinsic
def bit_length(typingctx: Any, value: Any) -> Any:
    """How many bits a uint32 needs; 0 for 0."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.sub(I32(32), builder.ctlz(values[0], ir.IntType(1)(0)))

    return types.uint32(types.uint32), build


@intrinsic
def popcount(typingctx: Any, value: Any) -> Any:
    """How many bits of a uint32 are set."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ctpop(values[0])

    return types.uint32(types.uint32), build


def _bitcast(source: Any, target: Any) -> Any:
    def make(typingctx: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.bitcast(values[0], context.get_value_type(target))

        return target(source), build

    return make


bits_of_float = intrinsic(_bitcast(types.float32, types.uint32))
float_of_bits = intrinsic(_bitcast(types.uint32, types.float32))
bits_of_double = intrinsic(_bitcast(types.float64, types.uint64))
double_of_bits = intrinsic(_bitcast(types.uint64, types.float64))
