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
from numpy.typing import NDArray

from apps.climate.weather import (
    AIR_DENSITY_KG_M3,
    EARTH_RADIUS_KM,
    KM_PER_DEGREE,
    Array,
    Rng,
    Weather,
    coriolis_per_s,
)

CYCLONE_RADIUS_KM = 600.0  # a cyclone's label ends at this distance from its centre at the latest,
CYCLONE_LABEL_WIND_M_S = 14.0  # and where the vortex alone blows less; gale force is 17
VORTEX_REACH_KM = 1500.0  # e-folding of the whole vortex, as Holland's profile has no end
VORTEX_END = 3.0  # but is left out so many times as far away, where it is below 1 Pa and 0.01 m/s
SMALLEST_CORIOLIS_DEGREE = 5.0  # the balance breaks down nearer to the equator
RIVER_LABEL_PROFILE = 0.42  # a river's label ends where its cross-section is below this, peak 1
HALF_WIDTH_KM = (280.0, 420.0)  # e-folding across; wide, as the boxes of the default grid are

WARMTH_WIDTHS = 3.0  # e-folding of the warmth of a core, in radii of the strongest wind

# Families of lows. A pair is the lowest and highest of a uniform distribution: how many a map;
# pressure far away minus that in the centre, Pa; radius of the strongest wind, km; moisture added
# in the centre, kg/m2; what is left there of the moisture before; e-folding of both, km; distance
# from the equator, degrees (None: that of tropical storms); warmth of the core at 500 hPa, K for
# each hPa of the deficit; class number, 0 for a look-alike. Cores are wide for real ones, since the
# boxes of the default grid are 200 km wide.
LOWS = (
    ((3, 6), (1800, 6500), (90, 170), (9, 18), 1.0, 420, None, 0.05, 1),  # cyclones
    ((1, 3), (250, 700), (120, 200), (9, 18), 1.0, 420, None, 0.05, 0),  # too weak
    ((2, 5), (1500, 3500), (250, 500), (5, 12), 1.0, 700, (6, 30), 0.01, 0),  # monsoon: too wide
    ((2, 5), (1500, 4500), (220, 500), (0, 0), 0.65, 700, (24, 60), -0.08, 0),  # cold, dry, wide
)
# Families of filaments: how many a map; moisture added on the centre line, kg/m2; wind added there
# along it, poleward and eastward, m/s; whether a low drives it; class number.
FILAMENTS = (
    ((8, 14), (14, 26), (13, 30), True, 2),  # atmospheric rivers
    ((2, 6), (14, 26), (-3, 3), False, 0),  # moist plumes
    ((2, 6), (-4, 2), (13, 30), True, 0),  # dry jets
)


def add_lows(rng: Rng, weather: Weather, season: float, cyclone_radius_km: float) -> None:
    """Adds cyclones, labelled up to a distance from the centre, and look-alikes; see `season`."""
    for count, deficit_Pa, core_km, moisture, factor, moisture_km, belt, warmth, label in LOWS:
        for _ in range(rng.integers(*count, endpoint=True)):
            # Those of the tropics are most common near 18 degrees.
            latitude = rng.uniform(*belt) if belt else min(max(rng.gamma(6.0, 3.6), 6.0), 38.0)
            hemisphere = 1 if rng.random() < 0.5 + 0.3 * season else -1  # more in the summer
            strength = rng.uniform(*deficit_Pa), rng.uniform(*core_km)
            centre = hemisphere * latitude, rng.uniform(0.0, 360.0)
            rows, speed_HW, distance_HW = add_vortex(weather, *centre, *strength, warmth=warmth)
            near_HW = np.exp(-((distance_HW / moisture_km) ** 2))
            moisture_HW = weather.moisture_kg_m2[rows]  # a view
            moisture_HW *= 1 - (1 - factor) * near_HW
            moisture_HW += rng.uniform(*moisture) * near_HW
            if label:
                storm_HW = (speed_HW > CYCLONE_LABEL_WIND_M_S) & (distance_HW < cyclone_radius_km)
                weather.label[rows][storm_HW] = label


