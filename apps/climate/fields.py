"""Finding and reading a field in a data set: by CF metadata, then by usual names.

Shapes: Y row, X column as in the file; H row, W column canonical (see ``grid``); L level; T time.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import cf_xarray  # noqa: F401  (gives datasets their .cf)
import cftime
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from apps.climate.files import naming
from apps.climate.grid import Grid
from scadl_core.errors import ConfigError, DataError

USUAL_NAMES = {
    "latitude": {"lat", "latitude", "nav_lat", "xlat"},
    "longitude": {"lon", "longitude", "nav_lon", "xlong"},
    "time": {"time", "valid_time", "date", "times"},
}
LEVEL_UNITS = {  # a unit in small letters: what it measures, and its size in the SI unit
    **dict.fromkeys(("pa", "pascal"), ("pressure", 1.0)),
    **dict.fromkeys(("hpa", "mb", "mbar", "millibar", "millibars"), ("pressure", 100.0)),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), ("length", 1.0)),
    "km": ("length", 1000.0),
}
MOVED = 0.5  # steps of a grid; WRF writes it for each time, with small differences
DECODED = ("_FillValue", "missing_value", "scale_factor", "add_offset")
# Fills that files need not declare: netCDF's own for floats, 9.97e36, and the usual 1e20. As large,
# or infinite, is missing: nothing in the weather is.
SMALLEST_FILL = 9.9e19
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
        if not isinstance(name, str) or not name:
            raise ConfigError(f"data.inputs: expected names of variables, got {name!r}")
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
    dimensions: tuple[str, str]  # that of the rows and that of the columns
    coordinates: tuple[str, str]  # the latitude and the longitude variable
    selection: dict[str, int]  # index along each dimension beside these and that of time
    grid: Grid
    about: dict[str, Any]  # the variable's attributes, and those that decoding took off it
    time: str | None  # the time variable, if any
    time_dimension: str | None  # along which samples lie; None in a file of one sample
    time_unit: str  # such as "days since 1850-1-1"; "" where time is no date
    calendar: str  # "" where time is no date
    keys: tuple[str, ...]  # what tells each sample of the file from all others
    assumed: str  # what the file does not say and was assumed, "" if nothing

    @property
    def unit(self) -> str:
        """The unit, "" where the file has none."""
        return str(self.about.get("units", ""))

    def read(self, dataset: xr.Dataset, index: int) -> NDArray[np.float64]:
        """Reads the field at a position of ``keys``: canonical, shape [H, W], NaN where missing."""
        at = self.selection | ({self.time_dimension: index} if self.time_dimension else {})
        with naming(self.path):
            field_YX = dataset[self.variable].isel(at).transpose(*self.dimensions).values
        field_YX = field_YX.astype(np.float64)
        field_YX[np.abs(field_YX) >= SMALLEST_FILL] = np.nan
        return self.grid.to_canonical(field_YX)


def find_field(dataset: xr.Dataset, path: Path, channel: Channel) -> Field:
    """Finds the place, time and level of a channel whose variable is in the dataset.

    Raises:
        DataError: A kind of grid that is not supported; a :class:`LevelError` without its level.
    """
    array, source = dataset[channel.variable], f"{path}: variable {channel.variable!r}"
    dimensions, coordinates = _horizontal(dataset, array, source)
    try:
        degrees = [_degrees(dataset[name], dimensions) for name in coordinates]
        grid = _shared_grid(*(it.tobytes() for it in degrees), degrees[0].shape)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    rest = [str(name) for name in array.dims if name not in dimensions]
    time, along, *dates = _time(dataset, array, rest, path)
    others = [name for name in rest if name != along]
    level = _select_level(dataset, array, others, channel, source)
    where = (path, channel.variable, dimensions, coordinates, level, grid)
    about = {**array.attrs, **{name: array.encoding.get(name) for name in DECODED}}
    return Field(*where, about, time, along, *dates, str(dataset.attrs.get("assumed", "")))


@lru_cache(maxsize=16)
def _shared_grid(latitude: bytes, longitude: bytes, shape: tuple[int, ...]) -> Grid:
    """One object for the thousands of files of a data set that are on one grid."""
    latitude_, longitude_ = np.frombuffer(latitude), np.frombuffer(longitude)
    if len(shape) == 1:
        return Grid.from_coordinates(latitude_, longitude_)
    return Grid.from_mesh(latitude_.reshape(shape), longitude_.reshape(shape))


def _degrees(coordinate: xr.DataArray, dimensions: tuple[str, str]) -> NDArray[np.float64]:
    """The values of a latitude or longitude along the dimensions of a grid that does not move."""
    extra = [name for name in coordinate.dims if name not in dimensions]
    values = coordinate.transpose(*extra, ...).values.astype(np.float64)
    if extra:
        first, *others = values.reshape(-1, *values.shape[len(extra) :])
        steps = (np.nanmedian(np.abs(np.diff(first, axis=axis))) for axis in (0, -1))
        far = MOVED * max(steps)
        if any(np.nanmax(np.abs(other - first), initial=0) > far for other in others):
            raise DataError(f"{coordinate.name} moves along {extra[0]}: a grid has to stay")
        values = first
    values = np.where(np.abs(values) >= SMALLEST_FILL, np.nan, values)
    return np.rad2deg(values) if _unit(coordinate).startswith("rad") else values


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


def _horizontal(
    dataset: xr.Dataset, array: xr.DataArray, source: str
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The dimensions of rows and columns, the latitude and the longitude; or why there are none."""
    latitudes = _candidates(dataset, array, "latitude")
    longitudes = _candidates(dataset, array, "longitude")
    shown = [dataset[name] for name in [*latitudes[:1], *longitudes[:1]] or array.dims]
    found = ", ".join(f"{it.name}({', '.join(map(str, it.dims))})" for it in shown)
    if kind := _unstructured(dataset, array):
        raise DataError(f"{source} is on the unstructured grid of {kind} ({found}); {ADVICE}")
    if not latitudes or not longitudes:
        raise DataError(f"{source} has no latitude and longitude, only {found}; {ADVICE}")
    dims = {name: tuple(map(str, dataset[name].dims)) for name in (*latitudes, *longitudes)}
    pairs = [(y, x) for y in latitudes for x in longitudes]
    for y, x in pairs:
        if len(dims[y]) == len(dims[x]) == 1 and dims[y] != dims[x]:
            return (dims[y][0], dims[x][0]), (y, x)
    for y, x in pairs:
        # A time as a third dimension, as in WRF; see _degrees.
        if dims[y] == dims[x] and len(dims[y]) >= 2:
            return dims[y][-2:], (y, x)  # type: ignore[return-value]
    raise DataError(f"{source} is on an unstructured grid or at points ({found}); {ADVICE}")


