"""A random weather map in geostrophic balance: the background of the synthetic data set.

Moisture is a zonal climatology times lognormal noise, wind and pressure come from one random
streamfunction, and jets, trades, subtropical highs and polar lows are added. The mean and spread of
the variables follow ClimateNet (Prabhat et al. 2021, doi:10.5194/gmd-14-107-2021). The storms that
a network has to find are added by `storms.py`.

Suffixes: H latitude, W longitude, N random field. Arrays are float32, but the label, which is
    int64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

EARTH_RADIUS_KM = 6371.0
EARTH_ROTATION_PER_S = 7.292e-5
AIR_DENSITY_KG_M3 = 1.15  # near the surface, moist tropical air
KM_PER_DEGREE = EARTH_RADIUS_KM * np.pi / 180.0

LARGEST_WAVE = 2.0  # per 180 degrees: larger scales are the climatology's
MOISTURE_SLOPE = (
    2.2  # amplitude falls with wavenumber to this power, which is near what reanalyses show
)
STREAM_SLOPE = 2.2
DETAIL_SLOPE = 1.6

MOISTURE_POLE_KG_M2 = 0.3
MOISTURE_EQUATOR_KG_M2 = 46.0
MOISTURE_BELT_DEGREE = 39.0  # e-folding of the moist belt on both sides of the thermal equator
MOISTURE_SHIFT_DEGREE = 6.0  # how far the thermal equator moves into the summer hemisphere
MOISTURE_LOG_SPREAD = 0.24  # standard deviation of the logarithm
MOISTURE_DETAIL_KG_M2 = 1.0
MOISTURE_RANGE_KG_M2 = (0.05, 78.0)  # that of ClimateNet

STREAM_M2_S = 7.4e6  # standard deviation of the streamfunction in the middle latitudes
STREAM_AT_EQUATOR = 0.3  # fraction of it there: the tropics are calm
CALM_BELT_DEGREE = 28.0
SMALLEST_COSINE = (
    0.35  # meridians are not allowed to come closer than at 70 degrees when taking differences
)
PRESSURE_NOISE_LIMIT_PA = 3500.0
PRESSURE_DETAIL_PA = 90.0

# (amplitude, latitude, e-folding width in degrees) of belts around the globe
WIND_BELTS_M_S = (
    (9.0, 48, 16),
    (10.35, -50, 16),
    (-6.5, 15, 13),
    (-6.5, -15, 13),
)  # westerlies, trades
PRESSURE_BELTS_PA = ((900.0, 30, 14), (900.0, -32, 14), (-1100.0, 62, 16), (-3800.0, -68, 18))
MEAN_PRESSURE_PA = 101300.0


@dataclass(frozen=True)
class Grid:
    """A global latitude-longitude grid.

    Attributes:
        latitude_H: Degrees north, ascending, both poles included.
        longitude_W: Degrees east, from 0, the last one step short of 360.
    """

    latitude_H: Array
    longitude_W: Array

    @classmethod
    def regular(cls, latitudes: int, longitudes: int) -> Grid:
        """Equal steps: `latitudes` rows from pole to pole, `longitudes` columns once around."""
        latitude_H = np.linspace(-90.0, 90.0, latitudes, dtype=np.float32)
        return cls(latitude_H, (np.arange(longitudes) * (360.0 / longitudes)).astype(np.float32))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.latitude_H), len(self.longitude_W)


@dataclass
class Weather:
    """One map. Storms are added to it in place. Every field has the shape HW of the grid.

    Attributes:
        moisture_kg_m2: Total column water vapour.
        east_m_s: Eastward wind at 850 hPa.
        north_m_s: Northward wind at 850 hPa.
        pressure_Pa: Pressure at sea level.
        label: 0 background, 1 tropical cyclone, 2 atmospheric river.
    """

    moisture_kg_m2: Array
    east_m_s: Array
    north_m_s: Array
    pressure_Pa: Array
    label: NDArray[np.int64]


def coriolis_per_s(latitude_degree: Array | float) -> Array | float:
    """Coriolis parameter, negative in the south."""
    return 2.0 * EARTH_ROTATION_PER_S * np.sin(np.deg2rad(latitude_degree))


def random_fields(rng: np.random.Generator, grid: Grid, slopes: tuple[float, ...]) -> Array:
    """Red Gaussian fields of mean 0 and variance 1, periodic in longitude and not in latitude.

    Args:
        rng: Source of the white noise.
        grid: Where to evaluate.
        slopes: For each field, the power of the wavenumber by which the amplitude falls; larger is
            smoother.

    Returns:
        Array NHW.
    """
    height, width = grid.shape
    # Twice the height, of which half is used: otherwise the Fourier transform would join the two
    # poles.
    noise = rng.standard_normal((len(slopes), 2 * height, width), dtype=np.float32)
    wave_y, wave_x = np.fft.fftfreq(2 * height, 1.0 / height), np.fft.rfftfreq(width, 2.0 / width)
    wavenumber = np.maximum(np.hypot(wave_y[:, None], wave_x), LARGEST_WAVE).astype(np.float32)
    gain = wavenumber ** -np.array(slopes, dtype=np.float32)[:, None, None]
    gain[:, 0, 0] = 0.0
    field_NHW = np.fft.irfft2(np.fft.rfft2(noise) * gain, s=noise.shape[1:])[:, :height]
    field_NHW = field_NHW - field_NHW.mean((1, 2), keepdims=True)
    return (field_NHW / field_NHW.std((1, 2), keepdims=True)).astype(np.float32)


def background(rng: np.random.Generator, grid: Grid, season: float) -> Weather:
    """A map without storms and without labels.

    Args:
        rng: Source of the noise.
        grid: Where to evaluate.
        season: 1 in the northern summer, -1 in the northern winter.
    """
    moisture_noise, stream_noise, detail = random_fields(
        rng, grid, (MOISTURE_SLOPE, STREAM_SLOPE, DETAIL_SLOPE)
    )
    stream_m2_s = _stream(grid, stream_noise)
    east_m_s, north_m_s = _wind(grid, stream_m2_s)
    return Weather(
        moisture_kg_m2=_moisture(grid, moisture_noise, detail, season),
        east_m_s=east_m_s + _belts(grid, WIND_BELTS_M_S),
        north_m_s=north_m_s,
        pressure_Pa=_pressure(grid, stream_m2_s) + PRESSURE_DETAIL_PA * detail,
        label=np.zeros(grid.shape, np.int64),
    )


def _belt(grid: Grid, centre_degree: float, width_degree: float) -> Array:
    """1 at a latitude, falling off as a Gaussian to both sides; shape H1."""
    return np.exp(
        -(((grid.latitude_H - np.float32(centre_degree)) / np.float32(width_degree)) ** 2)
    )[:, None]


def _belts(grid: Grid, belts: tuple[tuple[float, int, int], ...]) -> Array:
    return sum(
        (np.float32(amplitude) * _belt(grid, centre, width) for amplitude, centre, width in belts),
        start=np.zeros((len(grid.latitude_H), 1), np.float32),
    )


def _moisture(grid: Grid, noise_HW: Array, detail_HW: Array, season: float) -> Array:
    belt = _belt(grid, MOISTURE_SHIFT_DEGREE * season, MOISTURE_BELT_DEGREE)
    climatology = MOISTURE_POLE_KG_M2 + MOISTURE_EQUATOR_KG_M2 * belt
    mean_of_lognormal = (
        MOISTURE_LOG_SPREAD**2 / 2
    )  # subtracted, so that the noise leaves the mean alone
    noisy = climatology * np.exp(MOISTURE_LOG_SPREAD * noise_HW - mean_of_lognormal)
    return noisy + MOISTURE_DETAIL_KG_M2 * _belt(grid, 0, 60) * detail_HW


def _stream(grid: Grid, noise_HW: Array) -> Array:
    cosine = np.cos(np.deg2rad(grid.latitude_H))[:, None].clip(0.0)
    lively = STREAM_AT_EQUATOR + (1 - STREAM_AT_EQUATOR) * (1 - _belt(grid, 0, CALM_BELT_DEGREE))
    return STREAM_M2_S * lively * np.sqrt(cosine) * noise_HW


def _wind(grid: Grid, stream_m2_s: Array) -> tuple[Array, Array]:
    """Eastward and northward wind without divergence: -d/dy and d/dx of the streamfunction."""
    metre_per_degree = np.float32(1000 * KM_PER_DEGREE)
    step_y = metre_per_degree * (grid.latitude_H[1] - grid.latitude_H[0])
    cosine = np.cos(np.deg2rad(grid.latitude_H)).clip(SMALLEST_COSINE)[:, None]
    step_x = metre_per_degree * (grid.longitude_W[1] - grid.longitude_W[0]) * cosine
    difference = np.roll(stream_m2_s, -1, 1) - np.roll(stream_m2_s, 1, 1)
    return -np.gradient(stream_m2_s, axis=0) / step_y, difference / (2 * step_x)


def _pressure(grid: Grid, stream_m2_s: Array) -> Array:
    """Belts of highs and lows, and geostrophic balance: p' = density x f x streamfunction."""
    balanced = AIR_DENSITY_KG_M3 * coriolis_per_s(grid.latitude_H)[:, None] * stream_m2_s
    limited = np.clip(balanced, -PRESSURE_NOISE_LIMIT_PA, PRESSURE_NOISE_LIMIT_PA)
    return MEAN_PRESSURE_PA + _belts(grid, PRESSURE_BELTS_PA) + limited
