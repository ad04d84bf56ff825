"""Finding and reading a latitude/longitude field in a file: by CF metadata, then by usual names.

Every read opens the file and closes it again: no handle is ever shared with a data loader's worker.
Shapes: Y latitude, X longitude as in the file; H latitude, W longitude canonical (see ``grid``).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import cf_xarray  # noqa: F401  (gives datasets their .cf)
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
# A unit in small letters -> what it measures, and its size in the SI unit.
LEVEL_UNITS = {
    **dict.fromkeys(("pa", "pascal"), ("pressure", 1.0)),
    **dict.fromkeys(("hpa", "mb", "mbar", "millibar", "millibars"), ("pressure", 100.0)),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), ("length", 1.0)),
    "km": ("length", 1000.0),
}
CALENDARS = {"gregorian": "standard", "proleptic_gregorian": "standard", "365_day": "noleap"}
# netCDF's own fill for floats, which a file need not declare. As large, or infinite, is missing.
SMALLEST_FILL = 9.969e36
CLASSIC_NETCDF = (b"CDF\x01", b"CDF\x02")
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
    level: float | None = None
    unit: str = ""

    @classmethod
    def parse(cls, name: str) -> Channel:
        """Reads a channel's name.

        Raises:
            ConfigError: Something other than a number and a unit follows the ``@``.
        """
        variable, at, rest = name.partition("@")
        level = re.fullmatch(r"([-+]?\d+\.?\d*(?:e[-+]?\d+)?)\s*([a-z]*)", rest, re.IGNORECASE)
        if not at:
            return cls(variable)
        if level is None or level[2].lower() not in {"", *LEVEL_UNITS}:
            raise ConfigError(f"data.inputs: {name!r}: write a level as in t@500hPa, z@2m or t@500")
        return cls(variable, float(level[1]), level[2])


@dataclass(frozen=True, eq=False)
class Field:
    """One channel as one file holds it.

    Attributes:
        path: The file.
        variable: The variable's name.
        dimensions: Names of the latitude and the longitude dimension.
        coordinates: Names of the latitude and the longitude variable.
        time: Name of the time variable, None where there is none.
        time_dimension: The dimension along which samples lie, None in a file of one sample.
        selection: Index along each other dimension.
        grid: The grid.
        unit: The variable's unit, "" where the file has none.
        time_unit: The unit of time, such as ``days since 1850-1-1``; "" where it is no date.
        calendar: The calendar of time; "" where it is no date.
        keys: What tells each sample of the file from all others.
    """

    path: Path
    variable: str
    dimensions: tuple[str, str]
    coordinates: tuple[str, str]
    time: str | None
    time_dimension: str | None
    selection: dict[str, int]
    grid: Grid
    unit: str
    time_unit: str
    calendar: str
    keys: tuple[str, ...]

    def read(self, dataset: xr.Dataset, index: int) -> NDArray[np.float64]:
        """Reads the field at a position of ``keys``: canonical, shape [H, W], NaN where missing."""
        at = self.selection | ({self.time_dimension: index} if self.time_dimension else {})
        field_YX = dataset[self.variable].isel(at).transpose(*self.dimensions).values
        field_YX = field_YX.astype(np.float64)
        field_YX[np.abs(field_YX) >= SMALLEST_FILL] = np.nan
        return self.grid.to_canonical(field_YX)


@contextmanager
def open_fields(path: Path, **decoding: bool) -> Iterator[xr.Dataset]:
    """Opens a file for reading, and closes it.

    Args:
        path: The file.
        **decoding: ``decode_times`` or ``decode_cf`` of ``xarray.open_dataset``.

    Raises:
        DataError: The file is cut short, damaged, or no NetCDF.
    """
    with warnings.catch_warnings():
        # Fills that differ in type only (CMIP6), an illegal fill, dates beyond datetime64: xarray
        # does the right thing with each of them, and says so.
        warnings.simplefilter("ignore", xr.SerializationWarning)
        try:
            dataset = _open(path, **decoding)
        except (OSError, ValueError, TypeError, IndexError, RuntimeError) as error:
            raise _unreadable(path, error) from error
        with dataset:
            try:
                yield dataset
            except (OSError, RuntimeError) as error:
                raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = re.sub(r"\. Consider .*|: '/.*", "", str(error).replace("\n", " "))
    advice = (
        "it is cut short, damaged or of another format: fetch it again or take it off data.path"
    )
    return DataError(f"{path}: cannot be read as NetCDF ({reason}); {advice}")


def _open(path: Path, **decoding: bool) -> xr.Dataset:
    with path.open("rb") as stream:
        if stream.read(4) in CLASSIC_NETCDF:
            stream.seek(0)
            # Beyond the end of a classic file the netCDF library reads zeros; SciPy notices.
            scipy.io.netcdf_file(stream, mmap=True).close()
    options: dict[str, Any] = {"cache": False, "decode_timedelta": False, **decoding}
    try:
        return xr.open_dataset(path, **options)
    except ValueError:  # perhaps only a time axis that xarray cannot decode
        return xr.open_dataset(path, **{**options, "decode_times": False})


def find_field(dataset: xr.Dataset, path: Path, channel: Channel) -> Field:
    """Finds a channel's latitude, longitude, time and level in a file that has its variable.

    Args:
        dataset: The opened file, with times decoded.
        path: The file, for messages.
        channel: Which variable, which level.

    Raises:
        DataError: A kind of grid that is not supported; a :class:`LevelError` without its level.
    """
    array, source = dataset[channel.variable], f"{path}: variable {channel.variable!r}"
    latitude, longitude = coordinates = _horizontal(dataset, array, source)
    dimensions = (str(dataset[latitude].dims[0]), str(dataset[longitude].dims[0]))
    try:
        grid = _shared_grid(*(np.float64(dataset[name].values).tobytes() for name in coordinates))
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    time = _time(dataset, array, dimensions)
    rest = [str(name) for name in array.dims if name not in dimensions]
    if time:
        time_dimension = str(dataset[time].dims[0]) if dataset[time].ndim else None
        keys, encoding = _keys(dataset[time].values), dataset[time].encoding
    else:  # samples may lie along a dimension without a coordinate
        time_dimension = next((name for name in rest if name not in dataset.variables), None)
        several = range(array.sizes[time_dimension]) if time_dimension else []
        keys, encoding = tuple(f"{path.stem}[{i}]" for i in several) or (path.stem,), {}
    others = [name for name in rest if name != time_dimension]
    return Field(
        path=path,
        variable=channel.variable,
        dimensions=dimensions,
        coordinates=coordinates,
        time=time,
        time_dimension=time_dimension,
        selection=_select_level(dataset, array, others, channel, source),
        grid=grid,
        unit=str(array.attrs.get("units", "")),
        time_unit=str(encoding.get("units", "")),
        calendar=_calendar(encoding),
        keys=keys,
    )


@lru_cache(maxsize=16)
def _shared_grid(latitude_bytes: bytes, longitude_bytes: bytes) -> Grid:
    """One object for the thousands of files of a data set that are on one grid."""
    return Grid.from_coordinates(np.frombuffer(latitude_bytes), np.frombuffer(longitude_bytes))


def _candidates(dataset: xr.Dataset, array: xr.DataArray, kind: str) -> list[str]:
    """Variables that may be an array's latitude, longitude or time, best first."""
    found = list(dataset.cf.coordinates.get(kind, []))
    found += dataset.cf.axes.get("T", []) if kind == "time" else []
    found += [name for name in dataset.variables if str(name).lower() in USUAL_NAMES[kind]]
    return [name for name in dict.fromkeys(found) if set(dataset[name].dims) <= set(array.dims)]


