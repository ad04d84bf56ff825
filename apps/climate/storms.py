"""The storms of the synthetic data set: tropical cyclones, atmospheric rivers, and look-alikes.

A cyclone has the pressure and wind of Holland (1980,
doi:10.1175/1520-0493(1980)108<1212:AAMOTW>2.0.CO;2) and a moist core. A river is moist air in a
strong wind along a curve from the subtropics poleward and eastward, driven by a low. Look-alikes
carry no label, so that no thresholds on single variables separate the classes.

Suffixes: H latitude, W longitude, C the columns of the grid that a filament crosses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apps.climate.weather import (
    AIR_DENSITY_KG_M3,
    EARTH_RADIUS_KM,
    KM_PER_DEGREE,
    Array,
    Weather,
    coriolis_per_s,
)

Pair = tuple[float, float]  # lowest and highest of a uniform distribution

CYCLONE_RADIUS_KM = 600.0  # a cyclone's label ends at this distance from its centre at the latest,
CYCLONE_LABEL_WIND_M_S = 14.0  # and where the vortex alone blows less; gale force is 17
HOLLAND_SHAPE = 1.4  # B of Holland (1980), between 1 and 2.5; larger is sharper
INFLOW_DEGREE = 20.0  # surface wind crosses the isobars toward the centre
VORTEX_REACH_KM = 1500.0  # e-folding of the whole vortex, as Holland's profile has no end
VORTEX_END = 3.0  # but is left out so many times as far away, where it is below 1 Pa and 0.01 m/s
SMALLEST_CORIOLIS_DEGREE = 5.0  # the balance breaks down nearer to the equator
TROPICAL_GAMMA = (6.0, 3.6)  # shape, and scale in degrees: cyclones are most common near 18 degrees
TROPICAL_LATITUDE = (6.0, 38.0)
SUMMER_SHARE = 0.3  # at the solstice the summer hemisphere has 0.5 + this of the lows

RIVER_LABEL_PROFILE = 0.42  # a river's label ends where its cross-section is below this, peak 1
HALF_WIDTH_KM = (280.0, 420.0)  # e-folding across; wide, as the boxes of the default grid are
TAPER_START, TAPER_END = 0.08, 0.15  # fractions of the way over which a filament begins and ends
RAINED_OUT = 0.5  # fraction of the added moisture that is gone at the end
CENTRE_LINE: tuple[Pair, ...] = (  # the ranges of `CentreLine`, in its order
    (30.0, 75.0),
    (16.0, 27.0),
    (38.0, 60.0),
    (0.7, 1.3),
    (-4.0, 4.0),
    (1.0, 2.5),
)
PARENT_DEFICIT_PA = (900.0, 2600.0)
PARENT_CORE_KM = (450.0, 750.0)
PARENT_SHAPE = 1.1  # a middle-latitude low is flatter than a hurricane
PARENT_INFLOW_DEGREE = 10.0
PARENT_WAY = (0.52, 0.87)  # where along the filament
PARENT_OFFSET_DEGREE = 9.0  # poleward and west of that point, whose warm front the filament is
PARENT_LATITUDE_LIMIT = 78.0
PARENT_WIND_FACTOR = 0.6  # friction: the wind is weaker than in balance


@dataclass(frozen=True)
class Low:
    """A family of lows."""

    count: tuple[int, int]  # fewest and most a map
    deficit_Pa: Pair  # pressure far away minus pressure in the centre
    core_km: Pair  # radius of the strongest wind
    moisture_kg_m2: Pair = (0.0, 0.0)  # added in the centre
    moisture_factor: float = 1.0  # what is left there of the moisture that was there before
    moisture_km: float = 420.0  # e-folding of both
    latitude: Pair | None = None  # distance from the equator; None: that of tropical storms
    label: int = 0  # class number, 0 for a look-alike


@dataclass(frozen=True)
class Filament:
    """A family of filaments."""

    count: tuple[int, int]  # fewest and most a map
    moisture_kg_m2: Pair  # added on the centre line
    wind_m_s: Pair  # added there along it, poleward and eastward
    parent: bool = True  # whether a low drives it
    label: int = 0  # class number, 0 for a look-alike


# The cores are wide for real ones, since the boxes of the default grid are 200 km wide.
LOWS = {
    "cyclone": Low((3, 6), (1800.0, 6500.0), (90.0, 170.0), (9.0, 18.0), label=1),
    "too weak": Low((1, 3), (250.0, 700.0), (120.0, 200.0), (9.0, 18.0)),
    "too wide": Low(
        (2, 5), (1500.0, 3500.0), (250.0, 500.0), (5.0, 12.0), 1.0, 700.0, latitude=(6.0, 30.0)
    ),
    "cold, dry, wide": Low(  # cut off from the westerlies it comes near to the tropics
        (2, 5), (1500.0, 4500.0), (220.0, 500.0), (0.0, 0.0), 0.65, 700.0, latitude=(24.0, 60.0)
    ),
}
FILAMENTS = {
    "river": Filament((8, 14), (14.0, 26.0), (13.0, 30.0), label=2),
    "moist plume": Filament((2, 6), (14.0, 26.0), (-3.0, 3.0), parent=False),
    "dry jet": Filament((2, 6), (-4.0, 2.0), (13.0, 30.0)),
}


def add_lows(
    rng: np.random.Generator, weather: Weather, season: float, cyclone_radius_km: float
) -> None:
    """Adds cyclones and their look-alikes at random places, and labels the cyclones.

    Args:
        rng: Source of all randomness.
        weather: The map, changed in place.
        season: 1 in the northern summer, -1 in the northern winter.
        cyclone_radius_km: Largest distance of a labelled point from the centre of its cyclone.
    """
    for low in LOWS.values():
        for _ in range(rng.integers(*low.count, endpoint=True)):
            if low.latitude is None:
                lowest, highest = TROPICAL_LATITUDE
                latitude = min(max(rng.gamma(*TROPICAL_GAMMA), lowest), highest)
            else:
                latitude = rng.uniform(*low.latitude)
            hemisphere = 1 if rng.random() < 0.5 + SUMMER_SHARE * season else -1
            deficit_Pa, core_km = rng.uniform(*low.deficit_Pa), rng.uniform(*low.core_km)
            centre = hemisphere * latitude, rng.uniform(0.0, 360.0)
            rows, speed_HW, distance_HW = add_vortex(weather, *centre, deficit_Pa, core_km)
            near_HW = np.exp(-((distance_HW / low.moisture_km) ** 2))
            moisture_HW = weather.moisture_kg_m2[rows]  # a view
            moisture_HW *= 1 - (1 - low.moisture_factor) * near_HW
            moisture_HW += rng.uniform(*low.moisture_kg_m2) * near_HW
            if low.label:
                storm_HW = (speed_HW > CYCLONE_LABEL_WIND_M_S) & (distance_HW < cyclone_radius_km)
                weather.label[rows][storm_HW] = low.label


def add_vortex(
    weather: Weather,
    latitude: float,
    longitude: float,
    deficit_Pa: float,
    core_km: float,
    shape: float = HOLLAND_SHAPE,
    inflow_degree: float = INFLOW_DEGREE,
    wind_factor: float = 1.0,
) -> tuple[slice, Array, Array]:
    """Adds wind and pressure in gradient-wind balance, Holland (1980) eq. 4 and 5, with a fade.

    Args:
        weather: The map, changed in place.
        latitude: Of the centre, degrees; its sign gives the sense of rotation.
        longitude: Of the centre, degrees.
        deficit_Pa: Pressure far away minus pressure in the centre.
        core_km: Radius of the strongest wind.
        shape: Holland's B.
        inflow_degree: By how much the wind turns inward from the tangent.
        wind_factor: Times which wind is added.

    Returns:
        The rows that it reaches; on them the speed in m/s without the fade and the wind factor, and
        the distance from the centre in km.
    """
    reach_degree = VORTEX_END * VORTEX_REACH_KM / KM_PER_DEGREE
    ends = latitude - reach_degree, latitude + reach_degree
    rows = slice(*np.searchsorted(weather.latitude_H, ends))
    distance_km, inward_east, inward_north = _toward(weather, rows, latitude, longitude)
    ratio_B = np.exp(-shape * np.log(distance_km / core_km))
    inside = np.exp(-ratio_B)
    half_coriolis_per_s = coriolis_per_s(max(abs(latitude), SMALLEST_CORIOLIS_DEGREE)) / 2
    half_spin_m_s = 1000 * half_coriolis_per_s * distance_km
    cyclostrophic = shape * deficit_Pa / AIR_DENSITY_KG_M3 * ratio_B * inside
    speed_m_s = np.sqrt(cyclostrophic + half_spin_m_s**2) - half_spin_m_s
    fade = np.exp(-((distance_km / VORTEX_REACH_KM) ** 2))
    inflow = np.deg2rad(inflow_degree)
    along = np.float32(np.cos(inflow) * np.sign(latitude)) * speed_m_s * fade
    inward = np.float32(np.sin(inflow)) * speed_m_s * fade
    # Counter-clockwise in the north: the tangent is the inward direction turned right by a quarter.
    weather.east_m_s[rows] += wind_factor * (along * inward_north + inward * inward_east)
    weather.north_m_s[rows] += wind_factor * (inward * inward_north - along * inward_east)
    weather.pressure_Pa[rows] += -deficit_Pa * (1 - inside) * fade
    return rows, speed_m_s, distance_km


def _toward(
    weather: Weather, rows: slice, latitude: float, longitude: float
) -> tuple[Array, Array, Array]:
    """Distance in km, at least 1, and the unit vector (east, north) toward a point, each HW."""
    lat_H1 = np.deg2rad(weather.latitude_H[rows])[:, None]
    lat, east_W = np.float32(np.deg2rad(latitude)), np.deg2rad(longitude - weather.longitude_W)
    across_HW = np.cos(lat_H1) * np.cos(lat) * np.sin(east_W / 2) ** 2
    haversine_HW = np.sin((lat_H1 - lat) / 2) ** 2 + across_HW
    angle_HW = 2 * np.arcsin(np.sqrt(haversine_HW.clip(0.0, 1.0)))
    east_HW = np.cos(lat) * np.sin(east_W)
    north_HW = np.cos(lat_H1) * np.sin(lat) - np.sin(lat_H1) * np.cos(lat) * np.cos(east_W)
    norm_HW = np.hypot(east_HW, north_HW) + 1e-6  # the sine of the angle, 0 at the centre
    distance_km = np.maximum(EARTH_RADIUS_KM * angle_HW, 1.0)
    return distance_km, east_HW / norm_HW, north_HW / norm_HW


@dataclass(frozen=True)
class CentreLine:
    """The curve that a filament follows, latitude as a function of longitude, in degrees."""

    hemisphere: int  # 1 or -1
    longitude: float  # where it starts
    length: float  # of longitude
    start_latitude: float  # distance from the equator
    end_latitude: float
    curve: float  # power of the way along: below 1 it turns poleward early
    wobble: float  # amplitude of a sine on top
    wobbles: float  # its half waves

    @classmethod
    def random(cls, rng: np.random.Generator) -> CentreLine:
        """Somewhere in the middle latitudes of either hemisphere."""
        hemisphere = 1 if rng.random() < 0.5 else -1
        return cls(hemisphere, rng.uniform(0.0, 360.0), *(rng.uniform(*p) for p in CENTRE_LINE))

    def latitude(self, way: Array) -> Array:
        """Degrees north at a fraction 0..1 of the way."""
        rise = (self.end_latitude - self.start_latitude) * way**self.curve
        wobble = self.wobble * np.sin(np.pi * way) * np.sin(np.pi * self.wobbles * way)
        return self.hemisphere * (self.start_latitude + rise + wobble)

    def direction(self, way: Array) -> tuple[Array, Array]:
        """Unit vector (east, north) along the curve on the ground."""
        before, after = np.clip(way - 0.01, 0.0, 1.0), np.clip(way + 0.01, 0.0, 1.0)
        north = self.latitude(after) - self.latitude(before)
        east = (after - before) * self.length * np.cos(np.deg2rad(self.latitude(way)))
        norm = np.hypot(east, north)
        return east / norm, north / norm


def add_filaments(rng: np.random.Generator, weather: Weather) -> None:
    """Adds rivers, moist plumes and dry jets at random places of a map, and labels the rivers."""
    for kind in FILAMENTS.values():
        for _ in range(rng.integers(*kind.count, endpoint=True)):
            line = CentreLine.random(rng)
            _add_filament(rng, weather, kind, line)
            if kind.parent:
                _add_parent(rng, weather, line)


def _add_filament(
    rng: np.random.Generator, weather: Weather, kind: Filament, line: CentreLine
) -> None:
    way_W = np.mod(weather.longitude_W - line.longitude, 360) / line.length
    columns = np.flatnonzero(way_W <= 1.0)
    way_C = way_W[columns]
    east_C, north_C = line.direction(way_C)
    # The distance across is that along the meridian times the cosine of the slope: exact for a
    # straight line, and without a search for the nearest point.
    north_km = (weather.latitude_H[:, None] - line.latitude(way_C)) * KM_PER_DEGREE
    across_HC = np.exp(-((north_km * east_C / rng.uniform(*HALF_WIDTH_KM)) ** 2))
    taper_C = np.minimum(way_C / TAPER_START, (1 - way_C) / TAPER_END).clip(0.0, 1.0)
    profile_HC = across_HC * np.sqrt(taper_C)
    wind_HC = rng.uniform(*kind.wind_m_s) * profile_HC
    moisture_C = rng.uniform(*kind.moisture_kg_m2) * (1 - RAINED_OUT * way_C)
    weather.moisture_kg_m2[:, columns] += moisture_C * profile_HC
    weather.east_m_s[:, columns] += east_C * wind_HC
    weather.north_m_s[:, columns] += north_C * wind_HC
    if kind.label:
        rows, crossed = np.nonzero(profile_HC > RIVER_LABEL_PROFILE)
        weather.label[rows, columns[crossed]] = kind.label


def _add_parent(rng: np.random.Generator, weather: Weather, line: CentreLine) -> None:
    way = rng.uniform(*PARENT_WAY)
    latitude = float(line.latitude(np.array(way))) + line.hemisphere * PARENT_OFFSET_DEGREE
    add_vortex(
        weather,
        min(max(latitude, -PARENT_LATITUDE_LIMIT), PARENT_LATITUDE_LIMIT),
        line.longitude + way * line.length - PARENT_OFFSET_DEGREE,
        rng.uniform(*PARENT_DEFICIT_PA),
        rng.uniform(*PARENT_CORE_KM),
        PARENT_SHAPE,
        PARENT_INFLOW_DEGREE,
        PARENT_WIND_FACTOR,
    )
