"""Finding and reading a latitude/longitude field in a file: by CF metadata, then by usual names.

Every read opens the file and closes it again: no handle is ever shared with a data loader's worker.
Shapes: Y latitude, X longitude as in the file; H latitude, W longitude canonical; L level.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import cf_xarray  # noqa: F401  (gives datasets their .cf)
import cftime
import numpy as np
import scipy.io
import xarray as xr
from numpy.typing import NDArray

from apps.climate.grid import Grid
from scadl_core.errors import ConfigError, DataError

USUAL_NAMES = {
    "latitude": {"lat", "latitude", "nav_lat"},
    "longitude": {"lon", "longitude", "nav_lon"},
    "time": {"time", "valid_time", "date"},
}
LEVEL_UNITS = {  # a unit in small letters: what it measures, and its size in the SI unit
    **dict.fromkeys(("pa", "pascal"), ("pressure", 1.0)),
    **dict.fromkeys(("hpa", "mb", "mbar", "millibar", "millibars"), ("pressure", 100.0)),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), ("length", 1.0)),
    "km": ("length", 1000.0),
}
# netCDF's own fill for floats, which a file need not declare. As large, or infinite, is missing.
SMALLEST_FILL = 9.969e36
ADVICE = "regrid it to latitude/longitude, for example: cdo remapdis,r360x180 in.nc out.nc"


class LevelError(DataError):
    """A channel without its level. ``channels`` are the names that would do."""

    def __init__(self, message: str, channels: list[str]) -> None:
        super().__init__(f"{message}; levels there: {', '.join(channels) or 'none'}")
        self.channels = channels


@dataclass(frozen=True)
class Channel:
    """A variable, and where it has levels, one of them: ``TMQ``, ``t@500hPa``, ``t@500``."""

    variable: str
    level: float = math.nan  # none
    unit: str = ""

    @classmethod
    def parse(cls, name: str) -> Channel:
        """Reads a channel's name; a ConfigError unless number and unit follow an ``@``."""
        variable, at, rest = name.partition("@")
        level = re.fullmatch(r"([-+]?\d+\.?\d*(?:e[-+]?\d+)?)\s*([a-z]*)", rest, re.IGNORECASE)
        if not at:
            return cls(variable)
        if level is None or level[2].lower() not in {"", *LEVEL_UNITS}:
            raise ConfigError(f"data.inputs: {name!r}: write a level as in t@500hPa, z@2m or t@500")
        return cls(variable, float(level[1]), level[2])


@dataclass(frozen=True, eq=False)
class Field:
    """One channel as one file holds it."""

    path: Path
    variable: str
    dimensions: tuple[str, str]  # the latitude and the longitude dimension
    coordinates: tuple[str, str]  # the latitude and the longitude variable
    selection: dict[str, int]  # index along each dimension beside these and that of time
    grid: Grid
    unit: str  # "" where the file has none
    time: str | None  # the time variable, if any
    time_dimension: str | None  # along which samples lie; None in a file of one sample
    time_unit: str  # such as "days since 1850-1-1"; "" where time is no date
    calendar: str  # "" where time is no date
    keys: tuple[str, ...]  # what tells each sample of the file from all others

    def read(self, dataset: xr.Dataset, index: int) -> NDArray[np.float64]:
        """Reads the field at a position of ``keys``: canonical, shape [H, W], NaN where missing."""
        at = self.selection | ({self.time_dimension: index} if self.time_dimension else {})
        field_YX = dataset[self.variable].isel(at).transpose(*self.dimensions).values
        field_YX = field_YX.astype(np.float64)
        field_YX[np.abs(field_YX) >= SMALLEST_FILL] = np.nan
        return self.grid.to_canonical(field_YX)


