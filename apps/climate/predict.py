"""Predictions as CF NetCDF: classes and probabilities, with the input's grid and coordinates.

Shapes: C channel, K class, H latitude, W longitude canonical (see ``grid``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import cftime
import netCDF4
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from apps.climate.catalogue import Catalogue, Paths, find_files
from apps.climate.fields import Field, open_fields
from scadl_core.errors import DataError

Predict = Callable[[NDArray[np.float32], bool], NDArray[np.float32]]

# ---- The CF attributes of a prediction: all of them are here. ----

CLASS_VARIABLE = "event_class"
CLASS_FILL = np.int8(-1)
CONVENTIONS = "CF-1.11"


def class_attributes(classes: Sequence[str], probabilities: Sequence[str]) -> dict[str, Any]:
    """Attributes of ``event_class``. CF section 3.5: a word a flag, values of its own type."""
    attributes = {
        "long_name": "class of weather event",
        "flag_values": np.arange(len(classes), dtype=np.int8),
        "flag_meanings": " ".join(re.sub(r"[^\w.+@-]", "_", name) for name in classes),
    }
    ancillary = {"ancillary_variables": " ".join(probabilities)} if probabilities else {}
    return attributes | ancillary


def probability_variable(name: str) -> str:
    """Name of the variable that holds a class's probability."""
    return "probability_" + re.sub(r"\W", "_", name)


def probability_attributes(name: str) -> dict[str, Any]:
    """Attributes of ``probability_<class>``."""
    return {"long_name": f"probability of {name.replace('_', ' ')}", "units": "1"}


def coordinate_attributes(standard_name: str) -> dict[str, str]:
    """What CF section 4 asks of a latitude, longitude or time, for where the input is silent."""
    units = {"latitude": "degrees_north", "longitude": "degrees_east"}.get(standard_name)
    return {"standard_name": standard_name} | ({"units": units} if units else {})


def global_attributes(
    files: Sequence[Path], inputs: Sequence[str], classes: Sequence[str]
) -> dict[str, str]:
    """Attributes of the file."""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    sources = ", ".join(file.name for file in files[:3]) + more
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "Conventions": CONVENTIONS,
        "title": f"Predicted weather events: {', '.join(classes)}",
        "source": f"ScaDL segmentation model applied to {', '.join(inputs)} of {sources}",
        "history": f"{now}: predicted by ScaDL from {sources}",
    }


# ---- The file. ----


def write_predictions(
    predict: Predict,
    path: Paths,
    output: str | Path,
    inputs: Sequence[str],
    classes: Sequence[str],
    provenance: Mapping[str, str],
    probabilities: bool = True,
) -> Path:
    """Predicts every sample in some files, one in memory at a time.

    Args:
        predict: Takes an image, shape [C, H, W] in the files' units, NaN where missing, and whether
            the grid is periodic; gives probabilities, shape [K, H, W].
        path: A file, a folder, a glob pattern, or several of them.
        output: The file to write; it is written aside and renamed, so it is there whole or not.
        inputs: Channels, in the model's order.
        classes: Names of the classes.
        provenance: Global attributes beside or instead of those of ``global_attributes``.
        probabilities: Whether to write them, beside the classes.

    Returns:
        The file written.

    Raises:
        DataError: An input is missing or broken, or the output would overwrite one.
    """
    catalogue = Catalogue(find_files(path), inputs)
    output = Path(output).expanduser()
    if output.resolve() in {file.resolve() for file in catalogue.files}:
        raise DataError(f"output={output} is an input as well; choose another name")
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f".{output.name}.part")
    attributes = global_attributes(catalogue.files, inputs, classes) | dict(provenance)
    try:
        with netCDF4.Dataset(part, "w") as dataset:
            dataset.setncatts({name: str(value) for name, value in attributes.items()})
            writer = _Writer(dataset, catalogue, classes, probabilities)
            for step, key in enumerate(catalogue.keys):
                image_CHW = catalogue.read(key).astype(np.float32)
                probability_KHW = predict(image_CHW, catalogue.grid.periodic)
                writer.write(step, probability_KHW, np.isnan(image_CHW).any(axis=0))
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    return output


