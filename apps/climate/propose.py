"""A configuration for files never seen before: which variables could be inputs, which the label."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from apps.climate.fields import Channel, Field, LevelError, find_field
from apps.climate.files import find_files, open_fields
from scadl_core.errors import DataError
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport, Table

LABEL_NAMES = ("labels", "label")
CLIMATENET_CLASSES = ["background", "tropical_cyclone", "atmospheric_river"]
HINT = (
    "no variable looks like labels: name one with its classes, or label by thresholds on a field, "
    "such as data.target=uwnd data.thresholds=[30.0] data.classes=[calm,jet]"
)


class _Found(NamedTuple):
    field: Field
    range: str  # of its first sample
    classes: list[str]  # none unless it holds labels
    is_real: bool  # whether it could be an input


def propose(path: Paths) -> tuple[DataReport, dict[str, Any]]:
    """Looks into the files of a ``data.path``, and proposes what to set.

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
    # Labels are what a person has to name where no variable looks like class numbers.
    target = next((name for name, channel in found.items() if channel.classes), "???")
    by = "folder" if {"train", "test"} <= {file.parent.name for file in files} else "time"
    values = {
        "path": str(path) if isinstance(path, str | Path) else [str(item) for item in path],
        "inputs": [name for name, channel in found.items() if channel.is_real and name != target],
        "target": target,
        "classes": found[target].classes if target in found else "???",
        "split": {"by": by},
    }
    first, fields = next(iter(found.values())).field, found.items()
    facts = {"files": f"{len(files)}, such as {files[0]}", "grid": str(first.grid)}
    facts |= {"first sample": first.keys[0]}
    rows = [(name, str(it.field.grid.shape), it.field.unit, it.range) for name, it in fields]
    table = Table("Channels (range of the first field)", ("name", "shape", "unit", "range"), rows)
    return DataReport(
        "Climate files", facts, [table], [HINT] * (target not in found) + refused
    ), values


def _variables(dataset: xr.Dataset) -> set[str]:
    """Names of the variables that hold fields, not the bounds of cells."""
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    fields = {str(name): item for name, item in dataset.data_vars.items() if name not in bounds}
    return {name for name, item in fields.items() if item.ndim > 1 and item.dtype.kind in "fiu"}


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
        classes, is_real = _classes(array, high), array.dtype.kind == "f"
        found[channel] = _Found(field, f"{low:.5g}..{high:.5g}", classes, is_real)
    return found


def _classes(array: xr.DataArray, largest: float) -> list[str]:
    """The names of the classes where a variable holds labels."""
    if "flag_values" in array.attrs:
        return str(array.attrs.get("flag_meanings", "")).split()
    if str(array.name).lower() not in LABEL_NAMES:
        return []
    more = [f"class_{index}" for index in range(int(largest) + 1)] if largest > 2 else []
    return more or CLIMATENET_CLASSES