@contextmanager
def open_fields(path: Path, decode_cf: bool = True) -> Iterator[xr.Dataset]:
    """Opens a file for reading, times undecoded, and closes it; a DataError if it is damaged."""
    with warnings.catch_warnings():
        # An illegal fill, or fills that differ in type only (CMIP6): xarray does the right thing.
        warnings.simplefilter("ignore", xr.SerializationWarning)
        try:
            with path.open("rb") as stream:
                is_classic = stream.read(4) in (b"CDF\x01", b"CDF\x02")
            if is_classic:  # beyond its end the netCDF library reads zeros; SciPy notices
                scipy.io.netcdf_file(path, mmap=True).close()
            dataset = xr.open_dataset(path, cache=False, decode_times=False, decode_cf=decode_cf)
        except (OSError, ValueError, TypeError, IndexError, RuntimeError) as error:
            raise _unreadable(path, error) from error
        with dataset:
            try:
                yield dataset
            except (OSError, RuntimeError) as error:
                raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = re.sub(r"\. Consider .*|: '/.*", "", str(error).replace("\n", " "))
    advice = "it is cut short, damaged or of another format: fetch it again or take it off"
    return DataError(f"{path}: cannot be read as NetCDF ({reason}); {advice} data.path")


def find_field(dataset: xr.Dataset, path: Path, channel: Channel) -> Field:
    """Finds the place, time and level of a channel whose variable is in the dataset.

    Raises:
        DataError: A kind of grid that is not supported; a :class:`LevelError` without its level.
    """
    array, source = dataset[channel.variable], f"{path}: variable {channel.variable!r}"
    coordinates = _horizontal(dataset, array, source)
    dimensions = tuple(str(dataset[name].dims[0]) for name in coordinates)
    try:
        grid = _shared_grid(*(np.float64(dataset[name].values).tobytes() for name in coordinates))
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    rest = [str(name) for name in array.dims if name not in dimensions]
    time, along, *dates = _time(dataset, array, rest, path)
    others = [name for name in rest if name != along]
    level = _select_level(dataset, array, others, channel, source)
    where = (path, channel.variable, dimensions, coordinates, level, grid)
    return Field(*where, _unit(array), time, along, *dates)


@lru_cache(maxsize=16)
def _shared_grid(latitude_bytes: bytes, longitude_bytes: bytes) -> Grid:
    """One object for the thousands of files of a data set that are on one grid."""
    return Grid.from_coordinates(np.frombuffer(latitude_bytes), np.frombuffer(longitude_bytes))


def _candidates(dataset: xr.Dataset, array: xr.DataArray, kind: str) -> list[str]:
    """Variables that may be an array's latitude, longitude or time, best first."""
    found, variables = list(dataset.cf.coordinates.get(kind, [])), dataset.variables
    if kind == "time":
        found += dataset.cf.axes.get("T", [])
        found += [name for name, item in variables.items() if " since " in _unit(item)]
    found += [name for name in variables if str(name).lower() in USUAL_NAMES[kind]]
    return [name for name in dict.fromkeys(found) if set(dataset[name].dims) <= set(array.dims)]


def _unit(variable: xr.Variable | xr.DataArray) -> str:
    return str(variable.attrs.get("units", ""))


def _horizontal(dataset: xr.Dataset, array: xr.DataArray, source: str) -> tuple[str, str]:
    """The latitude and the longitude variable, or why this is no latitude/longitude grid."""
    latitudes = _candidates(dataset, array, "latitude")
    longitudes = _candidates(dataset, array, "longitude")
    shown = [dataset[name] for name in [*latitudes[:1], *longitudes[:1]] or array.dims]
    units = [f" in {_unit(it)}" * bool(_unit(it)) for it in shown]
    texts = [f"{it.name}({', '.join(map(str, it.dims))})" for it in shown]
    found = ", ".join(map(str.__add__, texts, units))
    if not latitudes or not longitudes:
        raise DataError(f"{source} has no latitude and longitude, only {found}; {ADVICE}")
    pairs = [(y, x) for y in latitudes for x in longitudes]
    pairs = [(y, x) for y, x in pairs if dataset[y].ndim == dataset[x].ndim == 1]
    if not pairs:
        raise DataError(f"{source} is on a curvilinear or projected grid ({found}); {ADVICE}")
    pairs = [(y, x) for y, x in pairs if dataset[y].dims != dataset[x].dims]
    if not pairs:
        raise DataError(f"{source} is on an unstructured grid or at points ({found}); {ADVICE}")
    if any(_unit(dataset[name]).startswith("rad") for name in pairs[0]):
        raise DataError(f"{source} has coordinates in radians ({found}); write them in degrees")
    return pairs[0]