class _Writer:
    """Copies the coordinates of the input, undecoded, then takes one step at a time."""

    def __init__(
        self,
        dataset: netCDF4.Dataset,
        catalogue: Catalogue,
        classes: Sequence[str],
        probabilities: bool,
    ) -> None:
        dataset.set_auto_maskandscale(False)
        self._dataset, self._catalogue = dataset, catalogue
        # The first channel's files give the coordinates, or the first that is no land mask or so.
        leader = min(catalogue.names, key=lambda name: catalogue.fields[name][0].time is None)
        self._places = [catalogue.place(leader, key) for key in catalogue.keys]
        self._field = field = self._places[0][0]
        several = (field.time or "sample") if len(self._places) > 1 else None
        self._steps = field.time_dimension or several  # a lone sample may be without a dimension
        self._stepwise: list[str] = []
        self._times: set[str | None] = set()
        if self._steps:
            dataset.createDimension(self._steps, None)
        references = self._copy_coordinates()
        self._copy_steps()
        self._probabilities = list(map(probability_variable, classes)) if probabilities else []
        attributes = class_attributes(classes, self._probabilities)
        self._create(CLASS_VARIABLE, CLASS_FILL, attributes | references)
        for name, variable in zip(classes, self._probabilities, strict=False):
            self._create(variable, np.float32(np.nan), probability_attributes(name) | references)

    def _create(self, name: str, fill: np.generic, attributes: dict[str, Any]) -> None:
        dimensions = (*([self._steps] if self._steps else []), *self._field.dimensions)
        options = {"zlib": True, "complevel": 1, "fill_value": fill}
        self._dataset.createVariable(name, fill.dtype, dimensions, **options).setncatts(attributes)

    def _copy_coordinates(self) -> dict[str, str]:
        """Copies coordinates, bounds, grid mapping; gives the attributes that refer to them."""
        field, shared = self._field, self._shared_coordinates()
        names = [*field.coordinates, *([field.time] if field.time else []), *shared]
        with open_fields(field.path, decode_cf=False) as source:
            attributes = {str(name): item.attrs for name, item in source.variables.items()}
            mapping = attributes[field.variable].get("grid_mapping", "")
            bounds = {name: _bounds(attributes[name]) for name in names}
            self._times = {field.time, bounds.get(str(field.time))}
            for name in dict.fromkeys([*names, *bounds.values(), *re.findall(r"[^\s:]+", mapping)]):
                if name in attributes:
                    self._copy(name, source.variables[name])
        auxiliary = [name for name in dict.fromkeys(names) if name not in self._dataset.dimensions]
        references = {"coordinates": " ".join(auxiliary), "grid_mapping": mapping}
        return {name: text for name, text in references.items() if text}

    def _shared_coordinates(self) -> list[str]:
        """Auxiliary coordinates, such as a height, of all channels; others do not hold here."""
        found: list[dict[str, xr.Variable]] = []
        for name in self._catalogue.names:
            field = self._catalogue.place(name, self._catalogue.keys[0])[0]
            kept = {field.time_dimension, *field.dimensions}
            with open_fields(field.path, decode_cf=False) as source:
                listed = source[field.variable].attrs.get("coordinates", "").split()
                here = {item: source.variables[item] for item in listed if item in source.variables}
                found.append({item: v.load() for item, v in here.items() if kept >= set(v.dims)})
        return [
            name
            for name, variable in found[0].items()
            if all(name in other and variable.equals(other[name]) for other in found)
        ]

    def _copy(self, name: str, variable: xr.Variable) -> None:
        """Creates a variable as in the input, and fills it unless it differs from step to step."""
        field, attributes, dimensions = self._field, dict(variable.attrs), variable.dims
        text = variable.dtype.kind in "OSUT"
        dtype = str if text and variable.dtype.kind != "S" else variable.dtype.newbyteorder("=")
        standard_names = dict(zip(field.coordinates, ("latitude", "longitude"), strict=True))
        standard_names |= {field.time: "time"} if field.time else {}
        if name in standard_names and not text:
            attributes = coordinate_attributes(standard_names[name]) | attributes
        attributes.pop("actual_range", None)  # of the other file, and rarely in the order of CF
        if self._steps and (field.time_dimension in dimensions or name in self._times):
            self._stepwise.append(name)
            dimensions = dimensions if self._steps in dimensions else (self._steps, *dimensions)
        if name in self._times and len({field.time_unit for field, _ in self._places}) > 1:
            dtype = np.dtype(
                np.float64
            )  # whole hours of one file need not be whole days of another
        for dimension, size in variable.sizes.items():
            if dimension not in self._dataset.dimensions:
                self._dataset.createDimension(dimension, size)
        fill = attributes.pop("_FillValue", None)
        self._dataset.createVariable(name, dtype, dimensions, fill_value=fill).setncatts(attributes)
        if name not in self._stepwise:
            self._dataset[name][...] = variable.values

    def _copy_steps(self) -> None:
        """Copies what differs from step to step, opening each file once."""
        for field, steps in groupby(range(len(self._places)), lambda step: self._places[step][0]):
            names = {
                field.time if name == self._field.time else name: name for name in self._stepwise
            }
            with open_fields(field.path, decode_cf=False) as source:
                variables = {name: source.variables[name].load() for name in names}
            for step in steps:
                for name, variable in variables.items():
                    value = self._value(names[name], variable, field, self._places[step][1])
                    self._dataset[names[name]][step] = value
        if self._steps == "sample":
            self._dataset.createVariable("sample", str, ("sample",)).long_name = "name of sample"
            self._dataset["sample"][:] = np.array(self._catalogue.keys, object)

    def _value(self, name: str, variable: xr.Variable, field: Field, index: int) -> Any:
        """The value of a coordinate at one step; a time in the unit of the first file."""
        at = {field.time_dimension: index} if field.time_dimension in variable.dims else {}
        value = variable.isel(at).values
        if name in self._times and field.time_unit != self._field.time_unit:
            times = cftime.num2date(value, field.time_unit, field.calendar)
            value = np.asarray(cftime.date2num(times, self._field.time_unit, field.calendar))
        return value if value.ndim else value[()]

    def write(
        self, step: int, probability_KHW: NDArray[np.float32], missing_HW: NDArray[np.bool_]
    ) -> None:
        """Writes one sample; where an input is missing, fill values."""
        class_HW = np.where(missing_HW, CLASS_FILL, probability_KHW.argmax(axis=0).astype(np.int8))
        at, turn = (step,) if self._steps else (), self._field.grid.from_canonical
        self._dataset[CLASS_VARIABLE][(*at, ...)] = turn(class_HW)
        for name, probability_HW in zip(self._probabilities, probability_KHW, strict=False):
            valid_HW = np.where(missing_HW, np.float32(np.nan), probability_HW)
            self._dataset[name][(*at, ...)] = turn(valid_HW)


def _bounds(attributes: Mapping[str, Any]) -> str | None:
    return attributes.get("bounds", attributes.get("climatology"))
