"""Lists of numbers, one a row, as their contents and lengths.

Formulas are computed on the contents: NumPy does so at once, where awkward looks into each operand
anew. What else there is (lists of lists, reductions, entries) is awkward's.

Suffixes: R row, N constituent (all rows one after another).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import awkward as ak
import numpy as np
from awkward.contents import ListOffsetArray, NumpyArray
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Jagged:
    """A list of numbers a row.

    Attributes:
        content_N: All of them, one after another.
        number_R: How many each row has.
    """

    content_N: NDArray
    number_R: NDArray[np.int64]
    ndim = 2

    def __len__(self) -> int:
        """Rows."""
        return len(self.number_R)

    def like(self, content_N: NDArray) -> Jagged:
        """Other values in the same lists."""
        return Jagged(content_N, self.number_R)

    def fits(self, other: Jagged) -> bool:
        """Whether the lists of another are as long."""
        return other.number_R is self.number_R or np.array_equal(other.number_R, self.number_R)


def compact(values: Any) -> Any:
    """Numbers a row as an array of NumPy, lists of numbers as :class:`Jagged`; else the same."""
    if not isinstance(values, ak.Array) or values.ndim > 2:
        return values
    layout = values.layout
    if values.ndim == 1:
        return np.asarray(layout.data) if isinstance(layout, NumpyArray) else values
    if not isinstance(layout, ListOffsetArray):
        layout = layout.to_ListOffsetArray64(True) if layout.is_list else layout
    if not layout.is_list or not isinstance(layout.content, NumpyArray):
        return values
    offsets = np.asarray(layout.offsets.data)
    content_N = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
    return Jagged(content_N, np.diff(offsets).astype(np.int64, copy=False))


def awkward(values: Any) -> Any:
    """The same for what awkward is called with."""
    if isinstance(values, Jagged):
        offsets = np.concatenate([[0], np.cumsum(values.number_R)])
        return ak.Array(ListOffsetArray(ak.index.Index64(offsets), NumpyArray(values.content_N)))
    return values


def by_awkward(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function on awkward arrays, for any values."""

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        return compact(function(*map(awkward, values), **named))

    return called


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, for lists and rows alike: a row's own number goes to its whole list.

    Raises:
        ValueError: The lists of a row have different lengths.
    """

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        lists = [it for it in values if isinstance(it, Jagged)]
        if any(isinstance(it, ak.Array) for it in values):
            return compact(function(*map(awkward, values), **named))
        if not lists:
            return function(*values, **named)
        first = lists[0]
        return first.like(function(*(_spread(it, first) for it in values), **named))

    return called


def _spread(values: Any, over: Jagged) -> Any:
    """As many numbers as the lists have, or a single one."""
    if isinstance(values, Jagged):
        if not over.fits(values):
            raise ValueError("lists of different lengths")
        return values.content_N
    return np.repeat(values, over.number_R) if getattr(values, "ndim", 0) else values
