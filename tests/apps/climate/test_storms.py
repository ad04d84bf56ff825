"""Vortices against Holland (1980) and known distances; filaments: curve, cross-section, labels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from apps.climate import storms
from apps.climate.storms import FILAMENTS, CentreLine, add_filaments, add_lows, add_vortex
from apps.climate.weather import AIR_DENSITY_KG_M3, Weather, background

STRAIGHT = CentreLine(1, 340.0, 60.0, 20.0, 50.0, curve=1.0, wobble=0.0, wobbles=1.0)
RIVER, MOIST_PLUME, DRY_JET = range(3)  # of FILAMENTS


def calm(latitudes: int = 721, longitudes: int = 1440) -> Weather:  # 28 km
    return Weather.calm((latitudes, longitudes))


def test_strongest_wind_and_lowest_pressure_are_hollands() -> None:
    """Cyclostrophic wind is largest at the core radius: sqrt(B deficit / (density e))."""
    weather = calm()
    _, speed_m_s, distance_km = add_vortex(weather, 10.0, 120.0, 5000.0, 100.0, shape=1.4)
    strongest = np.sqrt(1.4 * 5000 / (AIR_DENSITY_KG_M3 * np.e))
    assert speed_m_s.max() == pytest.approx(strongest, rel=0.05)  # less by the Coriolis term
    place = np.unravel_index(speed_m_s.argmax(), speed_m_s.shape)
    assert distance_km[place] == pytest.approx(100, abs=20)
    assert weather.pressure_Pa.min() == pytest.approx(-5000, rel=0.01)


@pytest.mark.parametrize(("latitude", "sense"), [(20.0, 1), (-20.0, -1)])
def test_wind_turns_with_the_hemisphere_and_blows_inward(latitude: float, sense: int) -> None:
    weather = calm()
    add_vortex(weather, latitude, 0.0, 3000.0, 150.0)
    row = int(np.argmin(np.abs(weather.latitude_H - latitude)))
    east_side, west_side = 12, -12  # three degrees on both sides of Greenwich
    assert sense * weather.north_m_s[row, east_side] > 5
    assert sense * weather.north_m_s[row, west_side] < -5
    assert weather.east_m_s[row, east_side] < 0 < weather.east_m_s[row, west_side]


def test_distance_is_the_great_circle() -> None:
    weather = calm(181, 360)
    rows, _, distance_km = add_vortex(weather, 30.0, 350.0, 3000.0, 150.0)
    latitude_H = weather.latitude_H[rows].astype(np.float64)
    unit = lambda lat, lon: np.array(  # noqa: E731
        [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat) + 0 * lon]
    )
    lon_W = np.deg2rad(weather.longitude_W.astype(np.float64))
    points = unit(np.deg2rad(latitude_H)[:, None], lon_W[None])
    dots = np.einsum("chw,c->hw", points, unit(np.deg2rad(30.0), np.deg2rad(350.0)))
    expected = np.maximum(6371 * np.arccos(dots.clip(-1, 1)), 1)
    np.testing.assert_allclose(distance_km, expected, atol=0.5)


def test_left_out_rows_would_not_have_mattered() -> None:
    weather = calm()
    rows, _, _ = add_vortex(weather, 0.1, 0.0, 6500.0, 750.0)
    for edge in (rows.start, rows.stop - 1):
        assert np.abs(weather.pressure_Pa[edge]).max() < 1
        assert np.hypot(weather.east_m_s[edge], weather.north_m_s[edge]).max() < 0.01


def test_only_cyclones_are_labelled_where_their_pressure_is_low() -> None:
    weather = background(np.random.default_rng(0), (96, 144), 0.0)
    before = weather.pressure_Pa.copy()
    add_lows(np.random.default_rng(0), weather, 0.0, 600.0)
    labelled = weather.label == 1
    assert labelled.any()
    assert (weather.pressure_Pa - before)[labelled].max() < -100
    assert np.abs(weather.latitude_H[labelled.any(1)]).max() < 38 + 600 / 111 + 2


def test_without_cyclones_there_is_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storms, "LOWS", storms.LOWS[1:])
    weather = background(np.random.default_rng(0), (24, 36), 0.0)
    before = weather.pressure_Pa.copy()
    add_lows(np.random.default_rng(0), weather, 0.0, 600.0)
    assert (weather.pressure_Pa - before).min() < -500  # the look-alikes are there
    assert not weather.label.any()


def only(kind: int, monkeypatch: pytest.MonkeyPatch) -> Weather:
    """A map of one filament without its parent."""
    _, moisture, wind, _, label = FILAMENTS[kind]
    monkeypatch.setattr(storms, "FILAMENTS", (((1, 1), moisture, wind, False, label),))
    monkeypatch.setattr(CentreLine, "random", lambda rng: STRAIGHT)
    weather = calm(96, 144)
    add_filaments(np.random.default_rng(0), weather)
    return weather


def test_curve_begins_and_ends_where_it_should_in_both_hemispheres() -> None:
    way = np.array([0.0, 0.5, 1.0])
    southern = dataclasses.replace(STRAIGHT, hemisphere=-1)
    np.testing.assert_allclose(STRAIGHT.latitude(way), [20, 35, 50])
    np.testing.assert_allclose(southern.latitude(way), [-20, -35, -50])
    wobbling = dataclasses.replace(STRAIGHT, wobble=4.0, wobbles=2.3)
    np.testing.assert_allclose(wobbling.latitude(way)[[0, 2]], [20, 50])


def test_direction_is_that_on_the_ground() -> None:
    """30 degrees of latitude over 60 of longitude, half as long at 60 north: 45 degrees."""
    line = dataclasses.replace(STRAIGHT, start_latitude=45.0, end_latitude=75.0)
    east, north = line.direction(np.array([0.5]))
    np.testing.assert_allclose([east[0], north[0]], [np.sqrt(0.5)] * 2, rtol=1e-6)


def test_a_river_is_moist_and_windy_along_its_curve_across_greenwich(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weather = only(RIVER, monkeypatch)
    column = 0  # Greenwich, a third of the way from 340
    row = int(weather.moisture_kg_m2[:, column].argmax())
    assert weather.latitude_H[row] == pytest.approx(30, abs=1)
    assert 14 * (1 - 1 / 6) * 0.9 < weather.moisture_kg_m2[row, column] < 26
    assert 0.9 * 13 < np.hypot(weather.east_m_s[row, column], weather.north_m_s[row, column]) < 30
    assert weather.label[row, column] == 2
    assert set(np.flatnonzero((weather.label == 2).any(0))) <= {*range(136, 144), *range(16)}


def test_the_cross_section_falls_to_1_over_e_at_the_half_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storms, "HALF_WIDTH_KM", (300.0, 300.0))
    weather = only(RIVER, monkeypatch)
    moisture = weather.moisture_kg_m2[:, 0]
    centre_km = (weather.latitude_H - 30.0) * 111.19
    # half a degree north per degree east
    slope_east = 1 / np.hypot(1, 0.5 / np.cos(np.deg2rad(30)))
    expected = np.exp(-((centre_km * slope_east / 300) ** 2))
    np.testing.assert_allclose(moisture / moisture.max(), expected / expected.max(), atol=0.02)
    np.testing.assert_array_equal(weather.label[:, 0] == 2, expected > 0.42)


@pytest.mark.parametrize("kind", [MOIST_PLUME, DRY_JET])
def test_look_alikes_are_not_labelled(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weather = only(kind, monkeypatch)
    assert not weather.label.any()
    windy = np.hypot(weather.east_m_s, weather.north_m_s).max() > 10
    moist = weather.moisture_kg_m2.max() > 10
    assert (windy, moist) == ((False, True) if kind == MOIST_PLUME else (True, False))


def test_cores_are_warm_in_the_tropics_and_cold_in_other_lows() -> None:
    """The warmth that was asked for in the centre, and gone far away; pressure is left alone."""
    for warmth in (0.05, -0.1):
        weather = calm()
        add_vortex(weather, 15.0, 180.0, 4000.0, 150.0, warmth=warmth)
        row, column = 420, 720
        assert weather.aloft_K[row, column] == pytest.approx(warmth * 40, rel=0.01)
        assert abs(weather.aloft_K[row, column + 80]) < 0.02  # 2100 km
    signs = {family[-1] or f"{family[-2]:.2f}": np.sign(family[-2]) for family in storms.LOWS}
    assert signs == {1: 1, "0.05": 1, "0.01": 1, "-0.08": -1}
