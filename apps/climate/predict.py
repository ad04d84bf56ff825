"""Predictions as CF NetCDF: classes and probabilities, with the input's grid and coordinates.

Shapes: K class, H latitude, W longitude canonical (see ``grid``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cftime
import netCDF4
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from apps.climate.catalogue import Catalogue
from apps.climate.earth import Earth
from apps.climate.fields import Field
from apps.climate.files import find_files, open_fields
from apps.climate.objects import Event, Extreme, find_events, write_events
from apps.climate.units import powers, same_unit
from scadl_core.errors import ConfigError, DataError
from scadl_core.files import Paths, written_aside
from scadl_core.workflow.tiles import Tiles

if TYPE_CHECKING:
    from apps.climate.task import Segmentation

SUFFIXES = ("", ".nc", ".nc4", ".cdf", ".netcdf")  # of a prediction
STRANGE = 10  # standard deviations that the mean of a map may be off
CLASS_VARIABLE, CLASS_FILL, PROBABILITY_FILL = "event_class", np.int8(-1), np.float32(np.nan)
# CF allows text neither as a time nor in a variable named as its dimension. What tells samples
# apart where there is no date, such as the `time` of ClimateNet, which is the name of the file, is
# written under this name: a label (CF section 6.1), listed in the attribute `coordinates`.
LABEL_VARIABLE = "sample_name"


def predict_files(
    task: Segmentation,
    inputs: Paths,
    output: Path,
    provenance: Mapping[str, Any],
    probabilities: bool = True,
    tile: int | None = None,
    memory_GiB: float = 4.0,
    events: bool = False,
    extreme: Sequence[str] | None = None,
) -> Path:
    """Applies a trained task to every sample in some files, one in memory at a time.

    Args:
        task: What predicts; it knows its channels and classes.
        inputs: A file, a folder, a glob pattern, or several of them.
        output: The file to write, whole or not at all; or a folder to name one in after an input.
        provenance: Of the run; a short form goes into the file's attributes.
        probabilities: Whether to write them, beside the classes.
        tile: Pixels of the tiles in which a map is predicted, or None; and
        memory_GiB: for None, as in :class:`scadl_core.workflow.tiles.Tiles`.
        events: Whether to write a table of the events, `<output>_events.csv`, too.
        extreme: Whose extreme it gives, see :meth:`apps.climate.objects.Extreme.choose`.

    Returns:
        The file written.

    Raises:
        ConfigError: A tile of less than a pixel, or the network allows none.
        DataError: An input is missing or broken, or the output would overwrite one.
    """
    classes, channels = task.facts["classes"], task.facts["inputs"]
    tiles = Tiles(task.network, len(channels), tile, memory_GiB)
    catalogue = Catalogue(find_files(inputs, key="input"), channels, key="input")
    _check_units(catalogue, task.facts)
    output = _name_output(Path(output).expanduser(), catalogue.files)
    of = Extreme.choose({name: catalogue.fields[name][0].unit for name in channels}, extreme)
    grid, rows = catalogue.grid, list[tuple[str, Event]]()
    earth = Earth.of(grid.latitude, grid.longitude, grid.periodic)
    # The first channel's files give the coordinates, or the first that is no land mask or so.
    leader = min(channels, key=lambda name: catalogue.fields[name][0].time is None)
    places = [catalogue.places[leader][key] for key in catalogue.keys]
    with written_aside(output) as aside, netCDF4.Dataset(aside, "w") as dataset:
        dataset.setncatts(_global_attributes(catalogue, classes, provenance))
        steps, references = _copy_coordinates(dataset, catalogue, places)
        first, names = places[0][0], list(classes) * probabilities
        dimensions = [steps] * bool(steps) + list(first.dimensions)
        variables = _create_fields(dataset, classes, names, dimensions, references)
        for step, key in enumerate(catalogue.keys):
            image_CHW = catalogue.read(key).astype(np.float32)
            if not step:
                _warn_of_strange_values(image_CHW, task.facts, key)
            probability_KHW = task.probabilities(image_CHW, grid.periodic, tiles)
            missing_HW = np.isnan(image_CHW).any(0) | np.isnan(probability_KHW).any(0)
            class_HW = np.where(missing_HW, CLASS_FILL, probability_KHW.argmax(0).astype(np.int8))
            fields = [class_HW, *np.where(missing_HW, PROBABILITY_FILL, probability_KHW)]
            for variable, field_HW in zip(variables, fields, strict=False):
                variable[(step, ...) if steps else ...] = first.grid.from_canonical(field_HW)
            if events:
                values_HW = image_CHW[channels.index(of.variable)]
                rows += [(key, it) for it in find_events(class_HW, earth, values_HW, of.kind)]
        if events:
            write_events(output.with_name(f"{output.stem}_events.csv"), rows, classes, of)
    return output


def _check_units(catalogue: Catalogue, facts: Mapping[str, Any]) -> None:
    for name, unit in zip(facts["inputs"], facts["units"], strict=True):
        field = catalogue.fields[name][0]
        if not same_unit(field.unit, unit):
            found = f"{name} is in {field.unit}, the model was trained with {unit}"
            raise DataError(f"{field.path}: {found}; convert the file")


def _warn_of_strange_values(
    image_CHW: NDArray[np.float32], facts: Mapping[str, Any], key: str
) -> None:
    """Says on standard error where a map is far from what the model was trained on."""
    for name, mean, std, field_HW in zip(
        facts["inputs"], facts["mean_C"], facts["std_C"], image_CHW, strict=True
    ):
        valid = field_HW[np.isfinite(field_HW)]
        found = "is missing everywhere"
        if valid.size:
            found = f"has a mean of {valid.mean():.5g}, in training it had {mean:.5g} +- {std:.3g}"
        if not valid.size or abs(valid.mean() - mean) > STRANGE * std:
            text = f"warning: {name} of {key} {found}: another unit, or an undeclared fill value?"
            print(text, file=sys.stderr)


def _name_output(output: Path, files: Sequence[Path]) -> Path:
    """The file to write, in a folder that is there."""
    if output.is_dir():
        output = output / f"{files[0].stem}_classes.nc"
    whole = output.resolve()
    if {whole, *whole.parents} & {file.resolve() for file in files}:
        raise DataError(f"output={output} is an input as well; choose another name")
    if output.suffix not in SUFFIXES:
        raise ConfigError(f"output={output}: predictions are NetCDF; let the name end in .nc")
    output.parent.mkdir(parents=True, exist_ok=True)
    return output


def _global_attributes(
    catalogue: Catalogue, classes: Sequence[str], provenance: Mapping[str, Any]
) -> dict[str, str]:
    names = [file.name for file in catalogue.files]
    sources = ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "Conventions": "CF-1.11",
        "title": f"Predicted weather events: {', '.join(classes)}",
        "source": f"ScaDL segmentation model applied to {', '.join(catalogue.names)} of {sources}",
        "history": f"{now}: predicted by ScaDL from {sources}",
        "scadl_version": str(provenance["versions"]["scadl"]),
        "scadl_git_commit": str(provenance["git"].get("sha", "unknown")),
        "scadl_model_trained": str(provenance["time"]),
        "scadl_command": str(provenance["command"]),
    }


def _create_fields(
    dataset: netCDF4.Dataset,
    classes: Sequence[str],
    probable: Sequence[str],
    dimensions: Sequence[str],
    references: Mapping[str, str],
) -> list[netCDF4.Variable]:
    """The variable of the classes, then those of the probabilities of some."""
    names = ["probability_" + re.sub(r"\W", "_", name) for name in probable]
    about: dict[str, Any] = {
        "long_name": "class of weather event",
        "flag_values": np.arange(len(classes), dtype=np.int8),  # CF section 3.5: of the same type,
        "flag_meanings": " ".join(re.sub(r"[^\w.+@-]", "_", name) for name in classes),  # one word
    }
    table = {CLASS_VARIABLE: (CLASS_FILL, about)}
    if names:
        about["ancillary_variables"] = " ".join(names)
    for name, variable in zip(probable, names, strict=True):
        about = {"long_name": f"probability of {name.replace('_', ' ')}", "units": "1"}
        table[variable] = PROBABILITY_FILL, about
    for variable, (fill, about) in table.items():
        options = {"fill_value": fill, "zlib": True, "complevel": 1}
        dataset.createVariable(variable, fill.dtype, dimensions, **options)
        dataset[variable].setncatts(about | references)
    return [dataset[variable] for variable in table]


def _copy_coordinates(
    dataset: netCDF4.Dataset, catalogue: Catalogue, places: Sequence[tuple[Field, int]]
) -> tuple[str | None, dict[str, str]]:
    """Copies coordinates, bounds and grid mapping, undecoded.

    Gives the dimension of samples, None for a lone one, and the attributes that refer to them.
    """
    first, shared = places[0][0], _shared_coordinates(catalogue)
    with open_fields(first.path, decode_cf=False) as source:
        there = source.variables
        is_text = bool(first.time) and there[first.time].dtype.kind in "OSUT"
        times = [first.time] if first.time and not is_text else []
        names = [*first.coordinates, *(name for name in first.dimensions if name in there)]
        names = list(dict.fromkeys([*names, *times, *(it for it in shared if it != first.time)]))
        mapping = there[first.variable].attrs.get("grid_mapping", "")
        of = {name: there[name].attrs for name in names}
        bounds = {name: it.get("bounds", it.get("climatology")) for name, it in of.items()}
        copied = [*names, *bounds.values(), *re.findall(r"[^\s:]+", mapping)]
        variables = {name: there[name].load() for name in copied if name in there}
    for name in first.coordinates:
        if str(of[name].get("units", "")).startswith("rad"):  # CF wants degrees
            for item in {name, bounds[name]} & variables.keys():
                values = np.rad2deg(variables[item].values)
                variables[item] = xr.Variable(variables[item].dims, values)
    steps = first.time_dimension or ((first.time or "sample") if len(places) > 1 else None)
    steps = "sample" if steps and is_text else steps
    if steps:
        dataset.createDimension(steps, None)
        times += [bounds[name] for name in times]
        changing = {name for name, it in variables.items() if first.time_dimension in it.dims}
        changing |= variables.keys() & set(times)
        variables |= _stepwise(changing, times, places, steps)
    standard = dict(zip(first.coordinates, ("latitude", "longitude"), strict=True))
    standard |= {first.time: "time"} if first.time_unit else {}
    if CLASS_VARIABLE in variables:
        found = f"{first.path}: has a coordinate named {CLASS_VARIABLE}, as predictions are"
        raise DataError(f"{found}; rename it")
    for name, variable in variables.items():
        _copy(dataset, name, variable, standard.get(name))
    if not times and (steps or is_text):
        label = dataset.createVariable(LABEL_VARIABLE, str, (steps,) if steps else ())
        label.long_name = "name of sample"
        label[...] = np.array(catalogue.keys if steps else catalogue.keys[0], object)
        names.append(LABEL_VARIABLE)
    auxiliary = " ".join(name for name in names if name not in dataset.dimensions)
    references = {"coordinates": auxiliary, "grid_mapping": mapping}
    return steps, {name: text for name, text in references.items() if text}


def _shared_coordinates(catalogue: Catalogue) -> list[str]:
    """Auxiliary coordinates, such as a height, of all channels; others do not hold here."""
    found: list[dict[str, xr.Variable]] = []
    for name in catalogue.names:
        field = catalogue.places[name][catalogue.keys[0]][0]
        kept = {field.time_dimension, *field.dimensions}
        with open_fields(field.path, decode_cf=False) as source:
            listed = source[field.variable].attrs.get("coordinates", "").split()
            here = {item: source.variables[item] for item in listed if item in source.variables}
            found.append({item: v.load() for item, v in here.items() if kept >= set(v.dims)})
    first, *others = found
    return [name for name, it in first.items() if all(it.equals(o.get(name)) for o in others)]


def _stepwise(
    names: set[str], times: Sequence[str], places: Sequence[tuple[Field, int]], steps: str
) -> dict[str, xr.Variable]:
    """What differs from sample to sample, each file opened once; times in the first file's unit."""
    first = places[0][0]
    parts: dict[str, list[xr.Variable]] = {name: [] for name in names}
    for field, group in groupby(places, key=itemgetter(0)):
        at = {field.time_dimension: [index for _, index in group]}
        with open_fields(field.path, decode_cf=False) as source:
            for name in names:
                variable = source.variables[field.time if name == first.time else name]
                values = variable.isel(at, missing_dims="ignore").values
                dimensions = [steps if it == field.time_dimension else it for it in variable.dims]
                if name in times and field.time_unit != first.time_unit:
                    dates = cftime.num2date(values, field.time_unit, field.calendar)
                    values = np.float64(cftime.date2num(dates, first.time_unit, first.calendar))
                if steps not in dimensions:  # a scalar in a file of one sample
                    dimensions, values = [steps, *dimensions], values[None]
                parts[name].append(xr.Variable(dimensions, values, variable.attrs))
    return {name: xr.Variable.concat(part, steps) for name, part in parts.items()}


