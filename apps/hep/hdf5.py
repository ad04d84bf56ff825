"""HDF5 files as they are in use: records of jets and padded records of their tracks (flavour
tagging in ATLAS), plain arrays, and the tables that pandas writes (top tagging).

A field ``pt`` of records ``jets`` is the branch ``jets.pt``. Records of two dimensions are lists of
those that are ``valid``. In a table of pandas, numbered columns ``E_0``, ``E_1``, ... are one list
``E`` a row, which ends before the entries that are zero in all lists of that length.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import h5py
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from apps.hep.tables import Table

VALID = "valid"
CLUSTER_ROWS = 8192
NUMBERED = re.compile(r"(.+?)_?(\d+)")


@dataclass(frozen=True)
class _Place:
    """Where a branch is: a dataset, a field of its records, columns of two dimensions."""

    dataset: str
    field: str | None = None
    columns: tuple[int, ...] = ()
    is_list: bool = False


def tables(path: Path) -> Iterator[tuple[str, Any]]:
    """The rows of the longest dataset, and all that is as long."""
    with h5py.File(path, "r") as file:
        places = _places(file)
        lengths = {name: len(file[it.dataset]) for name, it in places.items()}
        rows = max(lengths.values(), default=0)
        kinds = {name: _kind(file[it.dataset], it) for name, it in places.items()
                 if lengths[name] == rows}  # fmt: skip
    if kinds:
        yield "", lambda: (rows, [*range(0, rows, CLUSTER_ROWS), rows], kinds)


def read(table: Table, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
    """Arrays of some rows: of NumPy where there is a value a row, of awkward where a list."""
    with h5py.File(table.path, "r") as file:
        places = _places(file)
        loaded: dict[str, NDArray] = {}
        for name in names:
            dataset = places[name].dataset
            if dataset not in loaded:
                loaded[dataset] = file[dataset][start:stop]
        padded = [it for it in places.values() if it.is_list and it.dataset in loaded]
        there = {len(it.columns): _there(loaded, padded, len(it.columns)) for it in padded}
    return {name: _values(loaded, places[name], there) for name in names}


def _values(loaded: dict[str, NDArray], place: _Place, there: dict[int, NDArray]) -> Any:
    values = _field(loaded, place)
    if place.is_list:
        return _listed(values, there[len(place.columns)])
    if place.columns:
        return values[:, 0]
    if values.ndim < 2:
        return values
    records = loaded[place.dataset]
    is_valid = records.dtype.names is not None and VALID in records.dtype.names
    return _listed(values, records[VALID] if is_valid else np.ones(values.shape, bool))


def _field(loaded: dict[str, NDArray], place: _Place) -> NDArray:
    values = loaded[place.dataset]
    values = values if place.field is None else values[place.field]
    return values[:, list(place.columns)] if place.columns else values


def _listed(values: NDArray, there: NDArray) -> ak.Array:
    there = there.astype(bool)
    return ak.unflatten(values[there], there.sum(1))


def _there(loaded: dict[str, NDArray], places: list[_Place], length: int) -> NDArray[np.bool_]:
    """Up to the last entry that is not zero in all lists of a length."""
    same = [_field(loaded, it) != 0 for it in places if len(it.columns) == length]
    filled = np.logical_or.reduce(same)
    return np.logical_or.accumulate(filled[:, ::-1], axis=1)[:, ::-1]


def _kind(dataset: h5py.Dataset, place: _Place) -> str:
    dtype = dataset.dtype if place.field is None else dataset.dtype[place.field]
    length = len(place.columns) if place.is_list else dataset.shape[1] if dataset.ndim > 1 else 0
    return str(dtype.base) + f"[{length}]" * (length > 0 and (place.is_list or not place.columns))


def _places(file: h5py.File) -> dict[str, _Place]:
    """All branches of a file."""
    found: dict[str, _Place] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset) or item.ndim not in (1, 2):
            return
        if any(part.startswith("_i_") for part in name.split("/")):  # an index of PyTables
            return
        blocks = list(_blocks(file, name, item))
        for field, columns in blocks:
            found.update(_pandas(name, field, columns))
        if blocks or re.search(r"(^|/)(axis\d|block\d+_items)$", name):
            return
        dotted = name.replace("/", ".")
        for field in item.dtype.names or [None]:
            if (item.dtype if field is None else item.dtype[field]).kind in "biuf":
                found[dotted if field is None else f"{dotted}.{field}"] = _Place(name, field)

    file.visititems(visit)
    return found


def _blocks(
    file: h5py.File, name: str, item: h5py.Dataset
) -> Iterator[tuple[str | None, list[str]]]:
    """The blocks of columns of a dataset that pandas wrote, each with their names."""
    for field in item.dtype.names or []:
        if re.fullmatch(r"values_block_\d+", field) and f"{field}_kind" in item.attrs:
            yield field, _texts(item.attrs[f"{field}_kind"])
    if re.search(r"(^|/)block\d+_values$", name):
        yield None, [it.decode() for it in file[name.replace("_values", "_items")][:]]


def _texts(pickled: Any) -> list[str]:
    """The texts in a pickled list of them, read without running the pickle."""
    data = bytes(pickled) if not isinstance(pickled, str) else pickled.encode("latin-1")
    return [value for _, value, _ in pickletools.genops(data) if isinstance(value, str)]


def _pandas(name: str, field: str | None, columns: list[str]) -> dict[str, _Place]:
    """Branches of a block: a column each, and a list for each series of numbered columns."""
    places = {column: _Place(name, field, (n,)) for n, column in enumerate(columns)}
    series: dict[str, dict[int, int]] = {}
    for n, column in enumerate(columns):
        if numbered := NUMBERED.fullmatch(column):
            series.setdefault(numbered[1], {})[int(numbered[2])] = n
    for stem, of in series.items():
        if len(of) > 1 and sorted(of) == list(range(len(of))):
            places = {
                it: place for it, place in places.items() if place.columns[0] not in of.values()
            }
            places[stem] = _Place(name, field, tuple(of[i] for i in range(len(of))), True)
    return places
