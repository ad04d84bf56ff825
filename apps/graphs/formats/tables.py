"""Edge lists and node tables: CSV, TSV, Parquet, SNAP's texts, with any ids."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apps.graphs.columns import columns_of
from apps.graphs.csr import Edges
from apps.graphs.raw import DENSE, Ids, Raw
from scadl_core.errors import DataError, nearest

SOURCES = ("source", "src", "from", "src_id", "source_id", "from_id", "fromnodeid", "u", "cited")
TARGETS = ("target", "dst", "to", "dst_id", "target_id", "to_id", "tonodeid", "v", "citing")
IDS = ("id", "node_id", "node", "nodeid", "name", "new_id")
LABELS, SPLIT = ("label", "labels", "class", "target", "y"), "split"
WEIGHTS = ("weight", "weights", "w")
COMMENTS = "#%"
CHUNK_VALUES = 1 << 23  # of a piece of a table


class Columns(NamedTuple):
    """Names of columns that the person chose; None: found by usual names.

    Attributes:
        source: Of an edge.
        target: Of an edge.
        id: Of a node.
    """

    source: str | None = None
    target: str | None = None
    id: str | None = None


class Table:
    """A table in a text or Parquet file, read in chunks.

    Args:
        path: The file; texts may have comments, no header, and any separator, and may be gzipped.

    Raises:
        DataError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_parquet = path.suffix.lower() in (".parquet", ".pq")
        try:
            if self.is_parquet:
                import pyarrow.parquet

                self.names = list(pyarrow.parquet.ParquetFile(path).schema_arrow.names)
                self.has_header = True
            else:
                self._look()
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None

    def _look(self) -> None:
        """Finds separator and header in the first lines."""
        opened = gzip.open if self.path.suffix == ".gz" else open
        lines: list[str] = []
        self.skipped = 0
        with opened(self.path, "rt", encoding="utf-8-sig") as file:
            for line in file:
                if line.strip() and line.lstrip()[0] not in COMMENTS:
                    lines.append(line.rstrip("\r\n"))
                elif not lines:
                    self.skipped += 1
                if len(lines) == 20:
                    break
        if not lines:
            raise DataError(f"{self.path}: has no line with values")
        self.separator = next((it for it in "\t,;|" if it in lines[0]), r"\s+")
        rows = [re.split(self.separator, line.strip()) for line in lines]
        usual = {*SOURCES, *TARGETS, *IDS, *LABELS}
        self.first = words = [it.strip().strip('"') for it in rows[0]]
        numbers = [any(map(_is_number, row)) for row in rows[:2]]
        self.has_header = bool(usual & {it.lower() for it in words}) or numbers == [False, True]
        self.names = words if self.has_header else [str(it) for it in range(len(words))]
        if len(set(self.names)) < len(self.names):  # by place, then
            self.names = [f"{it}_{n}" if n else it for n, it in _numbered(self.names)]

    def chunks(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Some columns, a few million values at a time; a DataError where a row is broken."""
        if self.is_parquet:
            yield from (batch.to_pandas() for batch in self._batches(columns))
            return
        rows = max(1, CHUNK_VALUES // max(1, len(columns)))
        options = {"sep": self.separator, "header": None, "names": self.names}
        options |= {"skiprows": self.skipped + self.has_header, "comment": COMMENTS[0]}
        try:
            with pd.read_csv(self.path, chunksize=rows, usecols=list(columns), **options) as reader:
                yield from reader
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{self.path}: {' '.join(str(error).split())}") from None

    def arrays(self, columns: Sequence[str]) -> Iterator[tuple[NDArray[Any], ...]]:
        """The same as one array a column: without a table of pandas where there need not be one."""
        if not self.is_parquet:
            for chunk in self.chunks(columns):
                yield tuple(chunk[it].to_numpy() for it in columns)
            return
        for batch in self._batches(columns):
            yield tuple(batch.column(it).to_pandas().to_numpy() for it in columns)

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow.parquet

        rows = max(1, CHUNK_VALUES // max(1, len(columns)))
        try:
            file = pyarrow.parquet.ParquetFile(self.path)
            yield from file.iter_batches(rows, columns=list(columns))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{self.path}: {' '.join(str(error).split())}") from None

    def find(self, usual: Sequence[str], given: str | None, what: str) -> str | None:
        """The column of a chosen or a usual name; a DataError where the chosen one is not there."""
        if given is not None and given not in self.names:
            raise DataError(
                f"{self.path}: has no column {given} ({what}){nearest(given, self.names)}"
            )
        by_name = {name.lower(): name for name in reversed(self.names)}
        return given or next((by_name[it] for it in usual if it in by_name), None)

    def ends(self, columns: Columns) -> tuple[str, str] | None:
        """The columns of an edge's ends; None if this is no list of edges."""
        source = self.find(SOURCES, columns.source, "the source of an edge")
        target = self.find(TARGETS, columns.target, "the target of an edge")
        if source and target:
            return source, target
        return (self.names[0], self.names[1]) if self._looks_like_edges() else None

    def _looks_like_edges(self) -> bool:
        if self.has_header:  # without usual names, they must be two of one kind: node_id node_id
            return len(self.names) == 2 and self.names[0] == self.names[1].rpartition("_")[0]
        return len(self.names) >= 2 and all(map(_is_number, self.first[2:]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbered(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    for place, name in enumerate(names):
        yield names[:place].count(name), name


def edge_stream(table: Table) -> Iterator[Edges]:
    """The edges of a list whose ids are the numbers 0, 1, .. of the nodes, in chunks."""
    ends = table.ends(Columns())
    assert ends, "a list of edges"
    for chunk in table.arrays(ends):
        source_E, target_E = (np.ascontiguousarray(it, np.int64) for it in chunk)
        yield source_E, target_E, None


def read_tables(
    edges: Sequence[Table], nodes: Table | None, columns: Columns, weight: str | None, unknown: str,
    folder: Path | None = None,
) -> Raw:  # fmt: skip
    """A graph from lists of edges, and a table of nodes if there is one.

    Without it, the nodes are those that edges have, in the order of their ids.

    Args:
        edges: Their files.
        nodes: The node table.
        columns: Chosen columns.
        weight: The column of edge weights; ``auto``: by its name, or the third of a list without
            names; None: none.
        unknown: See :meth:`apps.graphs.raw.Ids.edges`.
        folder: Where columns of the node table lie as files; None: in memory.
    """
    files = [it.path for it in (*edges, nodes) if it]
    ends = {table.path: table.ends(columns) for table in edges}
    weights = {table.path: _weight(table, weight) for table in edges}
    if None in weights.values():  # all or none
        weights = dict.fromkeys(weights)

    def pairs() -> Iterator[tuple[Path, Any, Any, Any]]:
        for table in edges:
            found, name = ends[table.path], weights[table.path]
            assert found, "chosen among lists of edges"
            for source, target, *weight_E in table.arrays([*found, name] if name else found):
                yield table.path, source, target, weight_E[0] if weight_E else None

    id_column = nodes.find(IDS, columns.id, "the id of a node") if nodes else None
    if nodes:
        of_nodes = columns_of(lambda: nodes.chunks(nodes.names), folder)
        rows = len(next(iter(of_nodes.values())))
        ids = Ids(of_nodes.pop(id_column) if id_column else np.arange(rows), nodes.path)
    else:
        of_nodes = {}
        ids = Ids(_ids_of(pairs(), files[0]), files[0])

    def stream() -> Iterator[Edges]:
        for path, source, target, weight_E in pairs():
            yield ids.edges(source, target, weight_E, path, unknown)

    return Raw("tables", files, ids, stream, columns=of_nodes)


def _ids_of(pairs: Iterator[Any], where: Path) -> NDArray[Any]:
    parts = []
    for _, source, target, _ in pairs:
        if pd.isna(source).any() or pd.isna(target).any():
            raise DataError(f"{where}: an edge has no end; mend the line, or name its columns")
        parts.append(_distinct(_one_kind([source, target])))
    return _distinct(_one_kind(parts))


def _distinct(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind not in "iu" or not len(values):
        return np.unique(values)
    if values.min() < 0 or values.max() >= DENSE * len(values):
        return np.unique(values)
    is_there = np.zeros(int(values.max()) + 1, bool)  # much faster than to sort them
    is_there[values] = True
    return np.flatnonzero(is_there)


def _one_kind(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    kinds = {it.dtype.kind for it in arrays}
    if kinds <= set("iu"):
        return np.concatenate(arrays)
    return np.concatenate([np.asarray(it).astype(object).astype(str) for it in arrays])


def _weight(table: Table, wanted: str | None) -> str | None:
    if wanted != "auto":
        return table.find((), wanted, "data.weight")
    if not table.has_header:
        return table.names[2] if len(table.names) == 3 else None
    return table.find(WEIGHTS, None, "")
