"""A random weather map in geostrophic balance: the background of the synthetic data set.

Moisture is a zonal climatology times lognormal noise, wind and pressure come from one random
streamfunction, and jets, trades, subtropical highs and polar lows are added. The mean and spread of
the variables follow ClimateNet (Prabhat et al. 2021, doi:10.5194/gmd-14-107-2021). The storms that
a network has to find are added by `storms.py`.

Suffixes: H latitude, W longitude, N random field, 1 an axis of length one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float32]
Rng = np.random.Generator

EARTH_RADIUS_KM = 6371.0
KM_PER_DEGREE = EARTH_RADIUS_KM * np.pi / 180.0
EARTH_ROTATION_PER_S = 7.292e-5
AIR_DENSITY_KG_M3 = 1.15  # near the surface, moist tropical air

LARGEST_WAVE = 2.0  # per 180 degrees: larger scales are the climatology's
NOISE_SLOPES = (2.2, 2.2, 1.6)  # of moisture, streamfunction and detail, see `random_fields`
MOISTURE_LOG_SPREAD = 0.24  # standard deviation of the logarithm
STREAM_M2_S = 7.4e6  # standard deviation of the streamfunction in the middle latitudes
STREAM_AT_EQUATOR = 0.3  # fraction of it there: the tropics are calm
SMALLEST_COSINE = 0.35  # of latitude, in differences: beyond 70 degrees meridians come no closer
PRESSURE_NOISE_LIMIT_PA = 3500.0
WARMTH_SLOPE = 2.2  # of the temperature's noise
WARMTH_SPREAD_K = (0.8, 3.0)  # its standard deviation at the equator and in the middle latitudes

# (amplitude, latitude, e-folding width in degrees) of belts around the globe
WIND_BELTS_M_S = ((9.0, 48, 16), (10.35, -50, 16), (-6.5, 15, 13), (-6.5, -15, 13))
PRESSURE_BELTS_PA = ((900.0, 30, 14), (900.0, -32, 14), (-1100.0, 62, 16), (-3800.0, -68, 18))


@dataclass
class Weather:
    """One map, to which storms are added in place. Fields have the shape HW."""

    latitude_H: Array  # degrees north, ascending, both poles included
    longitude_W: Array  # degrees east, from 0 once around
    moisture_kg_m2: Array  # total column water vapour
    east_m_s: Array  # wind at 850 hPa
    north_m_s: Array
    pressure_Pa: Array  # at sea level
    aloft_K: Array  # temperature at 500 hPa
    label: NDArray[np.int64]  # 0 background, 1 tropical cyclone, 2 atmospheric river

    @classmethod
    def calm(cls, shape: tuple[int, int]) -> Weather:
        """Zeros on a global grid of equal steps."""
        latitude_H = np.linspace(-90.0, 90.0, shape[0], dtype=np.float32)
        longitude_W = (np.arange(shape[1]) * (360.0 / shape[1])).astype(np.float32)
        zeros_NHW = np.zeros((5, *shape), np.float32)
        return cls(latitude_H, longitude_W, *zeros_NHW, zeros_NHW[0].astype(np.int64))


def coriolis_per_s(latitude_degree: ArrayLike) -> Array:
    """Coriolis parameter, negative in the south."""
    return (2.0 * EARTH_ROTATION_PER_S * np.sin(np.deg2rad(latitude_degree))).astype(np.float32)


def random_fields(rng: Rng, shape: tuple[int, int], slopes: tuple[float, ...]) -> Array:
    """Red Gaussian fields NHW of mean 0 and variance 1, periodic in longitude, not in latitude.

    The amplitude of field n falls with the wavenumber to the power `slopes[n]`.
    """
    height, width = shape
    # Twice the height, of which half is used: else the transform would join the two poles.
    noise = rng.standard_normal((len(slopes), 2 * height, width), dtype=np.float32)
    wave_y, wave_x = np.fft.fftfreq(2 * height, 1.0 / height), np.fft.rfftfreq(width, 2.0 / width)
    wavenumber = np.maximum(np.hypot(wave_y[:, None], wave_x), LARGEST_WAVE).astype(np.float32)
    gain = wavenumber ** -np.array(slopes, dtype=np.float32)[:, None, None]
    gain[:, 0, 0] = 0.0
    field_NHW = np.fft.irfft2(np.fft.rfft2(noise) * gain, s=noise.shape[1:])[:, :height]
    field_NHW = field_NHW - field_NHW.mean((1, 2), keepdims=True)
    return (field_NHW / field_NHW.std((1, 2), keepdims=True)).astype(np.float32)


def background(rng: Rng, shape: tuple[int, int], season: float) -> Weather:
    """A map without storms and labels; the season is 1 in the northern summer, -1 in the winter."""
    weather = Weather.calm(shape)
    latitude_H1 = weather.latitude_H[:, None]
    noise_HW, stream_HW, detail_HW = random_fields(rng, shape, NOISE_SLOPES)
    # The moist belt moves into the summer hemisphere. Noise shall leave the mean alone.
    climatology_H1 = 0.3 + 46.0 * _belts(latitude_H1, (1.0, 6.0 * season, 39.0))
    noisy_HW = climatology_H1 * np.exp(MOISTURE_LOG_SPREAD * noise_HW - MOISTURE_LOG_SPREAD**2 / 2)
    weather.moisture_kg_m2 = noisy_HW + _belts(latitude_H1, (1.0, 0, 60)) * detail_HW

    cosine_H1 = np.cos(np.deg2rad(latitude_H1))
    lively_H1 = STREAM_AT_EQUATOR + (1 - STREAM_AT_EQUATOR) * (1 - _belts(latitude_H1, (1, 0, 28)))
    stream_m2_s = STREAM_M2_S * lively_H1 * np.sqrt(cosine_H1.clip(0.0)) * stream_HW
    # Wind without divergence: -d/dy and d/dx of the streamfunction.
    metre_per_degree = np.float32(1000 * KM_PER_DEGREE)
    step_y = metre_per_degree * (weather.latitude_H[1] - weather.latitude_H[0])
    step_x = metre_per_degree * (weather.longitude_W[1] - weather.longitude_W[0])
    difference_HW = np.roll(stream_m2_s, -1, 1) - np.roll(stream_m2_s, 1, 1)
    weather.north_m_s = difference_HW / (2 * (step_x * cosine_H1.clip(SMALLEST_COSINE)))
    jets_H1 = _belts(latitude_H1, *WIND_BELTS_M_S)
    weather.east_m_s = -np.gradient(stream_m2_s, axis=0) / step_y + jets_H1
    # Geostrophic balance: density x Coriolis parameter x streamfunction.
    balanced_Pa = AIR_DENSITY_KG_M3 * coriolis_per_s(latitude_H1) * stream_m2_s
    limited_Pa = balanced_Pa.clip(-PRESSURE_NOISE_LIMIT_PA, PRESSURE_NOISE_LIMIT_PA)
    mean_Pa = 101300.0 + _belts(latitude_H1, *PRESSURE_BELTS_PA)
    weather.pressure_Pa = mean_Pa + limited_Pa + 90.0 * detail_HW
    return weather


def temperature_aloft(rng: Rng, weather: Weather, season: float) -> Array:
    """Temperature at 500 hPa, K: flat in the tropics, steep in the middle latitudes, and noise."""
    latitude_H1 = weather.latitude_H[:, None]
    (noise_HW,) = random_fields(rng, weather.label.shape, (WARMTH_SLOPE,))
    at_equator, more = WARMTH_SPREAD_K[0], WARMTH_SPREAD_K[1] - WARMTH_SPREAD_K[0]
    spread_H1 = at_equator + more * (1 - _belts(latitude_H1, (1, 0, 28)))
    return 235 + 33 * np.exp(-(((latitude_H1 - 4 * season) / 50) ** 4)) + spread_H1 * noise_HW


def _belts(latitude_H1: Array, *belts: tuple[float, float, float]) -> Array:
    """The sum of Gaussians of latitude."""
    return sum(
        amplitude * np.exp(-(((latitude_H1 - centre) / width) ** 2))
        for amplitude, centre, width in belts
    )
