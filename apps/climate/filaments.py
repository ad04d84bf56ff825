"""Filaments of the synthetic data set: atmospheric rivers, which are labelled, and look-alikes.

A river is moist air in a strong wind along a curve from the subtropics poleward and eastward,
driven by a low. Moist plumes without wind and dry jets carry no label, so that no threshold on one
variable separates the classes.

Suffixes: H latitude, W longitude, C the columns of the grid that a filament crosses. A pair is the
(lowest, highest) of a uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apps.climate.vortices import holland
from apps.climate.weather import KM_PER_DEGREE, Array, Grid, Weather

ATMOSPHERIC_RIVER = 2  # the label

RIVER_LABEL_PROFILE = (
    0.42  # a river's label ends where its cross-section falls below this fraction of the peak
)

START_LATITUDE = (16.0, 27.0)
END_LATITUDE = (38.0, 60.0)
LENGTH_DEGREE = (30.0, 75.0)  # of longitude
HALF_WIDTH_KM = (210.0, 400.0)  # e-folding across
CURVE = (0.7, 1.3)  # power of the way along: below 1 it turns poleward early
WOBBLE_DEGREE = (-4.0, 4.0)
WOBBLES = (1.0, 2.5)  # half waves along the way
TAPER_START, TAPER_END = 0.08, 0.15  # fractions of the way over which it begins and ends
RAINED_OUT = 0.5  # fraction of the added moisture that is gone at the end

PARENT_DEFICIT_PA = (900.0, 2600.0)
PARENT_CORE_KM = (450.0, 750.0)
PARENT_SHAPE = 1.1  # a middle-latitude low is flatter than a hurricane
PARENT_INFLOW_DEGREE = 10.0
PARENT_WAY = (0.52, 0.87)  # where along the filament
PARENT_OFFSET_DEGREE = 9.0  # poleward and west of that point, whose warm front the filament is
PARENT_LATITUDE_LIMIT = 78.0
PARENT_WIND_FACTOR = 0.6  # friction: the wind is weaker than in balance


@dataclass(frozen=True)
class FilamentKind:
    """What a family of filaments has in common.

    Attributes:
        count: Fewest and most a map.
        moisture_kg_m2: Added on the centre line.
        wind_m_s: Added on the centre line and along it, poleward and eastward.
        parent: Whether a low drives it.
        label: Class number, 0 for a look-alike.
    """

    count: tuple[int, int]
    moisture_kg_m2: tuple[float, float]
    wind_m_s: tuple[float, float]
    parent: bool = True
    label: int = 0


RIVER = FilamentKind((9, 16), (14.0, 26.0), (13.0, 30.0), label=ATMOSPHERIC_RIVER)
MOIST_PLUME = FilamentKind((2, 6), (14.0, 26.0), (-3.0, 3.0), parent=False)
DRY_JET = FilamentKind((2, 6), (-4.0, 2.0), (13.0, 30.0))


@dataclass(frozen=True)
class CentreLine:
    """The curve that a filament follows, latitude as a function of longitude.

    Attributes:
        hemisphere: 1 or -1.
        longitude: Where it starts, degrees.
        length_degree: Of longitude.
        start_latitude: Distance from the equator, degrees.
        end_latitude: The same at the end.
        curve: Power of the way along.
        wobble_degree: Amplitude of a sine on top.
        wobbles: Its half waves.
    """

    hemisphere: int
    longitude: float
    length_degree: float
    start_latitude: float
    end_latitude: float
    curve: float
    wobble_degree: float
    wobbles: float

    @classmethod
    def random(cls, rng: np.random.Generator) -> CentreLine:
        """Somewhere in the middle latitudes of either hemisphere."""
        pairs = (LENGTH_DEGREE, START_LATITUDE, END_LATITUDE, CURVE, WOBBLE_DEGREE, WOBBLES)
        hemisphere = 1 if rng.random() < 0.5 else -1
        return cls(hemisphere, rng.uniform(0.0, 360.0), *(rng.uniform(*pair) for pair in pairs))

    def latitude(self, way: Array) -> Array:
        """Degrees north at a fraction 0..1 of the way."""
        rise = (self.end_latitude - self.start_latitude) * way**self.curve
        wobble = self.wobble_degree * np.sin(np.pi * way) * np.sin(np.pi * self.wobbles * way)
        return self.hemisphere * (self.start_latitude + rise + wobble)

    def direction(self, way: Array) -> tuple[Array, Array]:
        """Unit vector (east, north) along the curve, in km on the ground."""
        before, after = np.clip(way - 0.01, 0.0, 1.0), np.clip(way + 0.01, 0.0, 1.0)
        north = self.latitude(after) - self.latitude(before)
        east = (after - before) * self.length_degree * np.cos(np.deg2rad(self.latitude(way)))
        norm = np.hypot(east, north)
        return east / norm, north / norm


def add_filaments(rng: np.random.Generator, grid: Grid, weather: Weather) -> None:
    """Add rivers, moist plumes and dry jets at random places, and label the rivers.

    Args:
        rng: Source of all randomness.
        grid: Of the map.
        weather: The map, changed in place.
    """
    for kind in (RIVER, MOIST_PLUME, DRY_JET):
        for _ in range(rng.integers(*kind.count, endpoint=True)):
            line = CentreLine.random(rng)
            _add(rng, grid, weather, kind, line)
            if kind.parent:
                _add_parent(rng, grid, weather, line)


def _add(
    rng: np.random.Generator, grid: Grid, weather: Weather, kind: FilamentKind, line: CentreLine
) -> None:
    way_W = np.mod(grid.longitude_W - np.float32(line.longitude), np.float32(360)) / np.float32(
        line.length_degree
    )
    columns = np.flatnonzero(way_W <= 1.0)
    way_C = way_W[columns]
    east_C, north_C = line.direction(way_C)
    profile_HC = _profile(grid, line, way_C, east_C, rng.uniform(*HALF_WIDTH_KM))
    wind_HC = np.float32(rng.uniform(*kind.wind_m_s)) * profile_HC
    moisture_C = np.float32(rng.uniform(*kind.moisture_kg_m2)) * (
        1 - np.float32(RAINED_OUT) * way_C
    )
    weather.moisture_kg_m2[:, columns] += moisture_C * profile_HC
    weather.east_m_s[:, columns] += east_C * wind_HC
    weather.north_m_s[:, columns] += north_C * wind_HC
    if kind.label:
        rows, crossed = np.nonzero(profile_HC > RIVER_LABEL_PROFILE)
        weather.label[rows, columns[crossed]] = kind.label


def _profile(
    grid: Grid, line: CentreLine, way_C: Array, east_C: Array, half_width_km: float
) -> Array:
    """1 on the centre line, a Gaussian across, tapered at both ends; shape HC.

    The distance across is the distance along the meridian times the cosine of the slope, which is
    exact for a straight line and needs no search for the nearest point.
    """
    north_km = (grid.latitude_H[:, None] - line.latitude(way_C)) * np.float32(KM_PER_DEGREE)
    across = np.exp(-((north_km * east_C / np.float32(half_width_km)) ** 2))
    return across * np.sqrt(np.minimum(way_C / TAPER_START, (1 - way_C) / TAPER_END).clip(0.0, 1.0))


def _add_parent(rng: np.random.Generator, grid: Grid, weather: Weather, line: CentreLine) -> None:
    way = rng.uniform(*PARENT_WAY)
    latitude = float(line.latitude(np.float32(way))) + line.hemisphere * PARENT_OFFSET_DEGREE
    low = holland(
        grid,
        latitude=float(np.clip(latitude, -PARENT_LATITUDE_LIMIT, PARENT_LATITUDE_LIMIT)),
        longitude=line.longitude + way * line.length_degree - PARENT_OFFSET_DEGREE,
        deficit_Pa=rng.uniform(*PARENT_DEFICIT_PA),
        core_km=rng.uniform(*PARENT_CORE_KM),
        shape=PARENT_SHAPE,
        inflow_degree=PARENT_INFLOW_DEGREE,
    )
    low.stir(weather, PARENT_WIND_FACTOR)
