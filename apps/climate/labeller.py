"""Heuristic labels of tropical cyclones and atmospheric rivers, to start from unlabelled fields.

Cyclones, after Vitart et al. (1997, doi:10.1175/1520-0442(1997)010<0745:SOITSV>2.0.CO;2), Knutson
et al. (2007, doi:10.1175/BAMS-88-10-1549) and TempestExtremes (Ullrich and Zarzycki 2017,
doi:10.5194/gmd-10-1069-2017): a minimum of pressure in the low latitudes that a ring of higher
pressure closes off, with cyclonic vorticity and a strong wind, and warm aloft where a temperature
is there. Rivers, after Guan and Waliser (2015, doi:10.1002/2015JD024257) and ARTMIP (Shields et al.
2018, doi:10.5194/gmd-11-2455-2018): a long and narrow object of strong vapour transport outside the
tropics that brings moisture poleward. The transport is taken from the fields, else it is estimated
as total moisture times the wind at 850 hPa, as TECA's detector goes by moisture (Prabhat et al.
2012, doi:10.1016/j.procs.2012.04.093).

Suffixes: H latitude, W longitude, N pixels in a neighbourhood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from apps.climate.earth import Earth, arc_km
from apps.climate.fields import LEVEL_UNITS, Channel
from apps.climate.objects import components
from scadl_core.errors import ConfigError, DataError, nearest

Floats = NDArray[np.float64]
CYCLONE, RIVER = "tropical_cyclone", "atmospheric_river"
TRANSPORT, WIND = ("transport_east", "transport_north"), ("wind_east", "wind_north")
# The names of what may play a role, best first, in small letters: usual ones, and standard names
# of CF. A level in hPa is part of the name: of t@500hPa t500 and air_temperature500.
ROLES = {
    "transport_east": "ivtx ivtu viwve vertical_integral_of_eastward_water_vapour_flux "
    "eastward_atmosphere_water_vapor_transport_across_unit_distance",
    "transport_north": "ivty ivtv viwvn vertical_integral_of_northward_water_vapour_flux "
    "northward_atmosphere_water_vapor_transport_across_unit_distance",
    "moisture": "tmq tcwv prw pwat tqv total_column_water_vapour "
    "atmosphere_mass_content_of_water_vapor",
    "wind_east": "u850 ua850 uwnd850 eastward_wind850 ubot u10 uas eastward_wind",
    "wind_north": "v850 va850 vwnd850 northward_wind850 vbot v10 vas northward_wind",
    "pressure": "psl msl prmsl mslp slp air_pressure_at_mean_sea_level air_pressure_at_sea_level",
    "temperature_aloft": "t500 ta500 air_temperature500 t400 ta400 t300 ta300 t200 ta200",
}
NEEDS = {CYCLONE: (("pressure", *WIND),), RIVER: (TRANSPORT, ("moisture", *WIND))}
# The wind that carries the moisture blows lower than 850 hPa, where friction slows it.
TRANSPORT_FACTOR = 0.7


@dataclass(frozen=True)
class Labeller:
    """The rules, every threshold with its unit.

    A cyclone's centre is the lowest pressure within ``separation``; its core are the pixels within
    ``core``, its ring those between the two.

    Args:
        roles: Variables by what they are, a key of ``ROLES``, where names do not say it.
        events: What to label, class 1 first.
        cyclone_latitude_degree: Centres are no further from the equator.
        cyclone_core_km: See above.
        cyclone_separation_km: See above.
        cyclone_closure_Pa: The pressure of the ring is everywhere so far above the centre's.
        cyclone_vorticity_per_s: Cyclonic, of the rigid rotation that fits the core's wind best.
        cyclone_wind_m_s: The strongest wind in the core: gale force.
        cyclone_warmth_K: The core aloft is so much warmer than the ring, in the mean.
        cyclone_label_km: The label ends at this distance from the centre,
        cyclone_label_wind_m_s: and where the wind is weaker, but for the centre itself.
        river_transport_kg_m_s: Of water vapour; by Rutz et al. 2014, as most of ARTMIP.
        river_latitude_degree: Nothing nearer to the equator belongs to a river.
        river_length_km: Great circle between the ends.
        river_narrowness: Length over width, which is area over length.
        river_poleward_kg_m_s: Poleward transport, mean of the object.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[str] = tuple(NEEDS)
    cyclone_latitude_degree: float = 40.0
    cyclone_core_km: float = 400.0
    cyclone_separation_km: float = 750.0
    cyclone_closure_Pa: float = 200.0
    cyclone_vorticity_per_s: float = 3.5e-5
    cyclone_wind_m_s: float = 17.0
    cyclone_warmth_K: float = 0.5
    cyclone_label_km: float = 600.0
    cyclone_label_wind_m_s: float = 14.0
    river_transport_kg_m_s: float = 250.0
    river_latitude_degree: float = 20.0
    river_length_km: float = 2000.0
    river_narrowness: float = 2.0
    river_poleward_kg_m_s: float = 50.0

    @property
    def classes(self) -> list[str]:
        """Names of the classes, 0 first."""
        return ["background", *self.events]

    def find(self, channels: Mapping[str, str]) -> dict[str, str]:
        """Which channel plays which role, of those that are needed, by role.

        Args:
            channels: Standard names, "" where there is none, by channel, such as ``t@500hPa``.

        Raises:
            ConfigError: ``roles`` or ``events`` that do not exist.
            DataError: A role that no channel plays.
        """
        for kind, given, known in (("roles", self.roles, ROLES), ("events", self.events, NEEDS)):
            for wrong in set(given) - set(known):
                raise ConfigError(f"data.labeller.{kind}: {wrong!r} is none{nearest(wrong, known)}")
        for role, name in self.roles.items():
            if name not in channels:
                where = f"data.labeller.roles.{role}: {name!r} is not in the files"
                raise DataError(where + nearest(name, channels))
        names = {alias: name for name, it in channels.items() for alias in _aliases(name, it)}
        usual = {role: [it for it in text.split() if it in names] for role, text in ROLES.items()}
        found = {role: names[here[0]] for role, here in usual.items() if here} | dict(self.roles)
        wanted = {"temperature_aloft"} & found.keys() if CYCLONE in self.events else set()
        for event in self.events:
            complete = [roles for roles in NEEDS[event] if found.keys() >= set(roles)]
            if not complete:
                raise DataError(_missing(event, found, channels))
            wanted |= set(complete[0])
        return {role: found[role] for role in ROLES if role in wanted}

    def label(
        self,
        fields: Mapping[str, NDArray[np.floating]],
        latitude: ArrayLike,
        longitude: ArrayLike,
        periodic: bool,
    ) -> NDArray[np.int64]:
        """Class numbers of one map, HW; -1 where a field is missing.

        Args:
            fields: By role: pressure in Pa or hPa, wind in m/s eastward and northward, moisture in
                kg/m2, temperature in K or Celsius, transport in kg/m/s; each HW, NaN where missing.
            latitude: Degrees north, H or HW.
            longitude: Degrees east, W or HW.
            periodic: Whether the last column is the first one's neighbour.
        """
        earth = Earth.of(latitude, longitude, periodic)
        label_HW = np.zeros(earth.shape, np.int64)
        rules = {CYCLONE: self.cyclones, RIVER: self.rivers}
        for event in sorted(self.events, key=list(rules).index):  # a cyclone is no part of a river
            here_HW = rules[event](fields, earth, label_HW == 0)
            label_HW[here_HW] = 1 + list(self.events).index(event)
        label_HW[np.isnan(list(fields.values())).any(0)] = -1
        return label_HW

    def cyclones(
        self, fields: Mapping[str, Floats], earth: Earth, free_HW: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The pixels of tropical cyclones, among those that are free."""
        known_P = ~np.isnan(list(fields.values())).any(0).ravel()
        flat = {role: np.asarray(field_HW, np.float64).ravel() for role, field_HW in fields.items()}
        pressure_P, wind_P = flat["pressure"], np.hypot(*itemgetter(*WIND)(flat))
        # Nowhere on earth is it below 800 hPa, and nowhere above 1100.
        pressure_P = pressure_P * (100 if np.nanmax(pressure_P, initial=0) < 2000 else 1)
        found_P = np.zeros(free_HW.size, bool)
        for centre in self._lows(pressure_P, earth):
            near_N, km_N = earth.near(
                centre, max(self.cyclone_separation_km, self.cyclone_label_km)
            )
            near_N, km_N = near_N[known_P[near_N]], km_N[known_P[near_N]]
            if self._is_cyclone(centre, near_N, km_N, flat | {"pressure": pressure_P}, earth):
                windy_N = (wind_P[near_N] >= self.cyclone_label_wind_m_s) | (near_N == centre)
                found_P[near_N[windy_N & (km_N <= self.cyclone_label_km)]] = True
        return found_P.reshape(free_HW.shape) & free_HW

    def _lows(self, pressure_P: Floats, earth: Earth) -> NDArray[np.intp]:
        """Pixels lower than their eight neighbours, in the low latitudes."""
        filled_HW = np.where(np.isnan(pressure_P), np.inf, pressure_P).reshape(earth.shape)
        mode = "nearest", "wrap" if earth.periodic else "nearest"
        is_low_HW = filled_HW == ndimage.minimum_filter(filled_HW, 3, mode=mode)
        is_low_HW &= np.abs(earth.latitude_HW) <= self.cyclone_latitude_degree
        return np.flatnonzero(is_low_HW & np.isfinite(filled_HW))

    def _is_cyclone(
        self, centre: int, near_N: NDArray[np.intp], km_N: Floats, flat: Mapping[str, Floats],
        earth: Earth,
    ) -> bool:  # fmt: skip
        inside_N = km_N <= self.cyclone_core_km
        ring = near_N[~inside_N & (km_N <= self.cyclone_separation_km)]
        core, core_km, pressure_P = near_N[inside_N], km_N[inside_N], flat["pressure"]
        if not ring.size or pressure_P[core].min() < pressure_P[centre]:
            return False
        if pressure_P[ring].min() < pressure_P[centre] + self.cyclone_closure_Pa:
            return False
        warm_P = flat.get("temperature_aloft")
        if warm_P is not None and warm_P[core].mean() - warm_P[ring].mean() < self.cyclone_warmth_K:
            return False
        east_N, north_N = (flat[role][core] for role in WIND)
        turn_east_N, turn_north_N = earth.around(centre, core)
        along_N = (east_N * turn_east_N + north_N * turn_north_N) * core_km
        hemisphere = np.sign(earth.latitude_HW.flat[centre])
        vorticity = hemisphere * 2e-3 * along_N.sum() / max(np.square(core_km).sum(), 1.0)
        strongest = np.hypot(east_N, north_N).max()
        return bool(
            vorticity >= self.cyclone_vorticity_per_s and strongest >= self.cyclone_wind_m_s
        )

    def rivers(
        self, fields: Mapping[str, Floats], earth: Earth, free_HW: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The pixels of atmospheric rivers, among those that are free."""
        if set(TRANSPORT) <= fields.keys():
            east_HW, north_HW = itemgetter(*TRANSPORT)(fields)
        else:
            carried_HW = TRANSPORT_FACTOR * fields["moisture"]
            east_HW, north_HW = (carried_HW * fields[role] for role in WIND)
        moist_HW = free_HW & (np.hypot(east_HW, north_HW) >= self.river_transport_kg_m_s)
        moist_HW &= np.abs(earth.latitude_HW) >= self.river_latitude_degree
        objects_HW = components(moist_HW, earth.periodic)
        numbers_N = np.arange(objects_HW.max(initial=0) + 1)
        area_N = ndimage.sum_labels(earth.area_km2_HW, objects_HW, numbers_N)
        poleward_HW = np.where(moist_HW, np.sign(earth.latitude_HW) * north_HW, 0.0)
        poleward_N = ndimage.sum_labels(poleward_HW * earth.area_km2_HW, objects_HW, numbers_N)
        is_river_N = poleward_N >= self.river_poleward_kg_m_s * area_N
        is_river_N[0] = False
        for number in np.flatnonzero(is_river_N):
            length_km = _length_km(earth.unit_HW3[objects_HW == number])
            is_narrow = length_km**2 >= self.river_narrowness * area_N[number]
            is_river_N[number] = is_narrow and length_km >= self.river_length_km
        return is_river_N[objects_HW]


def _length_km(unit_N3: Floats) -> float:
    """From one end to the other: the point furthest from the middle, and that furthest from it."""
    end = unit_N3[arc_km(unit_N3, unit_N3.mean(0)).argmax()]
    return float(arc_km(unit_N3, end).max())


def _aliases(name: str, standard_name: str) -> list[str]:
    channel = Channel.parse(name)
    _, size_Pa = LEVEL_UNITS.get(channel.unit.lower(), ("", 100.0))
    level = "" if np.isnan(channel.level) else f"{channel.level * size_Pa / 100:g}"
    return [f"{it.lower()}{level}" for it in (channel.variable, standard_name) if it]


def _missing(event: str, found: Mapping[str, str], channels: Mapping[str, str]) -> str:
    needs = ", or ".join(" and ".join(roles) for roles in NEEDS[event])
    lacking = [role for role in NEEDS[event][-1] if role not in found]
    there = ", ".join(list(channels)[:12]) + ", ..." * (len(channels) > 12)
    return (
        f"data.labeller: no variable is known as {' and '.join(lacking)}, and {event} is labelled "
        f"by {needs}; there is: {there}. Name it in data.labeller.roles, leave {event} out of "
        "data.labeller.events, or label by thresholds on one variable: data.target, data.thresholds"
    )
