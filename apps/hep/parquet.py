"""Parquet files: flat columns and lists, through pyarrow; a null is NaN."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from apps.hep.tables import Table


def tables(path: Path) -> Iterator[tuple[str, Any]]:
    """The one table of a file, cut at its row groups."""
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
        kinds = {field.name: str(field.type) for field in file.schema_arrow}
    yield "", lambda: (sum(sizes), list(accumulate(sizes, initial=0)), kinds)


def read(table: Table, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
    """Awkward arrays of some rows."""
    groups = [
        number
        for number, (first, last) in enumerate(pairwise(table.bounds))
        if first < stop and last > start
    ]
    first = table.bounds[groups[0]] if groups else 0
    found = _groups(table.path, table.path.stat().st_mtime_ns, os.getpid(), *groups, names=names)
    rows = found.take(np.arange(start - first, stop - first))  # awkward forgets a slice's nulls
    return {name: _filled(ak.from_arrow(rows[name])) for name in names}


def _groups(path: Path, *key: Any, names: Sequence[str]) -> pa.Table:
    return _row_groups(path, *key, names=tuple(names))


@lru_cache(1)  # a large group is read in several parts
def _row_groups(path: Path, stamp: int, process: int, *groups: int, names: Sequence[str]) -> Any:
    with pq.ParquetFile(path) as file:
        return file.read_row_groups(list(groups), columns=list(names), use_threads=False)


def _filled(values: ak.Array) -> ak.Array:
    if values.ndim > 1:
        values = ak.fill_none(values, [], axis=0)  # no list at all
    some = ak.any(ak.is_none(values, axis=-1), axis=None)
    return ak.fill_none(values, np.nan if some else 0, axis=-1)  # 0: event numbers stay whole
