"""Vortices against the formulas of Holland (1980) and known distances on the globe."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from apps.climate.vortices import CYCLONE, add_lows, holland

from apps.climate import vortices
from apps.climate.weather import AIR_DENSITY_KG_M3, Grid, background

FINE = Grid.regular(721, 1440)  # 28 km


def test_strongest_wind_and_lowest_pressure_are_hollands() -> None:
    """Cyclostrophic wind is largest at the core radius: sqrt(B deficit / (density e))."""
    vortex = holland(FINE, 10.0, 120.0, deficit_Pa=5000.0, core_km=100.0, shape=1.4)
    strongest = np.sqrt(1.4 * 5000 / (AIR_DENSITY_KG_M3 * np.e))
    assert vortex.speed_m_s.max() == pytest.approx(strongest, rel=0.05)  # less by the Coriolis term
    assert vortex.distance_km[
        np.unravel_index(vortex.speed_m_s.argmax(), vortex.speed_m_s.shape)
    ] == pytest.approx(100, abs=20)
    assert vortex.pressure_Pa.min() == pytest.approx(-5000, rel=0.01)


@pytest.mark.parametrize(("latitude", "sense"), [(20.0, 1), (-20.0, -1)])
def test_wind_turns_with_the_hemisphere_and_blows_inward(latitude: float, sense: int) -> None:
    vortex = holland(FINE, latitude, 0.0, 3000.0, 150.0)
    row = int(np.argmin(np.abs(FINE.latitude_H[vortex.rows] - latitude)))
    east_side, west_side = 12, -12  # three degrees on both sides of Greenwich
    assert sense * vortex.north_m_s[row, east_side] > 5
    assert sense * vortex.north_m_s[row, west_side] < -5
    assert vortex.east_m_s[row, east_side] < 0 < vortex.east_m_s[row, west_side]


def test_distance_is_the_great_circle() -> None:
    grid = Grid.regular(181, 360)
    vortex = holland(grid, 30.0, 350.0, 3000.0, 150.0)
    latitude_H = grid.latitude_H[vortex.rows].astype(np.float64)
    unit = lambda lat, lon: np.array(  # noqa: E731
        [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat) + 0 * lon]
    )
    lon_W = np.deg2rad(grid.longitude_W.astype(np.float64))
    points = unit(np.deg2rad(latitude_H)[:, None], lon_W[None])
    dots = np.einsum("chw,c->hw", points, unit(np.deg2rad(30.0), np.deg2rad(350.0)))
    np.testing.assert_allclose(
        vortex.distance_km, np.maximum(6371 * np.arccos(dots.clip(-1, 1)), 1), atol=0.5
    )


def test_left_out_rows_would_not_have_mattered() -> None:
    vortex = holland(FINE, 0.1, 0.0, 6500.0, 750.0)
    for edge in (0, -1):
        assert np.abs(vortex.pressure_Pa[edge]).max() < 1
        assert np.hypot(vortex.east_m_s[edge], vortex.north_m_s[edge]).max() < 0.01


def test_only_cyclones_are_labelled_where_their_pressure_is_low() -> None:
    grid = Grid.regular(96, 144)
    weather = background(np.random.default_rng(0), grid, 0.0)
    before = weather.pressure_Pa.copy()
    add_lows(np.random.default_rng(0), grid, weather, 0.0, 600.0)
    labelled = weather.label == 1
    assert labelled.any()
    assert (weather.pressure_Pa - before)[labelled].max() < -100
    assert np.abs(grid.latitude_H[labelled.any(1)]).max() < 38 + 600 / 111 + 2


def test_without_cyclones_there_is_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vortices, "CYCLONE", dataclasses.replace(CYCLONE, count=(0, 0)))
    grid = Grid.regular(24, 36)
    weather = background(np.random.default_rng(0), grid, 0.0)
    before = weather.pressure_Pa.copy()
    add_lows(np.random.default_rng(0), grid, weather, 0.0, 600.0)
    assert (weather.pressure_Pa - before).min() < -500  # the look-alikes are there
    assert not weather.label.any()
