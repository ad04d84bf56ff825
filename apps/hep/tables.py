"""Tables in files: which there are, what they hold, how rows of them are read.

A format is a module with ``tables(path)`` and ``read(table, names, start, stop)``: ROOT, HDF5 and
Parquet. A table is described once; what reads it is opened anew in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from apps.hep import hdf5, parquet, root
from scadl_core import files
from scadl_core.errors import DataError, nearest

FORMATS: Mapping[str, ModuleType] = {
    **dict.fromkeys((".h5", ".hdf5"), hdf5),
    **dict.fromkeys((".parquet", ".pq"), parquet),
    ".root": root,
}
find_files = partial(files.find_files, suffixes=tuple(FORMATS))


@dataclass(frozen=True)
class Table:
    """A table in a file.

    Attributes:
        path: The file.
        tree: Its name there; empty in formats that have one a file.
        num_rows: How many rows (events or jets) it has.
        bounds: Rows at which it can be cut cheaply, with 0 and ``num_rows``.
        kinds: The type of each branch, in the words of the format.
    """

    path: Path
    tree: str
    num_rows: int
    bounds: Sequence[int]
    kinds: Mapping[str, str] = field(repr=False)

    @property
    def place(self) -> str:
        """For messages: the file, and the tree where there is one."""
        return f"{self.path}: {self.tree}" if self.tree else str(self.path)

    @cached_property
    def _short(self) -> dict[str, str]:
        """Branches by the last part of their path, where that is unique."""
        short: dict[str, list[str]] = {}
        for name in self.kinds:  # an RNTuple has a colon where a TTree may have a dot
            short.setdefault(name.rpartition("/")[2].replace(":", "."), []).append(name)
        return {last: names[0] for last, names in short.items() if len(names) == 1}

    def find(self, name: str) -> tuple[str, list[str]] | None:
        """The branch of a name, and the members to take of its objects (``jetp4.fP.fX``)."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            known = ".".join(parts[:end])
            stored = known if known in self.kinds else self._short.get(known)
            if stored is not None:
                return stored, parts[end:]
        return None

    def require(self, names: Iterable[str], key: str) -> None:
        """A DataError if it lacks a branch."""
        for name in names:
            if self.find(name) is None:
                raise DataError(f"{self.place} has no branch {name!r}{nearest(name, self._short)}"
                                f" ({key})")  # fmt: skip

    def read(self, names: Iterable[str], start: int, stop: int) -> dict[str, Any]:
        """The values of branches, in some rows: arrays of NumPy or awkward; a DataError if they
        cannot be read.
        """
        found = {name: place for name in names if (place := self.find(name)) is not None}
        stored = list(dict.fromkeys(place[0] for place in found.values()))
        with _reading(self.place):
            values = FORMATS[self.path.suffix.lower()].read(self, stored, start, stop)
        return {name: _member(values[it], path) for name, (it, path) in found.items()}


def _member(values: Any, path: list[str]) -> Any:
    for name in path:
        if name not in getattr(values, "fields", []):
            raise DataError(f"{name!r} is no member of the objects there")
        values = values[name]
    return values


@contextmanager
def naming(place: str) -> Iterator[None]:
    """A DataError names a file."""
    try:
        yield
    except DataError as error:
        raise error if str(error).startswith(place) else DataError(f"{place}: {error}") from None


@contextmanager
def _reading(place: str) -> Iterator[None]:
    """What a broken file makes a reader raise becomes a DataError that names it."""
    with files.reading(place), naming(place):
        yield


def open_tables(
    path: Path, trees: Sequence[str], wanted: Callable[[Table], bool], strict: bool = True
) -> list[Table]:
    """The tables of a file that are meant.

    Args:
        path: The file.
        trees: Their names, with a cycle (``Events;1``) for another than the latest; none given: the
            only one, or the only one of which ``wanted`` is true.
        wanted: Whether a table has what is needed.
        strict: Whether several are a mistake.

    Raises:
        DataError: The file cannot be read or has no such table, or it is not clear which is meant.
    """
    with _reading(str(path)):
        known = dict(FORMATS[path.suffix.lower()].tables(path))
        latest = [name for name in known if ";" not in name]
        if not known:
            raise DataError(f"{path}: holds no table (a TTree or an RNTuple)")
        chosen = [name for name in trees if name in known] if trees else latest
        if not chosen:
            raise DataError(f"{path}: has no tree {trees[0]!r}{nearest(trees[0], latest)}")
        tables = [Table(path, name, *known[name]()) for name in chosen]
    if trees:
        return tables
    if len(tables) > 1:
        tables = [table for table in tables if wanted(table)] or tables
    if len(tables) > 1 and strict:
        names = ", ".join(f"{it.tree} ({it.num_rows} rows)" for it in tables[:8])
        raise DataError(f"{path}: holds several trees: {names}; choose with data.tree=NAME")
    return tables


def cut(bounds: Sequence[int], rows: int, most: int) -> list[tuple[int, int]]:
    """Cuts rows into chunks, at given bounds where these are close enough."""
    cuts, start = [], 0
    ends = [*bounds[1:-1], rows]
    for end, after in zip(ends, [*ends[1:], None], strict=True):
        while end - start > 2 * most:
            cuts.append((start, start + most))
            start += most
        if end > start and (after is None or after - start > most):
            cuts.append((start, end))
            start = end
    return cuts
