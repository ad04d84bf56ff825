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
from numba.np import arrayobj

_I8, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_BYTES = ir.VectorType(_I8, 32)
_WORDS = ir.VectorType(_I32, 8)
_REALS = ir.VectorType(_F32, 8)
_CODES = ir.VectorType(_I32, 32)
_SQUARES = ir.VectorType(_I64, 4)
# Swaps of a transposition of 8 x 8 bits in 64: by 1 x 1, 2 x 2 and 4 x 4 blocks (Warren, Hacker's
# Delight, section 7-3).
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))
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
            row = builder.load(_at(context, builder, signature, values, 0, _CODES), align=4)
            if shifts:
                row = builder.lshr(row, _splat(builder, values[2], _I32, 32))
            planes = _transpose(builder, builder.trunc(row, _BYTES))
            words = builder.bitcast(_shuffle(builder, planes, _TO_PLANES), _WORDS)
            builder.store(words, _at(context, builder, signature, values, 3, _WORDS), align=4)
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
            planes = builder.load(_at(context, builder, signature, values, 0, _WORDS), align=4)
            shuffled = _shuffle(builder, builder.bitcast(planes, _BYTES), _TO_LANES)
            mask = builder.sub(builder.shl(_I32(1), values[2]), _I32(1))
            mask = builder.select(_above(builder, values[2], 7), _I32(255), mask)
            mask = _splat(builder, builder.trunc(mask, _I8), _I8, 32)
            codes = builder.zext(builder.and_(_transpose(builder, shuffled), mask), _CODES)
            target = _at(context, builder, signature, values, 3, _CODES)
            if joins:
                codes = builder.shl(codes, _splat(builder, values[5], _I32, 32))
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
                source = _pointer(context, builder, signature, values, 0, at, _CODES)
                return builder.load(source, align=4)

            def differences(at: Any) -> Any:
                return builder.sub(row(at), row(builder.sub(at, _I64(1))))

            residual = row(values[1]) if order == 0 else differences(values[1])
            if order == 2:
                above = differences(builder.sub(values[1], values[2]))
                residual = builder.sub(residual, above)
            twice = builder.shl(residual, ir.Constant(_CODES, [1] * 32))
            sign = builder.ashr(residual, ir.Constant(_CODES, [31] * 32))
            coded = builder.xor(twice, sign)
            target = _pointer(context, builder, signature, values, 3, values[4], _CODES)
            builder.store(coded, target, align=4)
            mask = builder.icmp_unsigned("!=", residual, ir.Constant(_CODES, None))
            found = builder.bitcast(mask, _I32), _union(builder, coded)
            return context.make_tuple(builder, signature.return_type, found)

        pair = types.UniTuple(types.uint32, 2)
        return pair(codes, types.int64, types.int64, out, types.int64), build

    return residuals


residuals_of_codes, residuals_along, residuals_across = map(_residuals, range(3))


