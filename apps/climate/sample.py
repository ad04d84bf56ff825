"""The embedded example data set: synthetic weather maps in the file layout of others.

ClimateNet (Prabhat et al. 2021, doi:10.5194/gmd-14-107-2021):

    <path>/train/data-1996-01-01-00-1.nc ...      dimensions time = 1, lat, lon; variables TMQ,
    <path>/test/data-2011-01-01-00-1.nc ...       U850, V850, PSL, T500 (float32), LABELS (int64)

DeepCAM (MLPerf HPC, Farrell et al. 2021, arXiv:2110.11466), HDF5 without any coordinate:

    <path>/train/data-1996-01-01-00-1.h5 ...      climate/data (H, W, C) float32, climate/labels_0
    <path>/validation/data-2011-01-01-00-1.h5 ... (H, W)
    <path>/stats.h5                               climate/{count,mean,sqmean,minval,maxval}

They are kept as they are published, with their oddities: one map a file, both poles in the grid,
and in ClimateNet a `time` that is a string, the name of the file. So the example is read by the
same code as the real data. What is in a map: `weather.py` and `storms.py`.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import netCDF4
import numpy as np

from apps.climate.files import DEEPCAM_CHANNELS
from apps.climate.storms import CYCLONE_RADIUS_KM, add_filaments, add_lows
from apps.climate.weather import Array, Rng, Weather, background, temperature_aloft
from scadl_core.errors import ConfigError, nearest
from scadl_core.files import folder_aside

DIMENSIONS = ("time", "lat", "lon")
LABELS = "0 background, 1 tropical_cyclone, 2 atmospheric_river"
# First and last, as in ClimateNet. The order goes into the seed: keep it.
SPLIT_YEARS = {"train": (1996, 2010), "test": (2011, 2013)}
LAYOUTS = {"climatenet": (".nc", "test"), "deepcam": (".h5", "validation")}  # suffix, test folder
HOURS_BETWEEN_MAPS = 653  # 27 days; a prime, so every hour of the years comes before one repeats
MOISTURE_RANGE_KG_M2 = (0.05, 78.0)  # what noise and storms add up to ends here
VARIABLES = {  # name in the file: (field of Weather, description, units), as in ClimateNet
    "TMQ": ("moisture_kg_m2", "Total (vertically integrated) precipitable water", "kg/m^2"),
    "U850": ("east_m_s", "Zonal wind at 850 mbar pressure surface", "m/s"),
    "V850": ("north_m_s", "Meridional wind at 850 mbar pressure surface", "m/s"),
    "PSL": ("pressure_Pa", "Sea level pressure", "Pa"),
    "T500": ("aloft_K", "Temperature at 500 mbar pressure surface", "K"),
}


def write_sample(
    path: str | Path,
    train_maps: int = 256,
    test_maps: int = 48,
    latitudes: int = 96,
    longitudes: int = 144,
    seed: int = 0,
    cyclone_radius_km: float = CYCLONE_RADIUS_KM,
    layout: str = "climatenet",
) -> None:
    """Writes the example data set, unless its folder exists; a ConfigError for another layout than
    ``climatenet`` and ``deepcam``.

    It is written beside the folder and renamed at the end, so a killed process leaves no half of
    it. A map depends on the seed, its split and its number alone: asking for more maps leaves the
    first ones as they are. The latitudes include both poles. The label of a cyclone ends at the
    given distance from its centre.
    """
    path = Path(path)
    if layout not in LAYOUTS:
        raise ConfigError(f"data.sample.layout: got {layout!r}{nearest(layout, LAYOUTS)}")
    if path.exists():
        return
    suffix, test_folder = LAYOUTS[layout]
    write_map = {"climatenet": write_netcdf, "deepcam": write_deepcam}[layout]
    with folder_aside(path) as written:
        for index, (split, maps) in enumerate({"train": train_maps, "test": test_maps}.items()):
            folder = written / (test_folder if split == "test" else split)
            folder.mkdir()
            for number in range(maps):
                when, rng = map_time(split, number), np.random.default_rng([seed, index, number])
                weather = simulate(rng, (latitudes, longitudes), season(when), cyclone_radius_km)
                # The last figure of the name counts the people who labelled the same map.
                write_map(folder / f"data-{when:%Y-%m-%d-%H}-1{suffix}", weather)
        if layout == "deepcam":
            write_statistics(written)


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
    aloft_rng = rng.spawn(1)[0]  # of its own: the other fields came first, and stay as they were
    weather = background(rng, shape, season)
    weather.aloft_K = temperature_aloft(aloft_rng, weather, season)
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


def write_deepcam(file: Path, weather: Weather) -> None:
    """Writes one map as DeepCAM has it; what is not simulated is missing (NaN)."""
    missing_HW = np.full(weather.label.shape, np.nan, np.float32)
    fields = {name: getattr(weather, field) for name, (field, *_) in VARIABLES.items()}
    data_HWC = np.stack([fields.get(name, missing_HW) for name in DEEPCAM_CHANNELS], -1)
    with netCDF4.Dataset(file, "w") as nc:
        group = nc.createGroup("climate")
        for dimension, size in zip(("y", "x", "channel"), data_HWC.shape, strict=True):
            group.createDimension(dimension, size)
        group.createVariable("data", "f4", ("y", "x", "channel"))[:] = data_HWC
        group.createVariable("labels_0", "i8", ("y", "x"))[:] = weather.label


def write_statistics(path: Path) -> None:
    """Writes `stats.h5` of the training maps below a path: their count, and of each channel mean,
    mean square, lowest and highest value, NaN where it is missing.
    """
    of: list[list[Array]] = []
    for file in sorted((path / "train").iterdir()):
        with netCDF4.Dataset(file) as nc:
            data_HWC = np.asarray(nc["climate/data"][:], np.float64)
        means = data_HWC.mean((0, 1)), np.square(data_HWC).mean((0, 1))
        of.append([*means, data_HWC.min((0, 1)), data_HWC.max((0, 1))])
    mean_C, square_C, *_ = np.mean(of, 0)
    low_C, high_C = np.min(of, 0)[2], np.max(of, 0)[3]
    found = {"mean": mean_C, "sqmean": square_C, "minval": low_C, "maxval": high_C}
    with netCDF4.Dataset(path / "stats.h5", "w") as nc:
        group = nc.createGroup("climate")
        group.createDimension("channel", len(DEEPCAM_CHANNELS))
        group.createVariable("count", "i8", ())[...] = len(of)
        for name, values_C in found.items():
            group.createVariable(name, "f4", ("channel",))[:] = values_C
