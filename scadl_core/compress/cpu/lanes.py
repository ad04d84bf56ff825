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

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(_I8, 32)
_WORDS = ir.VectorType(_I32, 8)
_CODES = ir.VectorType(_I32, 32)
_SQUARES = ir.VectorType(_I64, 4)
# Swaps of a transposition of 8 x 8 bits in 64: by 1 x 1, 2 x 2 and 4 x 4 blocks (Warren, Hacker's
# Delight, section 7-3).
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))
_COMPACT = [([lane for lane in range(8) if byte >> lane & 1] + [0] * 8)[:8] for byte in range(256)]
_EXPAND = [[(byte & ((1 << lane) - 1)).bit_count() for lane in range(8)] for byte in range(256)]
_TO_PLANES = [8 * (byte % 4) + byte // 4 for byte in range(32)]
_TO_LANES = [4 * (byte % 8) + byte // 8 for byte in range(32)]


@intrinsic
def pack_planes(typingctx: Any, codes: Any, first: Any, shift: Any, out: Any, at: Any) -> Any:
    """Writes ``out[at + p]``, p in 0..7: bit l is bit ``shift + p`` of ``codes[first + l]``."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row = builder.load(_at(context, builder, signature, values, 0, _CODES), align=4)
        shifted = builder.lshr(row, _splat(builder, values[2], _I32, 32))
        planes = _transpose(builder, builder.trunc(shifted, _BYTES))
        words = builder.bitcast(_shuffle(builder, planes, _TO_PLANES), _WORDS)
        builder.store(words, _at(context, builder, signature, values, 3, _WORDS), align=4)
        return context.get_dummy_value()

    return types.void(codes, types.int64, types.uint32, out, types.int64), build


@intrinsic
def unpack_planes(
    typingctx: Any, words: Any, first: Any, count: Any, codes: Any, at: Any, shift: Any
) -> Any:
    """Inverse of :func:`pack_planes` for ``count`` planes, OR-ed into ``codes[at : at + 32]``.

    Reads eight words whatever the count.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        planes = builder.load(_at(context, builder, signature, values, 0, _WORDS), align=4)
        shuffled = _shuffle(builder, builder.bitcast(planes, _BYTES), _TO_LANES)
        mask = builder.sub(builder.shl(_I32(1), values[2]), _I32(1))
        mask = builder.trunc(builder.select(_above(builder, values[2], 7), _I32(255), mask), _I8)
        kept = builder.and_(_transpose(builder, shuffled), _splat(builder, mask, _I8, 32))
        shifted = builder.shl(builder.zext(kept, _CODES), _splat(builder, values[5], _I32, 32))
        target = _at(context, builder, signature, values, 3, _CODES)
        builder.store(builder.or_(builder.load(target, align=4), shifted), target, align=4)
        return context.get_dummy_value()

    signature = types.void(words, types.int64, types.uint32, codes, types.int64, types.uint32)
    return signature, build


@intrinsic
def nonzero_lanes(typingctx: Any, codes: Any, first: Any) -> Any:
    """The word whose bit l says whether ``codes[first + l]`` is not zero."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row = builder.load(_at(context, builder, signature, values, 0, _CODES), align=4)
        return builder.bitcast(builder.icmp_unsigned("!=", row, ir.Constant(_CODES, None)), _I32)

    return types.uint32(codes, types.int64), build


@intrinsic
def or_of_lanes(typingctx: Any, codes: Any, first: Any) -> Any:
    """The bitwise OR of ``codes[first : first + 32]``."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row = builder.load(_at(context, builder, signature, values, 0, _CODES), align=4)
        kind = ir.FunctionType(_I32, [_CODES])
        reduce = cgutils.get_or_insert_function(
            builder.module, kind, "llvm.vector.reduce.or.v32i32"
        )
        return builder.call(reduce, [row])

    return types.uint32(codes, types.int64), build


@intrinsic
def compact_lanes(typingctx: Any, values: Any, first: Any, mask: Any, out: Any, at: Any) -> Any:
    """Writes those of 32 lanes whose bit is set one after the other; returns where they end.

    Up to seven more words behind them are touched.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = _table(context, builder, "compact", _COMPACT)
        at = values[4]
        for block in range(4):
            byte, order = _ordered(builder, table, values[2], block)
            source = _element(context, builder, signature, values, 0, 1, 8 * block, _WORDS)
            chosen = _permute(context, builder, builder.load(source, align=4), order)
            array = arrayobj.make_array(signature.args[3])(context, builder, values[3])
            target = builder.bitcast(builder.gep(array.data, [at]), _WORDS.as_pointer())
            builder.store(chosen, target, align=4)
            at = builder.add(at, builder.zext(builder.ctpop(byte), _I64))
        return at

    return types.int64(values, types.int64, types.uint32, out, types.int64), build


@intrinsic
def expand_lanes(typingctx: Any, values: Any, at: Any, mask: Any, out: Any, first: Any) -> Any:
    """Puts one value after the other to those of 32 lanes whose bit is set, and zero to the others;
    returns where the values end. Up to seven more behind them are read.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = _table(context, builder, "expand", _EXPAND)
        at = values[1]
        for block in range(4):
            byte, order = _ordered(builder, table, values[2], block)
            array = arrayobj.make_array(signature.args[0])(context, builder, values[0])
            source = builder.bitcast(builder.gep(array.data, [at]), _WORDS.as_pointer())
            chosen = _permute(context, builder, builder.load(source, align=4), order)
            bits = builder.bitcast(builder.trunc(byte, _I8), ir.VectorType(ir.IntType(1), 8))
            chosen = builder.select(bits, chosen, ir.Constant(_WORDS, None))
            target = _element(context, builder, signature, values, 3, 4, 8 * block, _WORDS)
            builder.store(chosen, target, align=4)
            at = builder.add(at, builder.zext(builder.ctpop(byte), _I64))
        return at

    return types.int64(values, types.int64, types.uint32, out, types.int64), build


@intrinsic
def running_sum(typingctx: Any, values: Any, first: Any, total: Any, out: Any, at: Any) -> Any:
    """Writes the running sums of 32 lanes, begun at ``total``; returns the last."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        total = _splat(builder, values[2], _I32, 8)
        nothing = ir.Constant(_WORDS, None)
        for block in range(4):
            source = _element(context, builder, signature, values, 0, 1, 8 * block, _WORDS)
            sums = builder.load(source, align=4)
            for distance in (1, 2, 4):
                order = [8 + i if i < distance else i - distance for i in range(8)]
                mask = ir.Constant(_WORDS, order)
                sums = builder.add(sums, builder.shuffle_vector(sums, nothing, mask))
            target = _element(context, builder, signature, values, 3, 4, 8 * block, _WORDS)
            builder.store(builder.add(sums, total), target, align=4)
            total = builder.add(total, _shuffle(builder, sums, [7] * 8))
        return builder.extract_element(total, _I32(0))

    return types.uint32(values, types.int64, types.uint32, out, types.int64), build


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


def _at(context: Any, builder: Any, signature: Any, values: Any, which: int, kind: Any) -> Any:
    """A pointer to ``values[which][values[which + 1]]`` as a vector."""
    return _element(context, builder, signature, values, which, which + 1, 0, kind)


def _element(
    context: Any,
    builder: Any,
    signature: Any,
    values: Any,
    which: int,
    at: int,
    add: int,
    kind: Any,
) -> Any:
    """A pointer to ``values[which][values[at] + add]`` as a vector."""
    array = arrayobj.make_array(signature.args[which])(context, builder, values[which])
    index = builder.add(values[at], _I64(add))
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
