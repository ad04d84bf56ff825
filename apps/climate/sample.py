"""The embedded example data set: synthetic weather maps in the file layout of ClimateNet.

    <path>/train/data-1996-01-01-00-1.nc ...      dimensions time = 1, lat, lon; variables TMQ,
    <path>/test/data-2011-01-01-00-1.nc ...       U850, V850, PSL (float32) and LABELS (int64)

The layout is kept as it is published (Prabhat et al. 2021, doi:10.5194/gmd-14-107-2021), with its
oddities: one map a file, both poles in the grid, and a `time` that is a string, the name of the
file. So the example is read by the same code as the real data. What is in a map: `weather.py` and
`storms.py`.
"""

from __future__ import annotations

import datetime
import math
import tempfile
from pathlib import Path

import netCDF4
import numpy as np

from apps.climate.storms import CYCLONE_RADIUS_KM, add_filaments, add_lows
from apps.climate.weather import Rng, Weather, background

DIMENSIONS = ("time", "lat", "lon")
LABELS = "0 background, 1 tropical_cyclone, 2 atmospheric_river"
# First and last, as in ClimateNet. The order goes into the seed: keep it.
SPLIT_YEARS = {"train": (1996, 2010), "test": (2011, 2013)}
HOURS_BETWEEN_MAPS = 653  # 27 days; a prime, so every hour of the years comes before one repeats
MOISTURE_RANGE_KG_M2 = (0.05, 78.0)  # what noise and storms add up to ends here
VARIABLES = {  # name in the file: (field of Weather, description, units), as in ClimateNet
    "TMQ": ("moisture_kg_m2", "Total (vertically integrated) precipitable water", "kg/m^2"),
    "U850": ("east_m_s", "Zonal wind at 850 mbar pressure surface", "m/s"),
    "V850": ("north_m_s", "Meridional wind at 850 mbar pressure surface", "m/s"),
    "PSL": ("pressure_Pa", "Sea level pressure", "Pa"),
}


def write_sample(
    path: str | Path,
    train_maps: int = 256,
    test_maps: int = 48,
    latitudes: int = 96,
    longitudes: int = 144,
    seed: int = 0,
    cyclone_radius_km: float = CYCLONE_RADIUS_KM,
) -> None:
    """Writes the example data set, unless its folder exists.

    It is written beside the folder and renamed at the end, so a killed process leaves no half of
    it. A map depends on the seed, its split and its number alone: asking for more maps leaves the
    first ones as they are. The latitudes include both poles. The label of a cyclone ends at the
    given distance from its centre.
    """
    path = Path(path)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        written = Path(scratch) / path.name
        for index, (split, maps) in enumerate({"train": train_maps, "test": test_maps}.items()):
            (written / split).mkdir(parents=True)
            for number in range(maps):
                when, rng = map_time(split, number), np.random.default_rng([seed, index, number])
                weather = simulate(rng, (latitudes, longitudes), season(when), cyclone_radius_km)
                # The last figure of the name counts the people who labelled the same map.
                write_netcdf(written / split / f"data-{when:%Y-%m-%d-%H}-1.nc", weather)
        _publish(written, path)


def _publish(written: Path, path: Path) -> None:
    try:
        written.rename(path)
    except OSError:
        if not path.is_dir():  # else another process was faster, and wrote the same
            raise


def map_time(split: str, number: int) -> datetime.datetime:
    """Date of a map: spread over the years of its split, never twice the same hour."""
    first, last = SPLIT_YEARS[split]
    start = datetime.datetime(first, 1, 1)
    hours = (datetime.datetime(last, 12, 31) - start).days * 24
    return start + datetime.timedelta(hours=number * HOURS_BETWEEN_MAPS % hours)


def season(when: datetime.datetime) -> float:
    """1 at the northern summer solstice, -1 at the southern."""
    return math.cos(2 * math.pi * (when.timetuple().tm_yday - 172) / 365.25)


def simulate(
    rng: Rng, shape: tuple[int, int], season: float, cyclone_radius_km: float = CYCLONE_RADIUS_KM
) -> Weather:
    """One map of a shape HW. Lows come last, so that a cyclone's label wins over a river's."""
    weather = background(rng, shape, season)
    add_filaments(rng, weather)
    add_lows(rng, weather, season, cyclone_radius_km)
    weather.moisture_kg_m2.clip(*MOISTURE_RANGE_KG_M2, out=weather.moisture_kg_m2)
    return weather


def write_netcdf(file: Path, weather: Weather) -> None:
    """Writes one map as ClimateNet does; not by xarray, which takes three times as long."""
    with netCDF4.Dataset(file, "w") as nc:
        for dimension, size in zip(DIMENSIONS, (1, *weather.label.shape), strict=True):
            nc.createDimension(dimension, size)
        nc.createVariable("time", str, "time")[0] = file.name
        for name, toward in {"lat": "north", "lon": "east"}.items():
            nc.createVariable(name, "f8", name).units = f"degrees_{toward}"
        nc["lat"][:], nc["lon"][:] = weather.latitude_H, weather.longitude_W
        for name, (field, description, units) in VARIABLES.items():
            variable = nc.createVariable(name, "f4", DIMENSIONS)
            variable.setncatts({"description": description, "units": units})
            variable[0] = getattr(weather, field)
        label = nc.createVariable("LABELS", "i8", DIMENSIONS, compression="zlib", complevel=1)
        label.description, label[0] = LABELS, weather.label
