"""Coastlines from files on disk; nothing is ever fetched. Suffix: N2 longitude, latitude."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from scadl_core.errors import ConfigError, DataError

Lines = list[NDArray[np.float64]]
NATURAL_EARTH = "shapefiles/natural_earth/physical/ne_*_coastline.shp"


def read_coast(path: str | None) -> Lines:
    """The lines N2 of a GeoJSON file, a shapefile, or ``cartopy``: what that has on disk.

    Raises:
        ConfigError: There is no such file, or what reads it is not installed.
        DataError: The file holds something else.
    """
    if path is None:
        return []
    if not isinstance(path, str):
        raise ConfigError(f"figures.coastline: expected a path, or cartopy, got {path!r}")
    try:
        file = _cartopy_file() if path == "cartopy" else Path(path).expanduser()
        with file.open("rb") as stream:
            found = _shapes(file) if file.suffix == ".shp" else json.load(stream)
        lines = [np.array(line, np.float64)[:, :2] for line in _lines(found)]
    except ImportError as error:
        advice = "install cartopy or, for shapefiles, pyshp; or give a GeoJSON file"
        raise ConfigError(f"figures.coastline: {error}; {advice}") from error
    except OSError as error:
        raise ConfigError(f"figures.coastline: {error}; null draws none") from error
    except (ValueError, LookupError) as error:
        raise DataError(f"figures.coastline: {file} is no GeoJSON or shapefile: {error}") from error
    if not lines:
        raise DataError(f"figures.coastline: {file} holds no line")
    return lines


def _shapes(file: Path) -> Any:
    """A shapefile as GeoJSON."""
    shapefile = importlib.import_module("shapefile")
    try:
        with shapefile.Reader(str(file)) as reader:
            return reader.__geo_interface__
    except (shapefile.ShapefileException, struct.error) as error:
        raise ValueError(str(error)) from error


def _cartopy_file() -> Path:
    config = importlib.import_module("cartopy").config
    folders = [config[name] for name in ("pre_existing_data_dir", "data_dir") if config.get(name)]
    found = [file for folder in folders for file in sorted(Path(folder).glob(NATURAL_EARTH))]
    return found[0] if found else Path(*folders[-1:], NATURAL_EARTH)  # 110m, the coarsest


def _lines(node: Any) -> Iterator[list[Any]]:
    """All lists of points below a node of GeoJSON."""
    if isinstance(node, dict):
        for key in ("features", "geometries", "geometry", "coordinates"):
            yield from _lines(node.get(key))
    elif isinstance(node, list | tuple) and node:
        is_line = isinstance(node[0], list | tuple) and isinstance(node[0][0], int | float)
        yield from [node] if is_line else (line for item in node for line in _lines(item))


def draw_coast(axes: Axes, lines: Lines) -> None:
    """Adds lines to a map in degrees, wherever it begins, and writes the degrees at its ticks."""
    (west, east), (south, north) = axes.get_xlim(), axes.get_ylim()
    turned: Lines = []
    for line_N2 in lines:
        unbroken_N = np.unwrap(line_N2[:, 0], period=360)
        first = west - 360 + (unbroken_N[0] - west) % 360 - unbroken_N[0]
        turned += [
            np.stack([unbroken_N + first + turn, line_N2[:, 1]], -1) for turn in (0, 360, 720)
        ]
    axes.add_collection(LineCollection(turned, colors="#333333", linewidths=0.5))
    axes.set(xlim=(west, east), ylim=(south, north))
    axes.xaxis.set_major_formatter(lambda degree, _: f"{degree % 360:g}°E")
    axes.yaxis.set_major_formatter(lambda degree, _: f"{abs(degree):g}°{'NS'[int(degree < 0)]}")
    axes.tick_params(labelsize=7)