def add_vortex(
    weather: Weather,
    latitude: float,
    longitude: float,
    deficit_Pa: float,
    core_km: float,
    shape: float = 1.4,
    inflow_degree: float = 20.0,
    wind_factor: float = 1.0,
    warmth: float = 0.0,
) -> tuple[slice, Array, Array]:
    """Adds wind and pressure in gradient-wind balance, Holland (1980) eq. 4 and 5, with a fade.

    The centre is in degrees; the sign of its latitude gives the sense of rotation. The deficit is
    the pressure far away minus that in the centre, the core the radius of the strongest wind, the
    shape Holland's B, between 1 and 2.5; the inflow turns the wind inward from the tangent. The
    warmth is that of the core aloft, in K for each hPa of the deficit.
    Gives the rows that it reaches; on them the speed in m/s, without the fade and the wind factor,
    and the distance from the centre in km.
    """
    reach_degree = VORTEX_END * VORTEX_REACH_KM / KM_PER_DEGREE
    ends = latitude - reach_degree, latitude + reach_degree
    rows = slice(*np.searchsorted(weather.latitude_H, ends))
    distance_km, inward_east, inward_north = _toward(weather, rows, latitude, longitude)
    ratio_B = np.exp(-shape * np.log(distance_km / core_km))
    inside = np.exp(-ratio_B)
    coriolis = coriolis_per_s(max(abs(latitude), SMALLEST_CORIOLIS_DEGREE))
    half_spin_m_s = 1000 * (coriolis / 2) * distance_km
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
    core_HW = np.exp(-((distance_km / (WARMTH_WIDTHS * core_km)) ** 2))
    weather.aloft_K[rows] += np.float32(warmth * deficit_Pa / 100) * core_HW
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
    east_W, cosine_W = np.cos(lat) * np.sin(east_W), np.cos(east_W)
    north_HW = np.cos(lat_H1) * np.sin(lat) - np.sin(lat_H1) * np.cos(lat) * cosine_W
    norm_HW = np.hypot(east_W, north_HW) + 1e-6  # the sine of the angle, 0 at the centre
    distance_km = np.maximum(EARTH_RADIUS_KM * angle_HW, 1.0)
    return distance_km, east_W / norm_HW, north_HW / norm_HW


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
    def random(cls, rng: Rng) -> CentreLine:
        """Somewhere in the middle latitudes of either hemisphere."""
        return cls(
            hemisphere=1 if rng.random() < 0.5 else -1,
            longitude=rng.uniform(0.0, 360.0),
            length=rng.uniform(30.0, 75.0),
            start_latitude=rng.uniform(16.0, 27.0),
            end_latitude=rng.uniform(38.0, 60.0),
            curve=rng.uniform(0.7, 1.3),
            wobble=rng.uniform(-4.0, 4.0),
            wobbles=rng.uniform(1.0, 2.5),
        )

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


def add_filaments(rng: Rng, weather: Weather) -> None:
    """Adds rivers, moist plumes and dry jets at random places of a map, and labels the rivers."""
    for count, moisture_kg_m2, wind_m_s, has_parent, label in FILAMENTS:
        for _ in range(rng.integers(*count, endpoint=True)):
            line, half_width_km = CentreLine.random(rng), rng.uniform(*HALF_WIDTH_KM)
            wind, moisture = rng.uniform(*wind_m_s), rng.uniform(*moisture_kg_m2)
            columns, profile_HC = _add_filament(weather, line, half_width_km, wind, moisture)
            if label:
                rows, crossed = np.nonzero(profile_HC > RIVER_LABEL_PROFILE)
                weather.label[rows, columns[crossed]] = label
            if has_parent:
                _add_parent(rng, weather, line)


def _add_filament(
    weather: Weather, line: CentreLine, half_width_km: float, wind: float, moisture: float
) -> tuple[NDArray[np.intp], Array]:
    """Gives the columns that it crosses, and its cross-section on them, HC, with a peak of 1."""
    way_W = np.mod(weather.longitude_W - line.longitude, 360) / line.length
    columns = np.flatnonzero(way_W <= 1.0)
    way_C = way_W[columns]
    east_C, north_C = line.direction(way_C)
    # The distance across is that along the meridian times the cosine of the slope.
    north_km = (weather.latitude_H[:, None] - line.latitude(way_C)) * KM_PER_DEGREE
    across_HC = np.exp(-((north_km * east_C / half_width_km) ** 2))
    profile_HC = across_HC * np.sqrt(np.minimum(way_C / 0.08, (1 - way_C) / 0.15).clip(0.0, 1.0))
    weather.moisture_kg_m2[:, columns] += moisture * (1 - 0.5 * way_C) * profile_HC  # it rains out
    weather.east_m_s[:, columns] += east_C * (wind * profile_HC)
    weather.north_m_s[:, columns] += north_C * (wind * profile_HC)
    return columns, profile_HC


def _add_parent(rng: Rng, weather: Weather, line: CentreLine) -> None:
    """The low poleward and west of a point of the filament, which is its warm front."""
    way, offset = rng.uniform(0.52, 0.87), 9.0
    latitude = float(line.latitude(np.array(way))) + line.hemisphere * offset
    add_vortex(
        weather,
        latitude=min(max(latitude, -78.0), 78.0),
        longitude=line.longitude + way * line.length - offset,
        deficit_Pa=rng.uniform(900.0, 2600.0),
        core_km=rng.uniform(450.0, 750.0),
        shape=1.1,  # a middle-latitude low is flatter than a hurricane
        inflow_degree=10.0,
        wind_factor=0.6,  # friction: the wind is weaker than in balance
        warmth=-0.1,  # cold air comes round behind it
    )
