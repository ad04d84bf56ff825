"""A configuration for files never seen before: which variables could be inputs, which the label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from apps.climate.catalogue import Paths, find_files
from apps.climate.fields import Channel, Field, LevelError, find_field, open_fields
from scadl_core.errors import DataError
from scadl_core.workflow.datareport import DataReport, Table

LABEL_NAMES = ("labels", "label")
CLIMATENET_CLASSES = ["background", "tropical_cyclone", "atmospheric_river"]


@dataclass(frozen=True)
class _Found:
    """A channel of the files."""

    field: Field
    range: tuple[float, float]  # of its first field
    classes: list[str]  # none unless it holds labels
    is_real: bool  # whether it could be an input


def propose(path: Paths) -> tuple[DataReport, dict[str, Any]]:
    """Looks into files and proposes what to set.

    Args:
        path: As ``data.path``.

    Returns:
        What was found, and values by their name below ``data``.

    Raises:
        DataError: A file cannot be read, or none holds a latitude/longitude field.
    """
    files, seen = find_files(path), set[str]()
    found: dict[str, _Found] = {}
    refused: list[str] = []
    for file in files:
        with open_fields(file) as dataset:
            for name in sorted(_variables(dataset) - seen):
                seen.add(name)
                try:
                    found |= _look(dataset, file, name)
                except DataError as error:
                    refused.append(str(error))
    if not found:
        raise DataError((refused or [f"{files[0]}: no variable lies on latitude and longitude"])[0])
    target = next((name for name, channel in found.items() if channel.classes), None)
    folders = {file.parent.name for file in files}
    values = {
        "path": str(path) if isinstance(path, str | Path) else [str(item) for item in path],
        "inputs": [name for name, channel in found.items() if channel.is_real and name != target],
        "target": target,
        "classes": found[target].classes if target else [],
        "split": {"by": "folder" if {"train", "test"} <= folders else "time"},
    }
    hint = "no label variable: set data.target, data.thresholds, data.classes, or data.target=null"
    return _report(files, found, [hint] * (not target) + refused), values


def _variables(dataset: xr.Dataset) -> set[str]:
    """Names of the variables that hold fields, not the bounds of cells."""
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    fields = {name: v for name, v in dataset.data_vars.items() if name not in bounds}
    return {str(name) for name, v in fields.items() if v.ndim > 1 and v.dtype.kind in "fiu"}


def _look(dataset: xr.Dataset, file: Path, name: str) -> dict[str, _Found]:
    """The channels of a variable: one, or as many as it has levels."""
    array, found = dataset[name], {}
    try:
        channels = {name: find_field(dataset, file, Channel(name))}
    except LevelError as error:
        channels = {it: find_field(dataset, file, Channel.parse(it)) for it in error.channels}
    for channel, field in channels.items():
        values_HW = field.read(dataset, 0)
        valid = values_HW[~np.isnan(values_HW)]
        low, high = (valid.min(), valid.max()) if valid.size else (np.nan, np.nan)
        found[channel] = _Found(field, (low, high), _classes(array, high), array.dtype.kind == "f")
    return found


def _classes(array: xr.DataArray, largest: float) -> list[str]:
    """The names of the classes where a variable holds labels."""
    if "flag_values" in array.attrs:
        return str(array.attrs.get("flag_meanings", "")).split()
    if str(array.name).lower() not in LABEL_NAMES:
        return []
    if largest > 2:
        return [f"class_{index}" for index in range(int(largest) + 1)]
    return CLIMATENET_CLASSES


def _report(files: list[Path], found: dict[str, _Found], warnings: list[str]) -> DataReport:
    fields = {name: channel.field for name, channel in found.items()}
    first = next(iter(fields.values()))
    facts = {
        "files": f"{len(files)}, such as {files[0]}",
        "grid": str(first.grid),
        "first sample": first.keys[0],
    }
    rows = [
        (name, str(field.grid.shape), field.unit, "{:.5g}..{:.5g}".format(*found[name].range))
        for name, field in fields.items()
    ]
    table = Table("Channels (range of the first field)", ("name", "shape", "unit", "range"), rows)
    return DataReport("Climate files", facts, [table], warnings)
