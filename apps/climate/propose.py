"""A configuration for files never seen before: which variables could be inputs, which the label."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from apps.climate.fields import Channel, Field, LevelError, find_field
from apps.climate.files import find_files, open_fields
from apps.climate.labeller import NEEDS, Labeller
from apps.climate.splits import DEFAULT
from scadl_core.errors import DataError
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport, Table

LABEL_NAMES = ("labels", "label")
MOST_CLASSES = 1000  # a larger number in a variable of labels is damage
CLIMATENET_CLASSES = ["background", "tropical_cyclone", "atmospheric_river"]
UNUSUAL = 0.9  # the quantile of a field that is proposed as a threshold


class _Found(NamedTuple):
    field: Field
    range: str  # of its first sample
    unusual: float  # a high value there
    classes: list[str]  # none unless it holds labels
    is_real: bool  # whether it could be an input


def propose(path: Paths, **_: Any) -> tuple[DataReport, dict[str, Any]]:
    """Looks into the files of a ``data.path``, and proposes what to set.

    Returns:
        What was found, and values by their name below ``data``.

    Raises:
        DataError: A file cannot be read, or none holds a field on rows and columns.
    """
    files, notes = find_files(path), list[str]()
    found = {name: _look(*it) for name, it in _channels(files, notes).items()}
    if not found:
        raise DataError((notes or [f"{files[0]}: no variable lies on latitude and longitude"])[0])
    first = next(iter(found.values())).field
    inputs = [name for name, it in found.items() if it.is_real and not it.classes]
    elsewhere = [name for name in inputs if first.grid.difference(found[name].field.grid)]
    if elsewhere:
        notes.append(f"{', '.join(elsewhere)}: on another grid than {first.variable}, left out")
    target = next((name for name, channel in found.items() if channel.classes), None)
    values: dict[str, Any] = {
        "path": str(path) if isinstance(path, str | Path) else [str(item) for item in path],
        "inputs": [name for name in inputs if name not in elsewhere],
        "target": target or "???",  # for a person to name,
        "classes": found[target].classes if target else "???",
        "split": DEFAULT | {"by": _split_by(files)},
    }
    if not target:  # unless rules can label
        values |= _heuristic(found) or {}
        notes.append(_hint(found, values))
    facts = {"files": f"{len(files)}, such as {files[0]}", "grid": str(first.grid)}
    facts |= {"first sample": first.keys[0]}
    fields = found.items()
    rows = [(name, str(it.field.grid.shape), it.field.unit, it.range) for name, it in fields]
    table = Table("Channels (range of the first field)", ("name", "shape", "unit", "range"), rows)
    return DataReport("Climate files", facts, [table], notes), values


def channels_of(files: Sequence[Path]) -> dict[str, str]:
    """Standard names, "" where there is none, of all channels in some files."""
    found = _channels(files, [])
    return {name: str(it.about.get("standard_name", "")) for name, (_, it) in found.items()}


def _channels(files: Sequence[Path], refused: list[str]) -> dict[str, tuple[Path, Field]]:
    """All channels, with the first file that has each; adds why some variables are none."""
    found: dict[str, tuple[Path, Field]] = {}
    seen: set[str] = set()
    for file in files:
        with open_fields(file) as dataset:
            for name in sorted(_variables(dataset) - seen):
                seen.add(name)
                try:
                    found |= {name: (file, find_field(dataset, file, Channel(name)))}
                except LevelError as error:
                    for it in error.channels:
                        found[it] = file, find_field(dataset, file, Channel.parse(it))
                except DataError as error:
                    refused.append(str(error))
    return found


def _variables(dataset: xr.Dataset) -> set[str]:
    """Names of the variables that hold fields, not the bounds of cells."""
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    fields = {str(name): item for name, item in dataset.data_vars.items() if name not in bounds}
    return {name for name, item in fields.items() if item.ndim > 1 and item.dtype.kind in "fiu"}


def _look(file: Path, field: Field) -> _Found:
    with open_fields(file) as dataset:
        array, values_HW = dataset[field.variable], field.read(dataset, 0)
        valid = values_HW[~np.isnan(values_HW)]
        low, unusual, high = np.quantile(valid, (0, UNUSUAL, 1)) if valid.size else [np.nan] * 3
        classes, is_real = _classes(array, high), array.dtype.kind == "f"
        return _Found(field, f"{low:.5g}..{high:.5g}", float(f"{unusual:.3g}"), classes, is_real)


def _split_by(files: Sequence[Path]) -> str:
    return "folder" if {"train", "test"} <= {file.parent.name for file in files} else "time"


def _heuristic(found: dict[str, _Found]) -> dict[str, Any] | None:
    """Values for labels by rules, of as many kinds of events as the fields suffice for."""
    channels = {name: str(it.field.about.get("standard_name", "")) for name, it in found.items()}
    for events in (list(NEEDS), *([event] for event in NEEDS)):
        with suppress(DataError):
            Labeller(events=events).find(channels)
            classes = ["background", *events]
            return {"target": "heuristic", "classes": classes, "labeller": {"events": events}}
    return None


def _hint(found: dict[str, _Found], values: dict[str, Any]) -> str:
    """How the maps get labels, where no variable looks like class numbers."""
    if values["target"] == "heuristic":
        events = ", ".join(values["labeller"]["events"])
        return f"no variable looks like labels: {events} will be labelled by rules (data.labeller)"
    name = (values["inputs"] or list(found))[0]
    return (
        "no variable looks like labels: name one with its classes, or label by thresholds on a "
        f"field, such as data.target={name} data.thresholds=[{found[name].unusual:g}] "
        "data.classes=[usual,high]"
    )


def _classes(array: xr.DataArray, largest: float) -> list[str]:
    """The names of the classes where a variable holds labels."""
    if "flag_values" in array.attrs:
        return str(array.attrs.get("flag_meanings", "")).split()
    if str(array.name).lower() not in LABEL_NAMES or largest >= MOST_CLASSES:
        return []
    more = [f"class_{index}" for index in range(int(largest) + 1)] if largest > 2 else []
    return more or CLIMATENET_CLASSES
