"""Streaming moments against NumPy on all values at once; and results kept for the next run."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scadl_core.workflow.statistics import Moments, remembered


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_streaming_equals_all_at_once(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    means = np.reshape([1e5, 0], (2, 1, 1))
    parts = (rng.normal(size=(count, 2, 3, 5)) + means).astype(np.float32)
    parts[rng.random(parts.shape) < 0.3] = np.nan
    parts[0, :, 0, 0] = 1, 2  # so that no channel is empty
    parts[0, :, 0, 1] = 3, 4
    of = reduce(add, map(Moments.of, parts))
    values = parts.astype(np.float64)
    np.testing.assert_array_equal(of.count_C, np.isfinite(values).sum((0, 2, 3)))
    np.testing.assert_allclose(of.mean_C, np.nanmean(values, (0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(of.std_C, np.nanstd(values, (0, 2, 3)), rtol=1e-9)
    np.testing.assert_array_equal(of.min_C, np.nanmin(values, (0, 2, 3)))
    np.testing.assert_array_equal(of.max_C, np.nanmax(values, (0, 2, 3)))
    np.testing.assert_array_equal(of.missing_C, np.isnan(values).sum((0, 2, 3)))


def test_small_deviation_of_a_large_mean() -> None:
    of = Moments.of(np.full((1, 4), 1e9 - 1)) + Moments.of(np.full((1, 4), 1e9 + 1))
    assert of.std_C[0] == pytest.approx(1.0, rel=1e-12)


def test_a_channel_that_is_constant_or_empty_divides_by_one() -> None:
    of = Moments.of(np.array([[273.15, 273.15], [np.nan, np.inf]]))
    assert of.std_C.tolist() == [1.0, 1.0]
    assert of.count_C.tolist() == [2, 0]


def test_results_are_kept_until_data_or_settings_change(tmp_path: Path) -> None:
    file, calls = tmp_path / "x.nc", []
    file.write_bytes(b"one")

    def compute() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"mean_C": np.array([0.1, np.inf])}

    for _ in range(2):
        found = remembered(tmp_path / "kept", [file], {"inputs": ["a"]}, compute)
        np.testing.assert_array_equal(found["mean_C"], [0.1, np.inf])
    assert len(calls) == 1
    remembered(tmp_path / "kept", [file], {"inputs": ["b"]}, compute)
    file.write_bytes(b"two")
    remembered(tmp_path / "kept", [file], {"inputs": ["b"]}, compute)
    assert len(calls) == 3


def test_a_broken_or_unwritable_store_costs_a_computation_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings, kept = {}, tmp_path / "kept"
    for folder in (None, tmp_path / "file" / "no"):
        assert remembered(folder, [], settings, lambda: {"a": np.ones(1)})["a"] == 1
    remembered(kept, [], settings, lambda: {"a": np.ones(1)})
    for text in ("{", "[]", '{"a": ["x"]}'):
        next(kept.glob("*.json")).write_text(text)
        assert remembered(kept, [], settings, lambda: {"a": np.full(1, 2.0)})["a"] == 2
