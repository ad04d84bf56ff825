"""The data report: what is in a user's files, and what a reader should know before trusting it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import cftime
import numpy as np

from apps.climate.fields import DECODED, Field
from apps.climate.splits import SPLITS, instant
from apps.climate.units import usual_range
from scadl_core.record.datareport import DataReport, Table

if TYPE_CHECKING:
    from apps.climate.data import ClimateData

KEY_FORMAT = "%Y-%m-%dT%H:%M:%S"
LONG_STEP = 1.5  # times the usual one, and steps are missing; months differ by less


def report(data: ClimateData) -> DataReport:
    """Facts, a table of channels, one of classes, and warnings."""
    catalogue, files = data.catalogue, data.catalogue.files
    counts = ", ".join(f"{len(data.splits[name])} {name}" for name in SPLITS)
    calendar = f" ({catalogue.calendar} calendar)" if catalogue.calendar else ""
    found = {
        "files": f"{len(files)}, from {files[0]} to {files[-1]}",
        "grid": str(catalogue.grid),
        "time": f"{catalogue.keys[0]} to {catalogue.keys[-1]}{calendar}",
        "samples": f"{counts} (by {data.split['by']})",
    }
    if differing := "; ".join(_differences(data)):
        found["differs across files"] = differing
    tables = [_channels(data)] + [_classes(data)] * bool(data.target)
    return DataReport("Climate data", found, tables, list(_warnings(data)))


def _first(data: ClimateData, name: str) -> Field:
    return data.catalogue.fields[name][0]


def _channels(data: ClimateData) -> Table:
    columns = ("name", "unit", "mean", "std", "min", "max", "missing", "fill")
    of = data.statistics
    numbers = [[f"{it:.5g}" for it in of[f"{name}_C"]] for name in columns[2:6]]
    shares = [f"{it:.2%}" for it in of["missing_C"] / (of["missing_C"] + of["count_C"])]
    units = [_first(data, name).unit for name in data.inputs]
    fills = [_fill(_first(data, name)) for name in data.inputs]
    rows = list(zip(data.inputs, units, *numbers, shares, fills, strict=True))
    return Table("Channels (train)", columns, rows)


def _fill(field: Field) -> str:
    values = [field.about.get(name) for name in ("_FillValue", "missing_value")]
    declared = {f"{float(it):g}" for it in values if np.ndim(it) == 0 and it is not None}
    return ", ".join(sorted(declared)) or "none declared"


def _classes(data: ClimateData) -> Table:
    shares = [f"{share:.3%}" for share in data.facts()["class_fraction_K"]]
    rows = list(zip(map(str, range(len(shares))), data.classes, shares, strict=True))
    title = f"Classes of {data.target} (train)"
    return Table(title, ("class", "name", "share of pixels"), rows)


def _differences(data: ClimateData) -> Iterator[str]:
    """What is not the same in all files of a channel; all of it is taken care of."""
    for name, fields in data.catalogue.fields.items():
        seen = {
            key: {repr(field.about.get(key)) for field in fields} for key in (*DECODED, "units")
        }
        seen["order of latitudes"] = {str(field.grid.row_H[0]) for field in fields}
        seen["first longitude"] = {str(field.grid.column_W[0]) for field in fields}
        if names := [key for key, values in seen.items() if len(values) > 1]:
            yield f"{name}: {', '.join(names)}"


def _warnings(data: ClimateData) -> Iterator[str]:
    of, catalogue = data.statistics, data.catalogue
    yield from catalogue.warnings
    assumed = {field.assumed for fields in catalogue.fields.values() for field in fields}
    yield from (f"{_first(data, data.inputs[0]).path} {it} is assumed" for it in assumed - {""})
    for name, low, high in zip(data.inputs, of["min_C"], of["max_C"], strict=True):
        if high <= low:
            yield f"{name} is constant: nothing can be learnt from it"
        limits = usual_range(_first(data, name).about)
        if limits and not limits[0] <= low <= high <= limits[1]:
            unit = _first(data, name).unit
            yield (
                f"{name} has values of {low:.5g}..{high:.5g} {unit}, outside the usual "
                f"{limits[0]:g}..{limits[1]:g}: an undeclared fill value, or another unit"
            )
    for name, pixels in zip(data.classes, of["pixels_K"], strict=True):
        if not pixels:
            yield f"class {name} has no pixel in the train split"
    if missing := _missing_steps(catalogue.keys, catalogue.calendar):
        yield missing
    train, val, test = ({instant(key) for key in data.splits[name]} for name in SPLITS)
    if shared := len(test & (train | val)) + len(train & val):
        yield f"{shared} instants are in two splits: scores will flatter"


def _missing_steps(keys: list[str], calendar: str) -> str | None:
    """Names the longest gap of a series of dates, if any is longer than the usual step."""
    if not calendar or len(keys) < 3:
        return None
    parsed = (cftime.datetime.strptime(key, KEY_FORMAT, calendar=calendar) for key in keys)
    try:
        dates = list(parsed)
    except ValueError:  # a year beyond four figures
        return None
    steps = np.array([(late - early).total_seconds() for early, late in pairwise(dates)])
    usual = float(np.median(steps))
    long = np.flatnonzero(steps > LONG_STEP * usual)
    if not long.size:
        return None
    where = long[np.argmax(steps[long])]
    return (
        f"{long.size} times the next step comes late (usual: {usual / 3600:g} h), as between "
        f"{keys[where]} and {keys[where + 1]}: steps are missing"
    )
