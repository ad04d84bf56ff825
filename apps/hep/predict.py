"""Predictions as ROOT or Parquet: a score a class beside chosen branches, for every row of every
input, in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uproot

from apps.hep.recipe import Recipe
from apps.hep.rows import Rows
from apps.hep.samples import Padded
from apps.hep.tables import Table, cut, find_files, open_tables
from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError, nearest
from scadl_core.files import Paths, written_aside

if TYPE_CHECKING:
    from apps.hep.task import Classification

CHUNK_ROWS = 8192
FORMATS = {"ttree": ".root", "rntuple": ".root", "parquet": ".parquet"}
TREE = "scores"
Arrays = dict[str, Any]


def predict_files(
    task: Classification,
    inputs: Paths,
    output: Path,
    provenance: Mapping[str, Any],
    keep: Sequence[str] = (),
    format: str = "ttree",
    tree: str | Sequence[str] | None = None,
    world: World | None = None,
) -> Path:
    """Applies a trained task to every row of some files, whether a selection would take it or not.

    Written are ``score_<class>``, ``input`` (number of the file), ``row`` (of the file; events of
    which objects are the rows), and what is kept.

    Args:
        task: What predicts; it knows its inputs and classes.
        inputs: A file, a folder, a glob pattern, or several of them.
        output: The file to write, whole or not at all; or a folder to name one in after an input.
        provenance: Of the run; goes into the file.
        keep: Branches or formulas to write beside the scores.
        format: ``ttree``, ``rntuple`` or ``parquet``.
        tree: The table in each file, see :class:`apps.hep.data.HEPData`.
        world: Processes that share the work; the first writes.

    Returns:
        The file written.

    Raises:
        ConfigError: An unknown format.
        DataError: An input is missing, broken, or lacks a branch; the output would overwrite one.
    """
    if format not in FORMATS:
        raise ConfigError(f"predict.format={format}{nearest(format, FORMATS)}")
    world, recipe = world or World(), Recipe(**task.facts["recipe"])
    files, trees = find_files(inputs, key="input"), [tree] if isinstance(tree, str) else tree or []

    def is_wanted(table: Table) -> bool:
        return not recipe.lacking(table, recipe.inputs)

    tables = [table for file in files for table in open_tables(file, trees, is_wanted)]
    for table in tables:
        recipe.branches(table, keep)
    output = _name_output(Path(output).expanduser(), files, FORMATS[format])
    parts = [
        (table, *part)
        for table in tables
        for part in cut(table.bounds, table.num_rows, CHUNK_ROWS) or [(0, 0)]
    ]

    def predict(part: tuple[Table, int, int]) -> Arrays:
        return _columns(task, recipe, keep, files.index(part[0].path), *part)

    written = _in_order(parts, predict, world)
    if world.is_first:
        about = {"scadl": json.dumps(provenance, default=str)}
        with written_aside(output) as aside:
            rows = 0
            with _writer(aside, format, about) as write:
                for arrays in written:
                    write(arrays)
                    rows += len(arrays["row"])
            found = sum(it.num_rows for it in open_tables(aside, [], lambda _: True))
            if found != rows:
                raise RuntimeError(f"{output}: {rows} rows were written, {found} are there")
    else:
        for _ in written:
            pass
    world.barrier()
    return output


def _in_order(parts: list[Any], function: Any, world: World) -> Iterator[Arrays]:
    """What the function gives for all parts, each computed by one rank; on the first, in order."""
    for start in range(0, len(parts), world.size):
        mine = start + world.rank
        found = function(parts[mine]) if mine < len(parts) else None
        yield from (arrays for arrays in world.gather(found) if arrays is not None)


def _columns(
    task: Classification, recipe: Recipe, keep: Sequence[str], number: int, *part: Any
) -> Arrays:
    rows = Rows(recipe, *part, keep)
    columns = rows.columns()
    padded = Padded(recipe, rows.count)
    padded.put(np.arange(rows.count), columns, np.arange(rows.count))
    probability_RK = task.probabilities(padded.batch())
    names = [f"score_{_word(name)}" for name in task.facts["classes"]]
    arrays: Arrays = dict(zip(names, np.ascontiguousarray(probability_RK.T), strict=True))
    arrays |= {"input": np.full(rows.count, number, np.int32), "row": columns.source_R}
    return arrays | {_word(text): rows.value(text) for text in keep}


def _word(text: str) -> str:
    """A name that any reader takes."""
    return re.sub(r"\W+", "_", text).strip("_")


def _name_output(output: Path, files: Sequence[Path], suffix: str) -> Path:
    """The file to write, in a folder that is there."""
    if output.is_dir():
        output = output / f"{files[0].stem}_scores{suffix}"
    if output.resolve() in {file.resolve() for file in files}:
        raise DataError(f"output={output} is an input as well; choose another name")
    if output.suffix.lower() != suffix:
        output = output.with_name(output.name + suffix)
    output.parent.mkdir(parents=True, exist_ok=True)
    return output


@contextmanager
def _writer(path: Path, kind: str, about: dict[str, str]) -> Iterator[Any]:
    """Gives a function that writes arrays behind those before."""
    writer: Any = None

    def parquet(arrays: Arrays) -> None:
        nonlocal writer
        columns = {
            name: ak.to_arrow(ak.Array(it), extensionarray=False) for name, it in arrays.items()
        }
        found = pa.table(columns).replace_schema_metadata(about)
        writer = writer or pq.ParquetWriter(path, found.schema)
        writer.write_table(found)

    def root(arrays: Arrays) -> None:
        nonlocal writer
        arrays = {name: _plain(it) for name, it in arrays.items()}
        if writer is None and kind == "rntuple":
            writer = file.mkrntuple(TREE, arrays)
        elif writer is None:
            writer = file.mktree(TREE, {name: _type(it) for name, it in arrays.items()})
            writer.extend(arrays)
        elif len(arrays["row"]):
            writer.extend(arrays)

    if kind == "parquet":
        yield parquet
        writer.close()
    else:
        with uproot.recreate(path) as file:
            file["about"] = about["scadl"]
            yield root


def _plain(values: Any) -> Any:
    return (
        ak.to_packed(values)
        if isinstance(values, ak.Array) and values.ndim > 1
        else np.asarray(values)
    )


def _type(values: Any) -> Any:
    return values.type.content if isinstance(values, ak.Array) else values.dtype
