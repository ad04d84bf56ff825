"""Copies of constituents, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from apps.hep.kernels import copy_lists, interleave


@pytest.mark.parametrize(("features", "count"), [(3, 500), (1, 7), (0, 4), (5, 0)])
def test_columns_side_by_side(features: int, count: int) -> None:
    values_FN = np.random.default_rng(0).normal(size=(features, count)).astype("f4")
    values_FN[:, ::5] = np.inf
    values_FN[:, 1::7] = -np.inf
    values_FN[:, 2::9] = np.nan
    out_NF = np.empty((count, features), "f4")
    interleave(values_FN, out_NF)
    expected = np.where(np.isfinite(values_FN), values_FN, np.nan).T
    np.testing.assert_array_equal(out_NF, expected)


@pytest.mark.parametrize("features", [0, 1, 4])
def test_lists_go_where_they_should(features: int) -> None:
    rng = np.random.default_rng(1)
    values_NF = rng.normal(size=(60, features)).astype("f4")
    first_B, number_B = np.array([50, 0, 7, 7, 59]), np.array([10, 5, 0, 3, 1])
    out_MF, start_B = np.full((50, features), np.nan, "f4"), np.arange(5) * 10
    copy_lists(values_NF, first_B, number_B, start_B, out_MF, 10)
    for first, number, start in zip(first_B, number_B, start_B, strict=True):
        found = out_MF[start : start + 10]
        np.testing.assert_array_equal(found[:number], values_NF[first : first + number])
        assert not found[number:].any()
    apart_MF = np.full((50, features), 7, "f4")
    copy_lists(values_NF, first_B, number_B, start_B, apart_MF)
    filled = np.arange(10) < number_B[:, None]
    np.testing.assert_array_equal(apart_MF, np.where(filled.reshape(-1, 1), out_MF, 7))