def _time(
    dataset: xr.Dataset, array: xr.DataArray, rest: list[str], path: Path
) -> tuple[str | None, str | None, str, str, tuple[str, ...]]:
    """The last five of a :class:`Field`: best is a time along a dimension, then the valid time."""
    names = [name for name in _candidates(dataset, array, "time") if dataset[name].ndim <= 1]
    names = [name for name in names if set(dataset[name].dims) <= set(rest)]
    name = max(names, key=lambda name: (dataset[name].ndim, name == "valid_time"), default=None)
    if name is None:  # samples may lie along a dimension without a coordinate
        along = next((name for name in rest if name not in dataset.variables), None)
        several = range(array.sizes[along]) if along else []
        return None, along, "", "", tuple(f"{path.stem}[{i}]" for i in several) or (path.stem,)
    values_T, unit, calendar = np.atleast_1d(dataset[name].values), _unit(dataset[name]), ""
    if " since " in unit and values_T.dtype.kind in "iuf":
        calendar = dataset[name].attrs.get("calendar", "standard")  # CF section 4.4.1
        with suppress(ValueError, OverflowError):  # no date after all
            values_T = cftime.num2date(values_T, unit, calendar, only_use_cftime_datetimes=True)
    calendar = getattr(values_T[0], "calendar", "") if values_T.size else ""
    calendar = "standard" if calendar == "proleptic_gregorian" else calendar
    along = next(map(str, dataset[name].dims), None)
    return name, along, unit * bool(calendar), calendar, tuple(map(_key, values_T.tolist()))


def _key(time: Any) -> str:
    """A time as text, equal where the instants are: ISO 8601 to the second where it is a date."""
    if isinstance(time, cftime.datetime):  # 32-bit days are off by some ms: round to the second
        return (time + timedelta(milliseconds=500)).isoformat("T", "seconds")
    if isinstance(time, int | float):
        return f"{time:020.6f}"
    return time.decode() if isinstance(time, bytes) else str(time)


def _select_level(
    dataset: xr.Dataset, array: xr.DataArray, others: list[str], channel: Channel, source: str
) -> dict[str, int]:
    """Index along the dimensions beside time, latitude, longitude: the level's, or the only one."""
    selection, has_level = dict.fromkeys(others, 0), not math.isnan(channel.level)
    layered = [name for name in others if array.sizes[name] > 1]
    if len(layered) > 1:
        found = f"the dimensions {', '.join(layered)} beside time, latitude and longitude"
        raise DataError(f"{source} has {found}; one can be selected: split the file along others")
    if not has_level and not layered:
        return selection
    names = layered or [str(name) for name in array.coords if array[name].size == 1]
    levels = [dataset[name] for name in names if name in dataset.variables]
    there: list[str] = []
    for level in (level for level in levels if level.dtype.kind in "iuf"):
        values_L, unit = np.atleast_1d(level.values), _unit(level)
        matches = np.flatnonzero(_matches(values_L, unit.lower(), channel))
        if len(matches) == 1:
            return selection | ({level.name: int(matches[0])} if level.name in others else {})
        known = LEVEL_UNITS.get(unit.lower())
        unit = "hPa" if known == LEVEL_UNITS["hpa"] else unit if known else ""
        there += [f"{channel.variable}@{value:.6g}{unit}" for value in values_L]
    wanted = f"has no level {channel.level:g}{channel.unit}" if has_level else "needs a level"
    raise LevelError(f"{source} {wanted}", there)


def _matches(values_L: NDArray, unit: str, channel: Channel) -> NDArray[np.bool_]:
    """Which levels a channel may mean. Without a unit: in the file's, for pressure also in hPa."""
    kind, size = LEVEL_UNITS.get(unit, ("", 1.0))
    factors = [1.0] + [100 / size] * (kind == "pressure")
    if channel.unit and unit:
        asked_kind, asked_size = LEVEL_UNITS[channel.unit.lower()]
        factors = [asked_size / size] * (asked_kind == kind)
    asked = channel.level * np.array(factors)[:, None]
    return np.isclose(values_L, asked, rtol=1e-5, atol=0).any(axis=0)
