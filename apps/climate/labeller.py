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
UNITS = {  # of each role; a variable without a unit is taken to be right
    **dict.fromkeys(WIND, ("m s-1",)),
    **dict.fromkeys(TRANSPORT, ("kg m-1 s-1",)),
    "moisture": ("kg m-2", "mm"),
    "pressure": ("Pa", "hPa"),
    "temperature_aloft": ("K", "degC"),
}
# Most moisture moves below 850 hPa, where friction slows the wind. Chosen on the training split of
# the example set, as were the warmth, the widths of core and ring, and the rivers' latitude.
TRANSPORT_FACTOR = 0.7


@dataclass(frozen=True)
class Labeller:
    """The rules, every threshold with its unit.

    A cyclone's centre is the lowest pressure within ``separation``; its core are the pixels within
    ``core``, its ring those between the two.
    """

    # The variable of a role, where names do not say it.
    roles: Mapping[str, str | None] = field(default_factory=dict)
    events: Sequence[str] = tuple(NEEDS)  # what to label, class 1 first
    cyclone_latitude_degree: float = 40.0  # centres are no further from the equator
    cyclone_core_km: float = 400.0
    cyclone_separation_km: float = 750.0
    cyclone_closure_Pa: float = 200.0  # the ring's pressure is everywhere so far above the centre's
    cyclone_vorticity_per_s: float = 3.5e-5  # of the rotation that fits the core's wind best
    cyclone_wind_m_s: float = 17.0  # the strongest wind in the core: gale force
    cyclone_warmth_K: float = 0.5  # aloft the core is so much warmer than the ring, in the mean
    cyclone_label_km: float = 600.0  # the label ends at this distance from the centre,
    cyclone_label_wind_m_s: float = 14.0  # and where the wind is weaker, but for the centre itself
    river_transport_kg_m_s: float = 250.0  # of water vapour, as in most of ARTMIP
    river_latitude_degree: float = 20.0  # nothing nearer to the equator belongs to a river
    river_length_km: float = 2000.0  # great circle between the ends
    river_narrowness: float = 2.0  # length over width, which is area over length
    river_poleward_kg_m_s: float = 50.0  # poleward transport, mean of the object

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name not in ("roles", "events") and not (number and 0 < value < np.inf):
                raise ConfigError(f"data.labeller.{name}: expected more than 0, got {value!r}")
        texts = isinstance(self.events, Sequence) and not isinstance(self.events, str)
        if not texts or not self.events or len(set(self.events)) < len(self.events):
            known = ", ".join(NEEDS)
            found = f"expected a list of different events, of {known}, got {self.events!r}"
            raise ConfigError(f"data.labeller.events: {found}")
        for role, name in self.roles.items():
            if not isinstance(name, str | None):
                raise ConfigError(f"data.labeller.roles.{role}: expected a variable, got {name!r}")

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
        given = {role: name for role, name in self.roles.items() if name is not None}
        for role, name in given.items():
            if name not in channels:
                where = f"data.labeller.roles.{role}: {name!r} is not in the files"
                raise DataError(where + nearest(name, channels))
        names = {alias: name for name, it in channels.items() for alias in _aliases(name, it)}
        usual = {role: [it for it in text.split() if it in names] for role, text in ROLES.items()}
        found = {role: names[here[0]] for role, here in usual.items() if here}
        for pair in (WIND, TRANSPORT):  # of one level, and of one kind
            both = zip(*(ROLES[role].split() for role in pair), strict=True)
            alike = next((it for it in both if names.keys() >= set(it)), None)
            found |= {role: names[it] for role, it in zip(pair, alike or (), strict=False)}
            found = {role: it for role, it in found.items() if alike or role not in pair}
        found |= given
        wanted = {"temperature_aloft"} if CYCLONE in self.events else set[str]()
        for event in self.events:
            wanted |= set(
                next((it for it in NEEDS[event] if found.keys() >= set(it)), NEEDS[event][-1])
            )
            if lacking := sorted(wanted - found.keys() - {"temperature_aloft"}):
                there, names_ = ", ".join(channels), " or ".join(lacking)
                raise DataError(
                    f"data.labeller: no variable is known as {names_}, which rules for {event} "
                    f"need; there is: {there}. Name it in data.labeller.roles, leave {event} out "
                    "of data.labeller.events, or label by thresholds on one variable: data.target "
                    "and data.thresholds"
                )
        return {role: name for role, name in found.items() if role in wanted}

    def label(
        self,
        fields: Mapping[str, NDArray[np.floating]],
        latitude: ArrayLike,
        longitude: ArrayLike,
        periodic: bool,
    ) -> NDArray[np.int64]:
        """Class numbers of one map, HW: 0 or 1 + the place in ``events``; -1 where a field is NaN.

        Args:
            fields: By role: pressure in Pa or hPa, wind in m/s eastward and northward, moisture in
                kg/m2, temperature in K or Celsius, transport in kg/m/s; each HW.
            latitude: Degrees north, H or HW.
            longitude: Degrees east, W or HW.
            periodic: Whether the last column is the first one's neighbour.
        """
        earth = Earth.of(latitude, longitude, periodic)
        label_HW = np.where(np.isnan(list(fields.values())).any(0), -1, 0)
        for event, rule in ((CYCLONE, self.cyclones), (RIVER, self.rivers)):
            if event in self.events:  # a cyclone is no part of a river
                label_HW[rule(fields, earth, label_HW == 0)] = 1 + list(self.events).index(event)
        return label_HW

    def cyclones(
        self, fields: Mapping[str, Floats], earth: Earth, free_HW: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The pixels of tropical cyclones, by those that are free: not missing."""
        of = {role: np.ravel(field_HW).astype(np.float64) for role, field_HW in fields.items()}
        if np.nanmax(of["pressure"], initial=0.0) < 2000:  # hPa: it is never above 1100 of them
            of["pressure"] *= 100
        speed_P, found_HW = np.hypot(*itemgetter(*WIND)(of)), np.zeros_like(free_HW)
        reach_km = max(self.cyclone_separation_km, self.cyclone_label_km)
        for centre in self._lows(of["pressure"].reshape(free_HW.shape), earth):
            near_N, km_N = earth.near(centre, reach_km)
            near_N, km_N = (it[free_HW.flat[near_N]] for it in (near_N, km_N))
            if self._is_cyclone(centre, near_N, km_N, of, earth):
                storm_N = (speed_P[near_N] >= self.cyclone_label_wind_m_s) | (near_N == centre)
                found_HW.flat[near_N[storm_N & (km_N <= self.cyclone_label_km)]] = True
        return found_HW

    def _lows(self, pressure_HW: Floats, earth: Earth) -> NDArray[np.intp]:
        """Pixels as low as any of their neighbours, not all of which are, in the low latitudes."""
        filled_HW, known_HW = np.nan_to_num(pressure_HW, nan=np.inf), np.isfinite(pressure_HW)
        mode = "nearest", "wrap" if earth.periodic else "nearest"
        is_low_HW = filled_HW == ndimage.minimum_filter(filled_HW, 3, mode=mode)
        is_low_HW &= filled_HW < ndimage.maximum_filter(filled_HW, 3, mode=mode)
        is_near_HW = np.abs(earth.latitude_HW) <= self.cyclone_latitude_degree
        return np.flatnonzero(is_low_HW & is_near_HW & known_HW)

    def _is_cyclone(
        self,
        centre: int,
        near_N: NDArray[np.intp],
        km_N: Floats,
        of: dict[str, Floats],
        earth: Earth,
    ) -> bool:
        is_core_N, pressure_P = km_N <= self.cyclone_core_km, of["pressure"]
        core, ring = near_N[is_core_N], near_N[~is_core_N & (km_N <= self.cyclone_separation_km)]
        lowest, closed = pressure_P[centre], pressure_P[centre] + self.cyclone_closure_Pa
        is_low = (pressure_P[core] >= lowest).all() and (pressure_P[ring] >= closed).all()
        if not (is_low and len(ring)):
            return False
        warm_P = of.get("temperature_aloft")
        warmth = np.inf if warm_P is None else warm_P[core].mean() - warm_P[ring].mean()
        wind_2N = np.stack([of[role][core] for role in WIND])
        # The moment of the wind about the centre over that of a rotation, in m/s and km.
        rotation = (wind_2N * earth.around(centre, core) * km_N[is_core_N]).sum()
        rotation /= max(np.square(km_N[is_core_N]).sum(), 1.0)
        vorticity = np.sign(earth.latitude_HW.flat[centre]) * 2 * rotation / 1000
        return bool(
            warmth >= self.cyclone_warmth_K
            and vorticity >= self.cyclone_vorticity_per_s
            and np.hypot(*wind_2N).max() >= self.cyclone_wind_m_s
        )

    def rivers(
        self, fields: Mapping[str, Floats], earth: Earth, free_HW: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The pixels of atmospheric rivers, by those that are free: also of no cyclone."""
        if set(TRANSPORT) <= fields.keys():
            east_HW, north_HW = itemgetter(*TRANSPORT)(fields)
        else:
            carried_HW = TRANSPORT_FACTOR * fields["moisture"]
            east_HW, north_HW = (carried_HW * fields[role] for role in WIND)
        moist_HW = free_HW & (np.hypot(east_HW, north_HW) >= self.river_transport_kg_m_s)
        moist_HW &= np.abs(earth.latitude_HW) >= self.river_latitude_degree
        objects_HW = components(moist_HW, earth.periodic)
        poleward_HW = np.nan_to_num(np.sign(earth.latitude_HW) * north_HW) * earth.area_km2_HW
        area_N, poleward_N = (
            ndimage.sum_labels(it, objects_HW, np.arange(objects_HW.max(initial=0) + 1))
            for it in (earth.area_km2_HW, poleward_HW)
        )
        is_river_N = poleward_N >= self.river_poleward_kg_m_s * area_N
        is_river_N[0] = False
        for number in np.flatnonzero(is_river_N):
            unit_N3 = earth.unit_HW3[objects_HW == number]
            # from the point furthest from the middle to that furthest from it
            end = unit_N3[arc_km(unit_N3, unit_N3.mean(0)).argmax()]
            length_km = arc_km(unit_N3, end).max()
            is_narrow = length_km**2 >= self.river_narrowness * area_N[number]
            is_river_N[number] = is_narrow and length_km >= self.river_length_km
        return is_river_N[objects_HW]


def _aliases(name: str, standard_name: str) -> list[str]:
    channel = Channel.parse(name)
    _, size_Pa = LEVEL_UNITS.get(channel.unit.lower(), ("", 100.0))
    level = "" if np.isnan(channel.level) else f"{channel.level * size_Pa / 100:g}"
    return [f"{it.lower()}{level}" for it in (channel.variable, standard_name) if it]
