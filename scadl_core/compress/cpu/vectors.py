"""Vectors of LLVM: their types, and what is written with them again and again."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.np import arrayobj

I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
BYTES = ir.VectorType(I8, 32)
WORDS = ir.VectorType(I32, 8)
REALS = ir.VectorType(F32, 8)
CODES = ir.VectorType(I32, 32)
SQUARES = ir.VectorType(I64, 4)
# Swaps of a transposition of 8 x 8 bits in 64: by 1 x 1, 2 x 2 and 4 x 4 blocks (Warren, Hacker's
# Delight, section 7-3).
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def union(builder: Any, lanes: Any) -> Any:
    """The bitwise OR of 32 lanes."""
    return reduced(builder, "or", lanes)


def reduced(builder: Any, operation: str, lanes: Any) -> Any:
    """One number from all lanes, by ``add``, ``or`` or ``smax``."""
    return call(builder, f"llvm.vector.reduce.{operation}", lanes, lanes.type.element)


def call(builder: Any, name: str, lanes: Any, returned: Any = None) -> Any:
    """An operation of LLVM's on a vector."""
    letter = "f" if lanes.type.element == F32 else "i"
    kind = ir.FunctionType(returned or lanes.type, [lanes.type])
    full = f"{name}.v{lanes.type.count}{letter}32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), [lanes])


def larger(builder: Any, lanes: Any, others: Any) -> Any:
    """Lane by lane the larger of signed integers."""
    return builder.select(builder.icmp_signed(">", lanes, others), lanes, others)


def lanes_at(
    context: Any, builder: Any, signature: Any, values: Any, which: int, kind: Any, add: int = 0
) -> Any:
    """A pointer to ``values[which][values[which + 1] + add]`` as a vector."""
    index = builder.add(values[which + 1], I64(add))
    return pointer(context, builder, signature, values, which, index, kind)


def pointer(
    context: Any, builder: Any, signature: Any, values: Any, which: int, index: Any, kind: Any
) -> Any:
    """A pointer to ``values[which][index]`` as a vector."""
    array = arrayobj.make_array(signature.args[which])(context, builder, values[which])
    return builder.bitcast(builder.gep(array.data, [index]), kind.as_pointer())


def table_of(context: Any, builder: Any, name: str, rows: list[list[int]]) -> Any:
    """A constant of the module: rows of 8 bytes, one after the other."""
    flat = [ir.Constant(I8, entry) for row in rows for entry in row]
    value = ir.Constant(ir.ArrayType(I8, len(flat)), flat)
    return builder.bitcast(
        cgutils.global_constant(builder, f"scadl_{name}", value), I8.as_pointer()
    )


def order_of(builder: Any, table: Any, mask: Any, block: int) -> tuple[Any, Any]:
    """A byte of the mask and the order of lanes that the table has for it."""
    byte = builder.and_(builder.lshr(mask, I32(8 * block)), I32(255))
    row = builder.gep(table, [builder.zext(builder.shl(byte, I32(3)), I64)])
    bytes_ = builder.load(builder.bitcast(row, ir.VectorType(I8, 8).as_pointer()), align=1)
    return byte, builder.zext(bytes_, WORDS)


def permute(context: Any, builder: Any, lanes: Any, order: Any) -> Any:
    """Lanes of 8 in a variable order: one instruction where there is AVX2."""
    if "+avx2" in context.codegen().magic_tuple()[2]:
        kind = ir.FunctionType(WORDS, [WORDS, WORDS])
        permute = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.permd")
        return builder.call(permute, [lanes, order])
    chosen = ir.Constant(WORDS, ir.Undefined)
    for lane in range(8):
        one = builder.extract_element(lanes, builder.extract_element(order, I32(lane)))
        chosen = builder.insert_element(chosen, one, I32(lane))
    return chosen


def transpose(builder: Any, lanes: Any) -> Any:
    """Four transpositions of 8 x 8 bits; their own inverse."""
    value = builder.bitcast(lanes, SQUARES)
    for distance, mask in _SWAPS:
        by = ir.Constant(SQUARES, [distance] * 4)
        swapped = builder.xor(value, builder.lshr(value, by))
        swapped = builder.and_(swapped, ir.Constant(SQUARES, [mask] * 4))
        value = builder.xor(builder.xor(value, swapped), builder.shl(swapped, by))
    return builder.bitcast(value, BYTES)


def shuffle(builder: Any, lanes: Any, order: list[int]) -> Any:
    """Lanes in a constant order."""
    mask = ir.Constant(ir.VectorType(I32, len(order)), order)
    return builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), mask)


def splat(builder: Any, value: Any, kind: Any, count: int) -> Any:
    """One value in every lane."""
    undefined = ir.Constant(ir.VectorType(kind, count), ir.Undefined)
    one = builder.insert_element(undefined, value, I32(0))
    return shuffle(builder, one, [0] * count)


def is_above(builder: Any, value: Any, limit: int) -> Any:
    """Whether an unsigned number is above a constant."""
    return builder.icmp_unsigned(">", value, I32(limit))