def _horizontal(dataset: xr.Dataset, array: xr.DataArray, source: str) -> tuple[str, str]:
    """The latitude and the longitude variable, or why this is no latitude/longitude grid."""
    latitudes, longitudes = (
        _candidates(dataset, array, kind) for kind in ("latitude", "longitude")
    )
    shown = [*latitudes[:1], *longitudes[:1]] or list(array.dims)
    found = ", ".join(_describe(dataset[name]) for name in shown)
    if not latitudes or not longitudes:
        raise DataError(f"{source} has no latitude and longitude, only {found}; {ADVICE}")
    names = [name for name in latitudes + longitudes if dataset[name].ndim == 1]
    pairs = [(y, x) for y in latitudes for x in longitudes if {y, x} <= set(names)]
    if not pairs:
        raise DataError(f"{source} is on a curvilinear or projected grid ({found}); {ADVICE}")
    pairs = [(y, x) for y, x in pairs if dataset[y].dims != dataset[x].dims]
    if not pairs:
        raise DataError(f"{source} is on an unstructured grid or at points ({found}); {ADVICE}")
    if any(dataset[name].attrs.get("units", "").startswith("rad") for name in pairs[0]):
        raise DataError(f"{source} has coordinates in radians ({found}); write them in degrees")
    return pairs[0]


