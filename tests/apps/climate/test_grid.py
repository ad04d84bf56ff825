from __future__ import annotations

import re

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
    assert (np.diff(other.latitude) > 0).all()
    assert (np.diff(other.longitude) > 0).all()


@pytest.mark.parametrize("longitude", [np.arange(0, 361, 30.0), np.arange(-180, 181, 30.0)])
def test_repeated_cyclic_column_is_dropped_and_filled_again(longitude):
    grid = Grid.from_coordinates(np.array([10.0, -10.0]), longitude)
    assert grid.shape == (2, 12)
    assert grid.periodic
    np.testing.assert_array_equal(grid.longitude, np.arange(0, 360, 30.0))
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
    np.testing.assert_array_equal(grid.longitude, canonical)
    assert not grid.periodic


def test_longitudes_off_by_rounding_are_the_same_place():
    exact = Grid.from_coordinates(np.array([0.0, 1.0]), np.arange(0, 360, 0.9))
    noisy = np.arange(0, 360, 0.9) - 180
    noisy = Grid.from_coordinates(np.array([0.0, 1.0]), np.float64(np.float32(noisy + 1e-5)))
    assert exact.difference(noisy) is None
    tiny = Grid.from_coordinates(np.array([0.0, 1.0]), np.array([-1e-9, 90, 180, 270]))
    assert tiny.longitude[0] == 0


def test_area_is_the_cosine_of_latitude_times_the_step():
    longitude = np.array([0.0, 90, 180, 270])
    even = Grid.from_coordinates(np.arange(-90.0, 91, 30), longitude)
    expected_H = np.cos(np.deg2rad(even.latitude))
    np.testing.assert_allclose(even.area_HW, np.repeat(expected_H[:, None], 4, 1), atol=1e-7)
    assert even.area_HW.dtype == np.float32
    uneven = Grid.from_coordinates(np.array([60.0, 50, 30, 0]), longitude)
    steps_H = np.array([30, 25, 15, 10]) / 30
    expected_H = np.cos(np.deg2rad(uneven.latitude)) * steps_H
    np.testing.assert_allclose(uneven.area_HW[:, 0], expected_H, atol=1e-4)


def test_difference_names_sizes_and_ranges():
    one = Grid.from_coordinates(np.arange(0, 10.0), np.arange(0, 20.0))
    small = Grid.from_coordinates(np.arange(0, 9.0), np.arange(0, 20.0))
    sizes = r"10 x 20 \(latitude x longitude\), regional, .* against 9 x 20 \(lat"
    assert re.match(sizes, one.difference(small))
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


def rotated(latitude_pole, shape=(7, 9), step=2.0, roll=0.0):
    """Points of a grid whose equator is tilted: rotation about the y axis of a regional grid."""
    rows, columns = ((np.arange(size) - size // 2) * step for size in shape)
    north, east = np.meshgrid(np.deg2rad(rows), np.deg2rad(columns), indexing="ij")
    x, y, z = np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)
    tilt = np.deg2rad(90 - latitude_pole)
    x, z = np.cos(tilt) * x - np.sin(tilt) * z, np.sin(tilt) * x + np.cos(tilt) * z
    return np.rad2deg(np.arcsin(z)), np.rad2deg(np.arctan2(y, x)) + roll


@pytest.mark.parametrize("roll", [0, 10, 175, -170])
@pytest.mark.parametrize("flips", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_curvilinear_is_turned_and_back(roll, flips):
    latitude, longitude = rotated(40, roll=roll)
    turn = np.s_[:: flips[0], :: flips[1]]
    grid = Grid.from_mesh(latitude[turn], longitude[turn])
    assert (grid.shape, grid.periodic) == ((7, 9), False)
    np.testing.assert_array_equal(grid.latitude, latitude)
    values = np.arange(63.0).reshape(7, 9)
    np.testing.assert_array_equal(grid.to_canonical(values[turn]), values)
    np.testing.assert_array_equal(grid.from_canonical(values), values[turn])
    assert grid.difference(Grid.from_mesh(latitude + 1e-5, longitude + 360)) is None
    assert "degrees apart" in grid.difference(Grid.from_mesh(latitude + 0.1, longitude))


def test_area_of_a_rotated_grid_is_the_cosine_of_its_own_latitude():
    grid = Grid.from_mesh(*rotated(35, (31, 41)))
    expected_H = np.cos(np.deg2rad((np.arange(31) - 15) * 2.0))
    inner = np.s_[1:-1, 1:-1]  # at the edges neighbours are on one side
    expected_HW = np.broadcast_to(expected_H[:, None], (31, 41))[inner]
    found_HW = grid.area_HW[inner] / grid.area_HW[15, 20]
    np.testing.assert_allclose(found_HW, expected_HW, rtol=2e-4)


def test_an_ocean_grid_goes_around_and_may_repeat_columns():
    longitude, latitude = np.meshgrid(np.arange(0, 360, 10.0) + 80, np.linspace(-75, 85, 17))
    latitude = latitude + 3 * np.sin(np.deg2rad(longitude)) * (latitude > 40)  # displaced pole
    plain = Grid.from_mesh(latitude, longitude)
    assert (plain.shape, plain.periodic) == ((17, 36), True)
    repeated = [np.concatenate([it, it[:, :2]], 1) for it in (latitude, longitude)]
    grid = Grid.from_mesh(*repeated)
    assert (grid.shape, grid.periodic) == ((17, 36), True)
    values = np.cos(repeated[0]) + np.mod(repeated[1], 360)
    np.testing.assert_array_equal(grid.from_canonical(grid.to_canonical(values)), values)
    np.testing.assert_allclose(grid.area_HW, plain.area_HW)


def test_points_without_coordinates_have_no_area():
    latitude, longitude = rotated(40)
    latitude[0, 0] = longitude[0, 0] = np.nan
    area_HW = Grid.from_mesh(latitude, longitude).area_HW
    assert area_HW[0, 0] == 0
    assert np.isfinite(area_HW).all()


def test_a_mesh_of_no_degrees_is_refused():
    with pytest.raises(DataError, match=r"latitude of 2 x 2 points, up to 200; 2 x 2 or more"):
        Grid.from_mesh(np.full((2, 2), 200.0), np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"latitude of 1 x 5 points"):
        Grid.from_mesh(np.zeros((1, 5)), np.zeros((1, 5)))


def test_repeated_longitudes_are_refused():
    with pytest.raises(DataError, match="longitudes are repeated"):
        Grid.from_coordinates(np.array([0.0, 1.0]), np.array([0.0, 10, 10, 20]))
