from __future__ import annotations

import numpy as np
import pytest
from apps.climate.statistics import Statistics
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_streaming_equals_all_at_once(seed, count):
    rng = np.random.default_rng(seed)
    means = np.reshape([1e5, 0], (2, 1, 1))
    images = (rng.normal(size=(count, 2, 3, 5)) + means).astype(np.float32)
    images[rng.random(images.shape) < 0.3] = np.nan
    labels = rng.integers(-1, 3, (count, 3, 5))
    images[0, :, 0, 0] = 1, 2  # so that no channel is empty
    images[0, :, 0, 1] = 3, 4
    statistics = Statistics(2, 3)
    for image_CHW, label_HW in zip(images, labels, strict=True):
        statistics.add(image_CHW, label_HW)
    values = images.astype(np.float64)
    np.testing.assert_allclose(statistics.mean_C, np.nanmean(values, (0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(statistics.std_C, np.nanstd(values, (0, 2, 3)), rtol=1e-9)
    np.testing.assert_array_equal(statistics.min_C, np.nanmin(values, (0, 2, 3)))
    np.testing.assert_array_equal(statistics.max_C, np.nanmax(values, (0, 2, 3)))
    np.testing.assert_array_equal(statistics.missing_C, np.isnan(values).sum((0, 2, 3)))
    known = labels[labels >= 0]
    if known.size:
        expected = np.bincount(known, minlength=3) / known.size
        np.testing.assert_allclose(statistics.fraction_K, expected)


def test_small_deviation_of_a_large_mean():
    statistics = Statistics(1, 0)
    for value in (1e9 - 1, 1e9 + 1):
        statistics.add(np.full((1, 2, 2), value), np.full((2, 2), -1))
    assert statistics.std_C[0] == pytest.approx(1.0, rel=1e-12)


def test_constant_channel_divides_by_one():
    statistics = Statistics(1, 0)
    statistics.add(np.full((1, 2, 2), 273.15), np.full((2, 2), -1))
    assert statistics.constant_C.tolist() == [True]
    assert statistics.std_C.tolist() == [1.0]