def _describe(variable: xr.DataArray) -> str:
    unit = variable.attrs.get("units", "")
    return f"{variable.name}({', '.join(map(str, variable.dims))})" + f" in {unit}" * bool(unit)


def _time(dataset: xr.Dataset, array: xr.DataArray, horizontal: tuple[str, str]) -> str | None:
    """The time variable: one along a dimension before a scalar, valid time before another."""
    names = [name for name in _candidates(dataset, array, "time") if dataset[name].ndim <= 1]
    names = [name for name in names if not set(dataset[name].dims) & set(horizontal)]
    return max(names, key=lambda name: (dataset[name].ndim, name == "valid_time"), default=None)


def _keys(times: NDArray) -> tuple[str, ...]:
    """Times as text, equal where the instants are: ISO 8601 to the second where it is a date."""
    times_T = np.atleast_1d(times)
    half_ms = 500  # times kept as 32-bit days are off by some milliseconds: round to the second
    if times_T.dtype.kind == "M":
        rounded_T = (times_T + np.timedelta64(half_ms, "ms")).astype("datetime64[s]")
        return tuple(np.datetime_as_string(rounded_T).tolist())
    if times_T.size and hasattr(times_T[0], "isoformat"):  # cftime: a calendar of its own
        rounded = [time + timedelta(milliseconds=half_ms) for time in times_T]
        return tuple(time.isoformat("T", "seconds") for time in rounded)
    if times_T.dtype.kind in "fiu":
        return tuple(f"{time:020.6f}" for time in times_T)
    return tuple(time.decode() if isinstance(time, bytes) else str(time) for time in times_T)


def _calendar(encoding: dict[Any, Any]) -> str:
    if " since " not in str(encoding.get("units", "")):
        return ""
    calendar = str(encoding.get("calendar", "standard"))  # CF section 4.4.1: the default
    return CALENDARS.get(calendar, calendar)


def _select_level(
    dataset: xr.Dataset, array: xr.DataArray, others: list[str], channel: Channel, source: str
) -> dict[str, int]:
    """Index along the dimensions beside time, latitude, longitude: the level's, or the only one."""
    selection = dict.fromkeys(others, 0)
    layered = [name for name in others if array.sizes[name] > 1]
    if len(layered) > 1:
        found = f"the dimensions {', '.join(layered)} beside time, latitude and longitude"
        raise DataError(f"{source} has {found}; one can be selected: split the file along others")
    if channel.level is None and not layered:
        return selection
    names = layered or [str(name) for name in array.coords if array[name].size == 1]
    levels = {name: dataset[name] for name in names if name in dataset.variables}
    levels = {name: level for name, level in levels.items() if level.dtype.kind in "iuf"}
    for name, level in levels.items():
        matches = _matching_levels(level, channel)
        if len(matches) == 1:
            return selection | ({name: int(matches[0])} if name in others else {})
    wanted = "needs a level"
    if channel.level is not None:
        wanted = f"has no level {channel.level:g}{channel.unit}"
    there = [name for level in levels.values() for name in _channels(level, channel)]
    raise LevelError(f"{source} {wanted}", there)


def _channels(level: xr.DataArray, channel: Channel) -> list[str]:
    """Names of the channels that a variable with levels holds."""
    unit = str(level.attrs.get("units", ""))
    known = LEVEL_UNITS.get(unit.lower())
    unit = "hPa" if known == LEVEL_UNITS["hpa"] else unit if known else ""
    return [f"{channel.variable}@{value:.6g}{unit}" for value in np.atleast_1d(level.values)]


def _matching_levels(level: xr.DataArray, channel: Channel) -> NDArray[np.intp]:
    """Indices of the levels a channel may mean. Without a unit: the file's, for pressure or hPa."""
    unit = str(level.attrs.get("units", "")).lower()
    kind, size = LEVEL_UNITS.get(unit, ("", 1.0))
    if channel.unit:
        asked_kind, asked_size = LEVEL_UNITS[channel.unit.lower()]
        factors = [asked_size / size] if asked_kind == kind else [] if unit else [1.0]
    else:
        factors = [1.0, 100 / size] if kind == "pressure" else [1.0]
    values, asked = (
        np.atleast_1d(level.values),
        channel.level if channel.level is not None else np.nan,
    )
    close = [np.isclose(values, asked * factor, rtol=1e-5, atol=0) for factor in factors]
    return np.flatnonzero(np.any(close, axis=0)) if close else np.array([], np.intp)
