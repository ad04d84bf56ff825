"""Lists a row: what is computed on their contents is what awkward computes."""

from __future__ import annotations

import operator
from itertools import chain
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.hep.jagged import Jagged, awkward, by_awkward, compact, elementwise

LISTS = st.lists(st.lists(st.floats(-10, 10, width=32), max_size=4), min_size=1, max_size=6)


def lists_of(values: list[list[float]]) -> ak.Array:
    counts = [len(it) for it in values]
    return ak.unflatten(np.array(list(chain(*values)), np.float32), counts)


@settings(max_examples=25)
@given(LISTS)
def test_there_and_back(values: list[list[float]]) -> None:
    found = compact(lists_of(values))
    assert isinstance(found, Jagged)
    assert ak.to_list(awkward(found)) == values
    assert len(found) == len(values)


@settings(max_examples=25)
@given(LISTS, st.sampled_from([np.add, np.hypot, operator.lt, np.maximum, operator.mul]))
def test_functions_are_those_of_awkward(values: Any, function: Any) -> None:
    lists, row = lists_of(values), np.linspace(-1, 1, len(values), dtype=np.float32)
    apply = elementwise(function)
    for others in ((lists, lists), (lists, row), (row, lists), (lists, 2.0)):
        found = apply(*map(compact, others))
        expected = function(*others)
        assert isinstance(found, Jagged)
        assert found.content_N.dtype == np.asarray(ak.flatten(expected)).dtype
        assert ak.to_list(awkward(found)) == ak.to_list(expected)
    np.testing.assert_array_equal(apply(row, row), function(row, row))


def test_slices_and_what_is_no_list_of_numbers() -> None:
    lists = ak.Array([[1.0, 2.0], [], [3.0], [4.0, 5.0]])
    for part in (lists[1:], lists[::-1], lists[[2, 0, 0]], lists[:, ::-1]):
        assert ak.to_list(awkward(compact(part))) == ak.to_list(part)
    deep, text, missing = ak.Array([[[1]], []]), ak.Array(["a", "b"]), ak.Array([[1, None], []])
    for values in (deep, text, missing, 3, "a"):
        assert compact(values) is values
    assert isinstance(compact(ak.Array([1, 2])), np.ndarray)


def test_lists_of_lists_are_left_to_awkward() -> None:
    deep, row = ak.Array([[[1, 2], [3]], [[4]]]), ak.Array([[10, 20], [30]])
    found = elementwise(np.add)(deep, compact(row))
    assert ak.to_list(found) == [[[11, 12], [23]], [[34]]]
    assert by_awkward(ak.sum)(compact(row), axis=1).tolist() == [30, 30]


def test_lists_that_do_not_fit() -> None:
    one, other = compact(ak.Array([[1, 2], [3]])), compact(ak.Array([[1], [2, 3]]))
    with pytest.raises(ValueError, match="different lengths"):
        elementwise(np.add)(one, other)
