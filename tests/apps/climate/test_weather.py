"""The background: noise with the asked statistics, and wind that balances pressure."""

from __future__ import annotations

import numpy as np

from apps.climate.weather import (
    AIR_DENSITY_KG_M3,
    Weather,
    background,
    coriolis_per_s,
    random_fields,
    temperature_aloft,
)


def test_grid_has_both_poles_and_goes_once_around() -> None:
    grid = Weather.calm((5, 8))
    np.testing.assert_array_equal(grid.latitude_H, [-90, -45, 0, 45, 90])
    np.testing.assert_array_equal(grid.longitude_W, [0, 45, 90, 135, 180, 225, 270, 315])


def test_random_fields_are_standardised_and_steeper_slopes_smoother() -> None:
    field_NHW = random_fields(np.random.default_rng(0), (96, 144), (1.0, 2.0, 3.0))
    assert field_NHW.shape == (3, 96, 144)
    assert field_NHW.dtype == np.float32
    np.testing.assert_allclose(field_NHW.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(field_NHW.std((1, 2)), 1, rtol=1e-5)
    roughness_N = np.abs(np.diff(field_NHW, axis=2)).mean((1, 2))
    assert roughness_N[0] > 1.5 * roughness_N[1] > 2 * roughness_N[2]


def test_random_fields_have_no_seam_in_longitude_and_do_not_join_the_poles() -> None:
    rng = np.random.default_rng(1)
    field_NHW = random_fields(rng, (96, 144), (2.2,) * 20)
    step = np.abs(np.diff(field_NHW, axis=2)).mean()
    assert np.abs(field_NHW[:, :, 0] - field_NHW[:, :, -1]).mean() < 1.3 * step
    assert np.abs(field_NHW[:, 0] - field_NHW[:, -1]).mean() > 5 * step


def test_wind_is_geostrophic_in_the_middle_latitudes() -> None:
    """v = 1 / (density f) dp/dx, with metres from the circumference of the Earth."""
    weather = background(np.random.default_rng(0), (96, 144), 0.0)
    step_m = 40_030_000 / 144 * np.cos(np.deg2rad(weather.latitude_H))[:, None]
    slope = (np.roll(weather.pressure_Pa, -1, 1) - np.roll(weather.pressure_Pa, 1, 1)) / (
        2 * step_m
    )
    f = coriolis_per_s(weather.latitude_H)[:, None]
    rows = (np.abs(weather.latitude_H) > 30) & (np.abs(weather.latitude_H) < 60)
    balanced = (slope[rows] / (AIR_DENSITY_KG_M3 * f[rows])).ravel()
    north = weather.north_m_s[rows].ravel()
    assert np.corrcoef(balanced, north)[0, 1] > 0.9
    assert 0.8 < np.polyfit(north, balanced, 1)[0] < 1.2


def test_the_moist_belt_follows_the_season() -> None:
    north = background(np.random.default_rng(0), (96, 144), 1.0).moisture_kg_m2[48:].mean()
    south = background(np.random.default_rng(0), (96, 144), -1.0).moisture_kg_m2[48:].mean()
    assert north > 1.2 * south


def test_temperature_aloft_is_flat_in_the_tropics() -> None:
    weather = Weather.calm((91, 144))
    aloft_K = temperature_aloft(np.random.default_rng(0), weather, 0.0)
    assert aloft_K.dtype == np.float32
    mean_H = aloft_K.mean(1)
    assert abs(mean_H[45] - mean_H[55]) < 2  # 0 and 20 N
    assert mean_H[45] - mean_H[70] > 15  # 50 N
    assert aloft_K[45].std() < 2 < aloft_K[70].std()
