"""Loops over constituents, compiled: a table of them by columns or by rows, lists of rows copied.

Suffixes: F feature, N constituent before, M after, B row of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.cpu.chunks import Kernel


def interleave(values_FN: NDArray[np.float32], out_NF: NDArray[np.float32]) -> None:
    """Columns side by side; infinities become NaN."""
    _interleave(values_FN, out_NF)


def copy_lists(
    values_NF: NDArray[np.float32],
    first_B: NDArray[np.int64],
    number_B: NDArray[np.int64],
    start_B: NDArray[np.int64],
    out_MF: NDArray[np.float32],
    length: int = 0,
) -> None:
    """Copies runs of constituents: ``number`` from ``first`` on, to ``start`` on; shorter ones are
    filled with zeros up to ``length``.
    """
    _copy(values_NF, first_B, number_B, start_B, out_MF, length)


def _interleave_columns(values_FN: Any, out_NF: Any) -> None:
    for n in range(np.uint64(values_FN.shape[1])):  # unsigned: none counts from the end
        for f in range(np.uint64(values_FN.shape[0])):
            value = values_FN[f, n]
            out_NF[n, f] = value + (value - value)  # infinity less itself is NaN


def _copy_runs(
    values_NF: Any, first_B: Any, number_B: Any, start_B: Any, out_MF: Any, length: Any
) -> None:
    width = np.uint64(values_NF.shape[1])
    values, out = values_NF.reshape(-1), out_MF.reshape(-1)
    for b in range(first_B.shape[0]):
        first, start = np.uint64(first_B[b]) * width, np.uint64(start_B[b]) * width
        for i in range(np.uint64(number_B[b]) * width):
            out[start + i] = values[first + i]
        for i in range(np.uint64(number_B[b]) * width, np.uint64(length) * width):
            out[start + i] = 0


_interleave = Kernel(_interleave_columns)
_copy = Kernel(_copy_runs)
