from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.climate.grid import Grid
from scadl_core.errors import DataError


def field(latitude, longitude):
    """A value that depends on the place alone, so it is the same in every orientation."""
    return 1000 * np.asarray(latitude)[:, None] + np.round(np.mod(longitude, 360), 3) % 360


@st.composite
def grids(draw):
    height, width = draw(st.integers(2, 9)), draw(st.integers(4, 24))
    spacing = 360 / width if draw(st.booleans()) else draw(st.floats(0.1, 240 / width))
    longitude = draw(st.integers(-180, 359)) + spacing * np.arange(width)
    return np.linspace(-80, 75, height), longitude


@given(grids(), st.integers(-30, 30), st.booleans(), st.sampled_from([-360, 0, 360]))
def test_rolled_and_flipped_files_are_the_same_canonical_field(grid, roll, flip, turn):
    latitude, longitude = grid
    one = Grid.from_coordinates(latitude, longitude)
    moved_longitude = np.roll(longitude, roll) % 360 + turn
    moved_latitude = latitude[::-1] if flip else latitude
    other = Grid.from_coordinates(moved_latitude, moved_longitude)
    assert one.difference(other) is None
    assert one.periodic == other.periodic
    original, moved = field(latitude, longitude), field(moved_latitude, moved_longitude)
    canonical = other.to_canonical(moved)
    np.testing.assert_allclose(one.to_canonical(original), canonical, atol=2e-3)
    np.testing.assert_array_equal(other.from_canonical(canonical), moved)
    assert (np.diff(other.latitude_H) > 0).all()
    assert (np.diff(other.longitude_W) > 0).all()


@pytest.mark.parametrize("longitude", [np.arange(0, 361, 30.0), np.arange(-180, 181, 30.0)])
def test_repeated_cyclic_column_is_dropped_and_filled_again(longitude):
    grid = Grid.from_coordinates(np.array([10.0, -10.0]), longitude)
    assert grid.shape == (2, 12)
    assert grid.periodic
    np.testing.assert_array_equal(grid.longitude_W, np.arange(0, 360, 30.0))
    values = field([10, -10], longitude)
    np.testing.assert_array_equal(grid.from_canonical(grid.to_canonical(values)), values)


@pytest.mark.parametrize(
    ("longitude", "canonical"),
    [
        ([-20, -10, 0, 10], [340, 350, 360, 370]),
        ([0, 10, 340, 350], [340, 350, 360, 370]),
        ([170, 180, -170, -160], [170, 180, 190, 200]),
    ],
)
def test_region_stays_in_one_piece(longitude, canonical):
    grid = Grid.from_coordinates(np.array([0.0, 10.0]), np.float64(longitude))
    np.testing.assert_array_equal(grid.longitude_W, canonical)
    assert not grid.periodic


def test_longitudes_off_by_rounding_are_the_same_place():
    exact = Grid.from_coordinates(np.array([0.0, 1.0]), np.arange(0, 360, 0.9))
    noisy = np.arange(0, 360, 0.9) - 180
    noisy = Grid.from_coordinates(np.array([0.0, 1.0]), np.float64(np.float32(noisy + 1e-5)))
    assert exact.difference(noisy) is None
    tiny = Grid.from_coordinates(np.array([0.0, 1.0]), np.array([-1e-9, 90, 180, 270]))
    assert tiny.longitude_W[0] == 0


def test_area_is_the_cosine_of_latitude():
    grid = Grid.from_coordinates(np.array([90.0, 60.0, 0.0, -90.0]), np.array([0.0, 90, 180, 270]))
    np.testing.assert_allclose(grid.area_H, [0, 1, 0.5, 0], atol=1e-7)
    assert grid.area_H.dtype == np.float32


def test_difference_names_sizes_and_ranges():
    one = Grid.from_coordinates(np.arange(0, 10.0), np.arange(0, 20.0))
    small = Grid.from_coordinates(np.arange(0, 9.0), np.arange(0, 20.0))
    assert one.difference(small) == "10 x 20 against 9 x 20 points (latitude x longitude)"
    moved = Grid.from_coordinates(np.arange(0, 10.0) + 0.5, np.arange(0, 20.0))
    assert one.difference(moved) == "latitude 0..9 against 0.5..9.5, up to 0.5 degrees apart"
    shifted = Grid.from_coordinates(np.arange(0, 10.0), np.arange(0, 20.0) + 0.002)
    assert one.difference(shifted).startswith("longitude 0..19 against 0.002..19.002")
    assert one.difference(Grid.from_coordinates(np.arange(0, 10.0) + 9e-4, np.arange(20.0))) is None


@pytest.mark.parametrize(
    ("latitude", "longitude", "message"),
    [
        ([0, 91], [0, 1], "latitude 0..91; degrees within -90..90, none missing"),
        ([0, np.nan], [0, 1], "none missing"),
        ([0, 0], [0, 1], "latitudes are repeated"),
        ([0], [0, 1], "one latitude only"),
    ],
)
def test_what_is_no_grid_is_refused(latitude, longitude, message):
    with pytest.raises(DataError, match=message):
        Grid.from_coordinates(np.float64(latitude), np.float64(longitude))
