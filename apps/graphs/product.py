"""The product of a sparse matrix and a matrix of features, a few features at a time.

Side by side in memory, a few features of all nodes leave the caches room for more of the nodes
that are read at random; and of a matrix that is mapped from a file, nothing is read at random.

Suffixes: N node, F feature, W feature at hand, M message (an edge one way), R row of a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from scadl_core.compress.cpu.chunks import Kernel
from scadl_core.compress.threads import run

BLOCK_ROWS = 4096
WIDTH = 16  # features at hand: of float32 a cache line
LINE = 64  # bytes
AHEAD = 16  # messages between asking for a row of features and reading it


def times(
    indptr: Any, indices: Any, weight_M: Any, left_N: Any, right_N: Any, loop: float, x_NF: Any,
    out_NF: Any = None,
) -> Any:  # fmt: skip
    """diag(left) (W + loop I) diag(right) X.

    Args:
        indptr: Whole numbers of shape (N + 1,): where the rows of W begin.
        indices: Whole numbers of shape (M,): its columns.
        weight_M: Its values; empty: all 1.
        left_N: float32.
        right_N: float32.
        loop: A number.
        x_NF: float32 or float64, C-contiguous.
        out_NF: Where to write; None: a new array.

    Returns:
        The result, the same for any number of threads.
    """
    out_NF = np.empty_like(x_NF) if out_NF is None else out_NF
    weight_M = weight_M.astype(x_NF.dtype, copy=False)
    tile_NW = _aligned(len(x_NF), x_NF.dtype)
    blocks = [slice(at, at + BLOCK_ROWS) for at in range(0, len(x_NF), BLOCK_ROWS)]
    for start in range(0, x_NF.shape[1], WIDTH):

        def gather(rows: slice, start: int = start) -> None:
            _gather(x_NF[rows], right_N[rows], start, tile_NW[rows])

        def block(rows: slice, start: int = start) -> None:
            of = left_N[rows], np.float32(loop), tile_NW, out_NF[rows], start, rows.start
            _multiply(indptr, indices, weight_M, *of)

        run(gather, blocks)
        run(block, blocks)
    return out_NF


def _aligned(nodes: int, dtype: Any) -> Any:
    """Rows that begin where cache lines do: else each is two lines, of which one is asked for."""
    row = WIDTH * dtype.itemsize
    room = np.empty(nodes * row + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + nodes * row].view(dtype).reshape(nodes, WIDTH)


def multiply(matrix: Any, x_NF: Any) -> Any:
    """A square matrix of SciPy's in compressed sparse rows times a matrix, float32 or float64."""
    ones_N = np.ones(len(x_NF), np.float32)
    return times(matrix.indptr, matrix.indices, matrix.data, ones_N, ones_N, 0.0, x_NF)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Written by hand, since of a sum in an array the compiler keeps nothing in registers."""
    tile, indices, _, _, into, *weight = (
        context.make_array(kind)(context, builder, it).data if isinstance(kind, types.Array) else it
        for kind, it in zip(signature.args, arguments, strict=True)
    )
    number, bits = signature.args[0].dtype, ir.IntType(64)
    vector = ir.VectorType(context.get_value_type(number), WIDTH)

    def vector_at(pointer: Any, offset: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [offset]), vector.as_pointer())

    def everywhere(value: Any) -> Any:
        undefined, zero = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), None)
        return builder.shuffle_vector(
            builder.insert_element(undefined, value, zero), undefined, lanes
        )

    def row_at(message: Any) -> Any:
        row = builder.sext(builder.load(builder.gep(indices, [message])), bits)
        return vector_at(tile, builder.mul(row, ir.Constant(bits, WIDTH)))

    def ask_for(pointer: Any) -> None:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(pointer, byte), *map(number, (0, 3, 1))])

    end = context.make_array(signature.args[1])(context, builder, arguments[1]).nitems
    total = cgutils.alloca_once(builder, vector)
    builder.store(ir.Constant(vector, None), total)
    ends = arguments[2], arguments[3], ir.Constant(bits, 1)
    with cgutils.for_range_slice(builder, *ends, bits) as (message, _):
        ahead = builder.add(message, ir.Constant(bits, AHEAD))
        there = builder.icmp_signed("<", ahead, end)
        ask_for(row_at(builder.select(there, ahead, message)))
        values = builder.load(row_at(message), align=number.bitwidth // 8)
        if weight:
            factor = builder.load(builder.gep(weight[0], [message]))
            values = builder.fmul(values, everywhere(factor))
        builder.store(builder.fadd(builder.load(total), values), total)
    place = vector_at(into, ir.Constant(bits, 0))
    builder.store(builder.load(total), place, align=number.bitwidth // 8)
    return context.get_dummy_value()


@intrinsic
def _sum_of_rows(typing: Any, tile: Any, indices: Any, first: Any, last: Any, into: Any) -> Any:
    """The sum of the rows of the tile that some of the indices name."""
    return types.void(tile, indices, types.int64, types.int64, into), _generate


@intrinsic
def _weighted_sum_of_rows(
    typing: Any, tile: Any, indices: Any, first: Any, last: Any, into: Any, weight: Any
) -> Any:
    return types.void(tile, indices, types.int64, types.int64, into, weight), _generate


def _multiply_rows(
    indptr: Any, indices: Any, weight_M: Any, left_R: Any, loop: Any, tile_NW: Any, out_RF: Any,
    start: Any, first: Any,
) -> None:  # fmt: skip
    sum_W = np.empty(WIDTH, tile_NW.dtype)
    for r in range(len(out_RF)):
        i = first + r
        if len(weight_M):
            _weighted_sum_of_rows(tile_NW, indices, indptr[i], indptr[i + 1], sum_W, weight_M)
        else:
            _sum_of_rows(tile_NW, indices, indptr[i], indptr[i + 1], sum_W)
        for w in range(min(WIDTH, out_RF.shape[1] - start)):
            out_RF[r, start + w] = left_R[r] * (sum_W[w] + loop * tile_NW[i, w])


def _gather_features(x_RF: Any, right_R: Any, start: Any, tile_RW: Any) -> None:
    width = min(WIDTH, x_RF.shape[1] - start)
    for r in range(len(x_RF)):
        for w in range(width):
            tile_RW[r, w] = right_R[r] * x_RF[r, start + w]
        tile_RW[r, width:] = 0


_multiply, _gather = Kernel(_multiply_rows), Kernel(_gather_features)