def _copy(
    dataset: netCDF4.Dataset, name: str, variable: xr.Variable, standard_name: str | None
) -> None:
    """Writes a variable as it is, with what CF section 4 asks for where the input is silent."""
    units = {"latitude": "degrees_north", "longitude": "degrees_east"}.get(standard_name)
    attributes = {"standard_name": standard_name} if standard_name else {}
    attributes |= ({"units": units} if units else {}) | variable.attrs
    attributes.pop("actual_range", None)  # of the other file, and rarely in the order of CF
    is_length = powers(str(attributes.get("units", ""))) in ({"m": 1}, {"km": 1})
    if str(attributes.get("standard_name", "")).startswith("projection_") and not is_length:
        attributes.pop("standard_name")  # numbers of rows or columns, as CMIP6 has them
    fill = attributes.pop("_FillValue", None)
    if name in variable.dims:  # CF allows no fill in a coordinate variable; xarray writes one
        fill, _ = None, attributes.pop("missing_value", None)
    for dimension, size in variable.sizes.items():
        if dimension not in dataset.dimensions:
            dataset.createDimension(dimension, size)
    dtype = str if variable.dtype.kind in "OUT" else variable.dtype.newbyteorder("=")
    copy = dataset.createVariable(name, dtype, variable.dims, fill_value=fill)
    copy.set_auto_maskandscale(False)
    copy.setncatts(attributes)
    copy[...] = variable.values
