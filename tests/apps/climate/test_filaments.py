"""Filaments: their curve, their cross-section, and who is labelled."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from apps.climate.filaments import (
    DRY_JET,
    MOIST_PLUME,
    RIVER,
    CentreLine,
    FilamentKind,
    add_filaments,
)

from apps.climate import filaments
from apps.climate.weather import Grid, Weather

GRID = Grid.regular(96, 144)
STRAIGHT = CentreLine(1, 340.0, 60.0, 20.0, 50.0, curve=1.0, wobble_degree=0.0, wobbles=1.0)


def calm() -> Weather:
    fields = (np.zeros(GRID.shape, np.float32) for _ in range(4))
    return Weather(*fields, label=np.zeros(GRID.shape, np.int64))


def only(kind: FilamentKind, monkeypatch: pytest.MonkeyPatch) -> Weather:
    """A map of one filament without its parent."""
    none = dataclasses.replace(kind, count=(0, 0))
    for name, each in (("RIVER", RIVER), ("MOIST_PLUME", MOIST_PLUME), ("DRY_JET", DRY_JET)):
        alone = dataclasses.replace(kind, count=(1, 1), parent=False)
        monkeypatch.setattr(filaments, name, alone if each is kind else none)
    monkeypatch.setattr(CentreLine, "random", lambda rng: STRAIGHT)
    weather = calm()
    add_filaments(np.random.default_rng(0), GRID, weather)
    return weather


def test_curve_begins_and_ends_where_it_should_in_both_hemispheres() -> None:
    way = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(STRAIGHT.latitude(way), [20, 35, 50])
    np.testing.assert_allclose(
        dataclasses.replace(STRAIGHT, hemisphere=-1).latitude(way), [-20, -35, -50]
    )
    wobbling = dataclasses.replace(STRAIGHT, wobble_degree=4.0, wobbles=2.3)
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
    assert GRID.latitude_H[row] == pytest.approx(30, abs=1)
    assert 14 * (1 - 1 / 6) * 0.9 < weather.moisture_kg_m2[row, column] < 26
    assert 0.9 * 13 < np.hypot(weather.east_m_s[row, column], weather.north_m_s[row, column]) < 30
    assert weather.label[row, column] == 2
    assert set(np.flatnonzero((weather.label == 2).any(0))) <= {*range(136, 144), *range(16)}


def test_the_cross_section_falls_to_1_over_e_at_the_half_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filaments, "HALF_WIDTH_KM", (300.0, 300.0))
    weather = only(RIVER, monkeypatch)
    moisture = weather.moisture_kg_m2[:, 0]
    centre_km = (GRID.latitude_H - 30.0) * 111.19
    slope_east = 1 / np.hypot(
        1, 0.5 / np.cos(np.deg2rad(30))
    )  # half a degree north per degree east
    expected = np.exp(-((centre_km * slope_east / 300) ** 2))
    np.testing.assert_allclose(moisture / moisture.max(), expected / expected.max(), atol=0.02)
    np.testing.assert_array_equal(weather.label[:, 0] == 2, expected > 0.42)


@pytest.mark.parametrize("kind", [MOIST_PLUME, DRY_JET])
def test_look_alikes_are_not_labelled(kind: FilamentKind, monkeypatch: pytest.MonkeyPatch) -> None:
    weather = only(kind, monkeypatch)
    assert not weather.label.any()
    windy = np.hypot(weather.east_m_s, weather.north_m_s).max() > 10
    moist = weather.moisture_kg_m2.max() > 10
    assert (windy, moist) == ((False, True) if kind is MOIST_PLUME else (True, False))
