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
    """A channel, the range of its first field, its classes if labels, whether it could be input."""

    field: Field
    range: tuple[float, float]
    classes: list[str]
    is_real: bool


def propose(path: Paths) -> tuple[DataReport, dict[str, Any]]:
    """Looks into files and proposes what to set.

    Args:
        path: As ``data.path``.

    Returns:
        What was found, and values by their name below ``data``.

    Raises:
        DataError: A file cannot be read, or none holds a latitude/longitude field.
    """
    files = find_files(path)
    found: dict[str, _Found] = {}
    refused: dict[str, str] = {}
    seen: set[str] = set()
    for file in files:
        with open_fields(file) as dataset:
            for name in sorted(_variables(dataset) - seen):
                seen.add(name)
                try:
                    found |= _look(dataset, file, name)
                except DataError as error:
                    refused[name] = str(error)
    if not found:
        raise DataError(
            next(iter(refused.values()), f"{files[0]}: no variable lies on latitude and longitude")
        )
    target = next((name for name, channel in found.items() if channel.classes), None)
    values = {
        "path": str(path) if isinstance(path, str | Path) else [str(item) for item in path],
        "inputs": [name for name, channel in found.items() if channel.is_real and name != target],
        "target": target,
        "classes": found[target].classes if target else [],
        "split": {
            "by": "folder" if {"train", "test"} <= {file.parent.name for file in files} else "time"
        },
    }
    return _report(files, found, refused, target), values


def _variables(dataset: xr.Dataset) -> set[str]:
    """Names of the variables that hold fields, not the bounds of cells."""
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    fields = dataset.data_vars.items()
    return {
        str(name)
        for name, field in fields
        if field.ndim > 1 and field.dtype.kind in "fiu" and name not in bounds
    }


def _look(dataset: xr.Dataset, file: Path, name: str) -> dict[str, _Found]:
    """The channels of a variable: one, or as many as it has levels."""
    try:
        fields = {name: find_field(dataset, file, Channel(name))}
    except LevelError as error:
        fields = {
            level: find_field(dataset, file, Channel.parse(level)) for level in error.channels
        }
    found = {}
    for channel, field in fields.items():
        values_HW = field.read(dataset, 0)
        valid = values_HW[~np.isnan(values_HW)]
        range_ = (valid.min(), valid.max()) if valid.size else (np.nan, np.nan)
        found[channel] = _Found(
            field, range_, _classes(dataset[name], range_[1]), dataset[name].dtype.kind == "f"
        )
    return found


def _classes(array: xr.DataArray, largest: float) -> list[str]:
    """The names of the classes where a variable holds labels."""
    if "flag_values" in array.attrs:
        return str(array.attrs.get("flag_meanings", "")).split()
    if str(array.name).lower() not in LABEL_NAMES:
        return []
    return (
        CLIMATENET_CLASSES
        if not largest > 2
        else [f"class_{index}" for index in range(int(largest) + 1)]
    )


def _report(
    files: list[Path], found: dict[str, _Found], refused: dict[str, str], target: str | None
) -> DataReport:
    rows = [
        (
            name,
            str(channel.field.grid.shape),
            channel.field.unit,
            "{:.5g}..{:.5g}".format(*channel.range),
        )
        for name, channel in found.items()
    ]
    first = next(iter(found.values())).field
    facts = {
        "files": f"{len(files)}, such as {files[0]}",
        "grid": str(first.grid),
        "first sample": first.keys[0],
    }
    hints = (
        []
        if target
        else [
            "no label variable: set data.target, data.thresholds, data.classes, or data.target=null"
        ]
    )
    table = Table("Channels (range of the first field)", ("name", "shape", "unit", "range"), rows)
    return DataReport("Climate files", facts, [table], hints + list(refused.values()))
