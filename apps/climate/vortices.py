"""Lows of the synthetic data set: tropical cyclones, which are labelled, and look-alikes.

A cyclone has the pressure and wind of Holland (1980,
doi:10.1175/1520-0493(1980)108<1212:AAMOTW>2.0.CO;2) and a moist core. Depressions (too weak) and
cold lows (dry, far from the tropics) carry no label, so that no threshold on one variable separates
the classes.

Suffixes: H latitude, W longitude. A pair is the (lowest, highest) of a uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apps.climate.weather import (
    AIR_DENSITY_KG_M3,
    EARTH_RADIUS_KM,
    KM_PER_DEGREE,
    Array,
    Grid,
    Weather,
    coriolis_per_s,
)

TROPICAL_CYCLONE = 1  # the label

CYCLONE_RADIUS_KM = 600.0  # a cyclone's label ends at this distance from its centre at the latest,
CYCLONE_LABEL_WIND_M_S = (
    14.0  # and where the vortex alone blows less. Gale force is 17; the background adds to it
)

HOLLAND_SHAPE = 1.4  # B of Holland (1980), between 1 and 2.5; larger is sharper
INFLOW_DEGREE = 20.0  # surface wind crosses the isobars toward the centre
VORTEX_REACH_KM = 1500.0  # e-folding of the whole vortex, as Holland's profile has no end,
VORTEX_END = (
    3.0  # and so many times as far away it is left out: there it is below 1 Pa and 0.01 m/s
)
SMALLEST_CORIOLIS_DEGREE = 5.0  # the balance breaks down nearer to the equator

TROPICAL_GAMMA = (6.0, 3.1)  # shape, and scale in degrees: cyclones are most common near 16 degrees
TROPICAL_LATITUDE = (6.0, 38.0)
SUMMER_SHARE = 0.3  # at the solstice the summer hemisphere has 0.5 + this of the lows


@dataclass(frozen=True)
class LowKind:
    """What a family of lows has in common.

    Attributes:
        count: Fewest and most a map.
        deficit_Pa: Pressure far away minus pressure in the centre.
        core_km: Radius of the strongest wind.
        moisture_kg_m2: Added in the centre.
        moisture_factor: What is left in the centre of the moisture that was there before.
        moisture_km: E-folding of both.
        latitude: Distance from the equator in degrees; None for that of tropical storms.
        label: Class number, 0 for a look-alike.
    """

    count: tuple[int, int]
    deficit_Pa: tuple[float, float]
    core_km: tuple[float, float]
    moisture_kg_m2: tuple[float, float] = (0.0, 0.0)
    moisture_factor: float = 1.0
    moisture_km: float = 420.0
    latitude: tuple[float, float] | None = None
    label: int = 0


# The cores are wide for real ones, since the boxes of the default grid are 200 km wide.
CYCLONE = LowKind((3, 6), (1800.0, 6500.0), (90.0, 170.0), (9.0, 18.0), label=TROPICAL_CYCLONE)
DEPRESSION = LowKind((1, 3), (250.0, 700.0), (120.0, 200.0), (9.0, 18.0))
COLD_LOW = LowKind(  # those cut off from the westerlies come near to the tropics
    (3, 7),
    (1500.0, 4500.0),
    (220.0, 500.0),
    moisture_factor=0.65,
    moisture_km=700.0,
    latitude=(20.0, 60.0),
)


@dataclass(frozen=True)
class Vortex:
    """A vortex on the rows of the grid that it reaches, arrays HW.

    Attributes:
        rows: Which ones.
        east_m_s: Eastward wind.
        north_m_s: Northward wind.
        pressure_Pa: Pressure minus that far away, negative.
        speed_m_s: Tangential wind of the profile, without the fade of `VORTEX_REACH_KM`.
        distance_km: From the centre.
    """

    rows: slice
    east_m_s: Array
    north_m_s: Array
    pressure_Pa: Array
    speed_m_s: Array
    distance_km: Array

    def stir(self, weather: Weather, wind_factor: float = 1.0) -> None:
        """Add wind, times a factor, and pressure to a map."""
        weather.east_m_s[self.rows] += np.float32(wind_factor) * self.east_m_s
        weather.north_m_s[self.rows] += np.float32(wind_factor) * self.north_m_s
        weather.pressure_Pa[self.rows] += self.pressure_Pa


def add_lows(
    rng: np.random.Generator, grid: Grid, weather: Weather, season: float, cyclone_radius_km: float
) -> None:
    """Add cyclones, depressions and cold lows at random places, and label the cyclones.

    Args:
        rng: Source of all randomness.
        grid: Of the map.
        weather: The map, changed in place.
        season: 1 in the northern summer, -1 in the northern winter.
        cyclone_radius_km: Largest distance of a labelled point from the centre of its cyclone.
    """
    for kind in (CYCLONE, DEPRESSION, COLD_LOW):
        for _ in range(rng.integers(*kind.count, endpoint=True)):
            vortex = _random_vortex(rng, grid, kind, season)
            vortex.stir(weather)
            _moisten(weather, vortex, kind, rng.uniform(*kind.moisture_kg_m2))
            if kind.label:
                windy_HW = vortex.speed_m_s > CYCLONE_LABEL_WIND_M_S
                near_HW = vortex.distance_km < cyclone_radius_km
                weather.label[vortex.rows][windy_HW & near_HW] = kind.label


def _random_vortex(rng: np.random.Generator, grid: Grid, kind: LowKind, season: float) -> Vortex:
    if kind.latitude is None:
        latitude = float(np.clip(rng.gamma(*TROPICAL_GAMMA), *TROPICAL_LATITUDE))
    else:
        latitude = rng.uniform(*kind.latitude)
    hemisphere = 1 if rng.random() < 0.5 + SUMMER_SHARE * season else -1
    deficit_Pa, core_km = rng.uniform(*kind.deficit_Pa), rng.uniform(*kind.core_km)
    return holland(grid, hemisphere * latitude, rng.uniform(0.0, 360.0), deficit_Pa, core_km)


def _moisten(weather: Weather, vortex: Vortex, kind: LowKind, moisture_kg_m2: float) -> None:
    near_HW = np.exp(-((vortex.distance_km / np.float32(kind.moisture_km)) ** 2))
    moisture_HW = weather.moisture_kg_m2[vortex.rows]  # a view
    moisture_HW *= 1 - np.float32(1 - kind.moisture_factor) * near_HW
    moisture_HW += np.float32(moisture_kg_m2) * near_HW


def holland(
    grid: Grid,
    latitude: float,
    longitude: float,
    deficit_Pa: float,
    core_km: float,
    shape: float = HOLLAND_SHAPE,
    inflow_degree: float = INFLOW_DEGREE,
) -> Vortex:
    """A cyclone in gradient-wind balance on the sphere: equations 4 and 5 of Holland (1980), with a
    fade far out.

    Args:
        grid: Where to evaluate.
        latitude: Of the centre, degrees; its sign gives the sense of rotation.
        longitude: Of the centre, degrees.
        deficit_Pa: Pressure far away minus pressure in the centre.
        core_km: Radius of the strongest wind.
        shape: Holland's B.
        inflow_degree: By how much the wind turns inward from the tangent.
    """
    rows = _rows(grid, latitude)
    distance_km, inward_east, inward_north = _toward(grid, rows, latitude, longitude)
    ratio_B = np.exp(np.float32(-shape) * np.log(distance_km / np.float32(core_km)))
    inside = np.exp(-ratio_B)
    coriolis_per_m_s = abs(coriolis_per_s(max(abs(latitude), SMALLEST_CORIOLIS_DEGREE)))
    half_spin_m_s = np.float32(1000 * coriolis_per_m_s / 2) * distance_km
    cyclostrophic = np.float32(shape * deficit_Pa / AIR_DENSITY_KG_M3) * ratio_B * inside
    speed_m_s = np.sqrt(cyclostrophic + half_spin_m_s**2) - half_spin_m_s
    fade = np.exp(-((distance_km / np.float32(VORTEX_REACH_KM)) ** 2))
    inflow = np.deg2rad(inflow_degree)
    along = np.float32(np.cos(inflow) * np.sign(latitude)) * speed_m_s * fade
    inward = np.float32(np.sin(inflow)) * speed_m_s * fade
    return Vortex(
        rows,
        # Counter-clockwise in the north: the tangent is the inward direction turned right by 90
        # degrees.
        east_m_s=along * inward_north + inward * inward_east,
        north_m_s=inward * inward_north - along * inward_east,
        pressure_Pa=np.float32(-deficit_Pa) * (1 - inside) * fade,
        speed_m_s=speed_m_s,
        distance_km=distance_km,
    )


def _rows(grid: Grid, latitude: float) -> slice:
    reach_degree = VORTEX_END * VORTEX_REACH_KM / KM_PER_DEGREE
    return slice(
        *np.searchsorted(grid.latitude_H, (latitude - reach_degree, latitude + reach_degree))
    )


def _toward(
    grid: Grid, rows: slice, latitude: float, longitude: float
) -> tuple[Array, Array, Array]:
    """Distance in km, at least 1, and the unit vector (east, north) toward a point, each HW."""
    lat_H = np.deg2rad(grid.latitude_H[rows])[:, None]
    east_W = np.deg2rad(np.float32(longitude) - grid.longitude_W)
    lat = np.float32(np.deg2rad(latitude))
    haversine = (
        np.sin((lat_H - lat) / 2) ** 2 + np.cos(lat_H) * np.cos(lat) * np.sin(east_W / 2) ** 2
    )
    angle = 2 * np.arcsin(np.sqrt(haversine.clip(0.0, 1.0)))
    toward_east = np.cos(lat) * np.sin(east_W)
    toward_north = np.cos(lat_H) * np.sin(lat) - np.sin(lat_H) * np.cos(lat) * np.cos(east_W)
    norm = np.hypot(toward_east, toward_north) + np.float32(
        1e-6
    )  # the sine of the angle, 0 at the centre
    distance_km = np.maximum(np.float32(EARTH_RADIUS_KM) * angle, np.float32(1.0))
    return distance_km, toward_east / norm, toward_north / norm