@intrinsic
def or_of_lanes(typingctx: Any, codes: Any, first: Any) -> Any:
    """The bitwise OR of ``codes[first : first + 32]``."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row = builder.load(_at(context, builder, signature, values, 0, _CODES), align=4)
        return _union(builder, row)

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
        table = _table(context, builder, "compact", _COMPACT)
        less, at = _splat(builder, values[3], _I32, 8), values[5]
        for block in range(4):
            byte, order = _ordered(builder, table, values[2], block)
            source = _at(context, builder, signature, values, 0, _WORDS, 8 * block)
            lanes = builder.sub(builder.load(source, align=4), less)
            target = _pointer(context, builder, signature, values, 4, at, _WORDS)
            builder.store(_permute(context, builder, lanes, order), target, align=4)
            at = builder.add(at, builder.zext(builder.ctpop(byte), _I64))
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
        table = _table(context, builder, "expand", _EXPAND)
        more, at = _splat(builder, values[3], _I32, 8), values[1]
        for block in range(4):
            byte, order = _ordered(builder, table, values[2], block)
            source = _pointer(context, builder, signature, values, 0, at, _WORDS)
            lanes = builder.add(builder.load(source, align=4), more)
            bits = builder.bitcast(builder.trunc(byte, _I8), ir.VectorType(ir.IntType(1), 8))
            lanes = _permute(context, builder, lanes, order)
            lanes = builder.select(bits, lanes, ir.Constant(_WORDS, None))
            target = _at(context, builder, signature, values, 4, _WORDS, 8 * block)
            builder.store(lanes, target, align=4)
            at = builder.add(at, builder.zext(builder.ctpop(byte), _I64))
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
            zigzag = _splat(builder, values[2], _I32, 8)
            total = _splat(builder, values[3], _I32, 8)
            nothing = ir.Constant(_WORDS, None)
            back = [*values[:5], builder.sub(values[5], values[6])]
            for block in range(4):
                source = _at(context, builder, signature, values, 0, _WORDS, 8 * block)
                lanes = builder.load(source, align=4)
                sign = builder.sub(nothing, builder.and_(lanes, zigzag))
                sums = builder.xor(builder.lshr(lanes, zigzag), sign)
                for order in _SUMMED:
                    moved = builder.shuffle_vector(sums, nothing, ir.Constant(_WORDS, order))
                    sums = builder.add(sums, moved)
                codes = builder.add(sums, total)
                if across:
                    above = _at(context, builder, signature, back, 4, _WORDS, 8 * block)
                    codes = builder.add(codes, builder.load(above, align=4))
                target = _at(context, builder, signature, values, 4, _WORDS, 8 * block)
                builder.store(codes, target, align=4)
                total = builder.add(total, _shuffle(builder, sums, [7] * 8))
            return builder.extract_element(total, _I32(0))

        whole, word = types.int64, types.uint32
        return word(values, whole, word, word, out, whole, whole), build

    return sums


running_sum, running_sum_across = _summing(False), _summing(True)


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
                _splat(builder, value, _F32, 8) for value in values[1:5]
            )
            most = builder.bitcast(tolerance, _WORDS)
            one, units = (_splat(builder, _F32(value), _F32, 8) for value in (1.0, 2048.0))
            zero = ir.Constant(_WORDS, None)
            bad, worst, squares = (
                cgutils.alloca_once_value(builder, it) for it in (_I32(0), zero, zero)
            )

            def error_of(index: Any) -> Any:
                source = _pointer(context, builder, signature, values, 0, index, _REALS)
                value = builder.load(source, align=4)
                if not codes_too:
                    return value
                code = _call(builder, "llvm.rint", builder.fmul(value, inverse))
                fits = builder.fcmp_ordered("<", _call(builder, "llvm.fabs", code), limit)
                code = builder.select(fits, code, ir.Constant(_REALS, None))
                target = _pointer(context, builder, signature, values, 5, index, _WORDS)
                builder.store(builder.fptosi(code, _WORDS), target, align=4)
                error = builder.fsub(value, builder.fmul(code, step))
                return _call(builder, "llvm.fabs", error)

            with cgutils.for_range(builder, _I64(32)) as loop:
                top, total = zero, ir.Constant(_REALS, None)
                for block in range(4):
                    index = builder.mul(loop.index, _I64(32))
                    error = error_of(builder.add(index, _I64(8 * block)))
                    top = _larger(builder, top, builder.bitcast(error, _WORDS))
                    steps = builder.fmul(error, inverse)
                    steps = builder.select(builder.fcmp_ordered("<", steps, one), steps, one)
                    unit = _call(builder, "llvm.rint", builder.fmul(steps, units))
                    total = builder.fadd(total, builder.fmul(unit, unit))  # exact: below 2**24
                outside = builder.bitcast(builder.icmp_signed(">", top, most), _I8)
                is_bad = builder.icmp_unsigned("!=", outside, _I8(0))
                bit = builder.shl(builder.zext(is_bad, _I32), builder.trunc(loop.index, _I32))
                builder.store(builder.or_(builder.load(bad), bit), bad)
                top = builder.select(is_bad, zero, top)
                total = builder.select(is_bad, zero, builder.fptosi(total, _WORDS))
                builder.store(_larger(builder, builder.load(worst), top), worst)
                builder.store(builder.add(builder.load(squares), total), squares)
            found = [
                builder.load(bad),
                _reduced(builder, "smax", builder.load(worst)),
                _reduced(builder, "add", builder.load(squares)),
            ]
            wide = [builder.zext(it, _I64) for it in found]
            return context.make_tuple(builder, signature.return_type, wide)

        real = types.float32
        return types.UniTuple(types.int64, 3)(x, real, real, real, real, codes), build

    return judge


judge_floats, quantise_floats = _judging(False), _judging(True)


@intrinsic
def bit_length(typingctx: Any, value: Any) -> Any:
    """How many bits a uint32 needs; 0 for 0."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.sub(_I32(32), builder.ctlz(values[0], ir.IntType(1)(0)))

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