def _unstructured(dataset: xr.Dataset, array: xr.DataArray) -> str | None:
    """The name of a known grid without rows and columns."""
    mapping = dataset.variables.get(array.attrs.get("grid_mapping", ""))
    attrs = {**dataset.attrs, **(mapping.attrs if mapping is not None else {}), **array.attrs}
    text = " ".join(str(attrs.get(name, "")) for name in ("grid_mapping_name", "source", "title"))
    if "healpix" in text.lower() or any("healpix" in str(name).lower() for name in attrs):
        return "HEALPix"
    if attrs.get("CDI_grid_type") != "unstructured" and "number_of_grid_used" not in attrs:
        return None
    is_icon = "ICON" in text or {"clat", "clon"} <= dataset.variables.keys()
    return "ICON" if is_icon else "its model (CDI_grid_type)"


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
        values_T = _dates(values_T, unit, calendar, f"{path}: {name}")
    calendar = getattr(values_T[0], "calendar", "") if values_T.size else ""
    calendar = "standard" if calendar == "proleptic_gregorian" else calendar
    along = next(map(str, dataset[name].dims), None)
    return name, along, unit * bool(calendar), calendar, tuple(map(_key, values_T.tolist()))


def _dates(values_T: NDArray, unit: str, calendar: str, source: str) -> NDArray:
    """Dates of numbers; a DataError where some are none: samples are told apart by them."""
    try:
        if not np.isfinite(values_T).all() or (np.abs(values_T) >= SMALLEST_FILL).any():
            raise ValueError("a value is missing")
        return cftime.num2date(values_T, unit, calendar, only_use_cftime_datetimes=True)
    except (ValueError, OverflowError) as error:
        found = f"{source} in {unit!r}, calendar {calendar!r}, is no time ({error})"
        raise DataError(
            f"{found}; write it as CF has it, such as 'days since 2000-01-01'"
        ) from None


def _key(time: Any) -> str:
    """A time as text, equal where the instants are: ISO 8601 to the second where it is a date."""
    if isinstance(time, cftime.datetime):  # 32-bit days are off by some ms: round to the second
        return (time + timedelta(milliseconds=500)).isoformat("T", "seconds")
    if isinstance(time, int | float):
        return f"{time:020.6f}"
    text = time.decode() if isinstance(time, bytes) else str(time)
    return re.sub(r"^(\d{4}-\d\d-\d\d)_(\d\d:\d\d:\d\d)$", r"\1T\2", text)  # as WRF has it


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
