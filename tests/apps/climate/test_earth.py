"""Areas against spherical bands, distances against the haversine, directions against a vortex."""

from __future__ import annotations

import numpy as np
import pytest

from apps.climate.earth import Earth, place, unit_vector

LATITUDE_H, LONGITUDE_W = np.linspace(-90, 90, 91), np.arange(0.0, 360, 2)


def haversine_km(lat, lon, latitude_HW, longitude_HW):
    lat1, lon1, lat2, lon2 = map(np.deg2rad, (lat, lon, latitude_HW, longitude_HW))
    inner = np.sin((lat2 - lat1) / 2) ** 2
    inner = inner + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6371 * np.arcsin(np.sqrt(np.clip(inner, 0, 1)))


def test_area_is_that_of_bands_and_of_the_globe() -> None:
    earth = Earth.of(LATITUDE_H, LONGITUDE_W, True)
    edges = np.deg2rad(np.clip(np.append(LATITUDE_H - 1, 91), -90, 90))
    band_H = 6371**2 * np.diff(np.sin(edges)) * np.deg2rad(2)
    np.testing.assert_allclose(earth.area_km2_HW[1:-1, 7], band_H[1:-1], rtol=1e-3)
    assert earth.area_km2_HW.sum() == pytest.approx(4 * np.pi * 6371**2, rel=1e-3)
    assert (earth.area_km2_HW > 0).all()
    region = Earth.of(LATITUDE_H[50:60], LONGITUDE_W[:10], False)
    np.testing.assert_allclose(region.area_km2_HW, earth.area_km2_HW[50:60, :10], rtol=2e-2)


def test_two_dimensional_coordinates_are_the_same_places() -> None:
    lat_HW, lon_HW = np.meshgrid(LATITUDE_H, LONGITUDE_W, indexing="ij")
    flat, full = Earth.of(LATITUDE_H, LONGITUDE_W, True), Earth.of(lat_HW, lon_HW, True)
    assert full is flat


@pytest.mark.parametrize("row", [0, 10, 45, 72])
def test_near_is_every_pixel_within_the_distance(row: int) -> None:
    """Across the date line and the pole."""
    earth = Earth.of(LATITUDE_H, LONGITUDE_W, True)
    index = row * len(LONGITUDE_W) + 1
    km_HW = haversine_km(LATITUDE_H[row], 2.0, earth.latitude_HW, earth.longitude_HW)
    near, found_km = earth.near(index, 1500.5)
    np.testing.assert_array_equal(near, np.flatnonzero(km_HW.ravel() <= 1500.5))
    np.testing.assert_allclose(found_km, km_HW.ravel()[near], atol=1e-4)


def test_around_turns_anticlockwise() -> None:
    """East of a point it is north, west of it south, and the circulation of a rotation is right."""
    earth = Earth.of(LATITUDE_H, LONGITUDE_W, True)
    index = 45 * 180  # 0 N, 0 E
    east, north = earth.around(index, np.array([index + 1, index + 179, index + 180, index - 180]))
    np.testing.assert_allclose(north, [1, -1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(east, [0, 0, -1, 1], atol=1e-12)
    near, km = earth.near(70 * 180 + 90, 3000)
    east, north = earth.around(70 * 180 + 90, near)
    np.testing.assert_allclose(np.hypot(east, north)[km > 1], 1)


def test_place_undoes_unit_vector() -> None:
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(-90, 90, 50), rng.uniform(0, 360, 50)
    found = place(3.0 * unit_vector(latitude, longitude))
    np.testing.assert_allclose(found, (latitude, longitude), atol=1e-9)