def _union(builder: Any, lanes: Any) -> Any:
    """The bitwise OR of 32 lanes."""
    return _reduced(builder, "or", lanes)


def _reduced(builder: Any, operation: str, lanes: Any) -> Any:
    return _call(builder, f"llvm.vector.reduce.{operation}", lanes, lanes.type.element)


def _call(builder: Any, name: str, lanes: Any, returned: Any = None) -> Any:
    """An operation of LLVM's on a vector."""
    letter = "f" if lanes.type.element == _F32 else "i"
    kind = ir.FunctionType(returned or lanes.type, [lanes.type])
    full = f"{name}.v{lanes.type.count}{letter}32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), [lanes])


def _larger(builder: Any, lanes: Any, others: Any) -> Any:
    return builder.select(builder.icmp_signed(">", lanes, others), lanes, others)


def _at(
    context: Any, builder: Any, signature: Any, values: Any, which: int, kind: Any, add: int = 0
) -> Any:
    """A pointer to ``values[which][values[which + 1] + add]`` as a vector."""
    index = builder.add(values[which + 1], _I64(add))
    return _pointer(context, builder, signature, values, which, index, kind)


def _pointer(
    context: Any, builder: Any, signature: Any, values: Any, which: int, index: Any, kind: Any
) -> Any:
    """A pointer to ``values[which][index]`` as a vector."""
    array = arrayobj.make_array(signature.args[which])(context, builder, values[which])
    return builder.bitcast(builder.gep(array.data, [index]), kind.as_pointer())


def _table(context: Any, builder: Any, name: str, rows: list[list[int]]) -> Any:
    flat = [ir.Constant(_I8, entry) for row in rows for entry in row]
    value = ir.Constant(ir.ArrayType(_I8, len(flat)), flat)
    return builder.bitcast(
        cgutils.global_constant(builder, f"scadl_{name}", value), _I8.as_pointer()
    )


def _ordered(builder: Any, table: Any, mask: Any, block: int) -> tuple[Any, Any]:
    """A byte of the mask and the order of lanes that the table has for it."""
    byte = builder.and_(builder.lshr(mask, _I32(8 * block)), _I32(255))
    row = builder.gep(table, [builder.zext(builder.shl(byte, _I32(3)), _I64)])
    bytes_ = builder.load(builder.bitcast(row, ir.VectorType(_I8, 8).as_pointer()), align=1)
    return byte, builder.zext(bytes_, _WORDS)


def _permute(context: Any, builder: Any, lanes: Any, order: Any) -> Any:
    """Lanes of 8 in a variable order: one instruction where there is AVX2."""
    if "+avx2" in context.codegen().magic_tuple()[2]:
        kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS])
        permute = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.permd")
        return builder.call(permute, [lanes, order])
    chosen = ir.Constant(_WORDS, ir.Undefined)
    for lane in range(8):
        one = builder.extract_element(lanes, builder.extract_element(order, _I32(lane)))
        chosen = builder.insert_element(chosen, one, _I32(lane))
    return chosen


def _transpose(builder: Any, lanes: Any) -> Any:
    """Four transpositions of 8 x 8 bits; their own inverse."""
    value = builder.bitcast(lanes, _SQUARES)
    for distance, mask in _SWAPS:
        by = ir.Constant(_SQUARES, [distance] * 4)
        swapped = builder.xor(value, builder.lshr(value, by))
        swapped = builder.and_(swapped, ir.Constant(_SQUARES, [mask] * 4))
        value = builder.xor(builder.xor(value, swapped), builder.shl(swapped, by))
    return builder.bitcast(value, _BYTES)


def _shuffle(builder: Any, lanes: Any, order: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(order)), order)
    return builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), mask)


def _splat(builder: Any, value: Any, kind: Any, count: int) -> Any:
    undefined = ir.Constant(ir.VectorType(kind, count), ir.Undefined)
    one = builder.insert_element(undefined, value, _I32(0))
    return _shuffle(builder, one, [0] * count)


def _above(builder: Any, value: Any, limit: int) -> Any:
    return builder.icmp_unsigned(">", value, _I32(limit))
