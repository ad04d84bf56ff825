"""The data report: what is in a user's files, and what a reader should know before trusting it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from apps.hep.survey import SPLITS
from scadl_core.record.datareport import DataReport, Table

if TYPE_CHECKING:
    from apps.hep.data import HEPData

MOST_FILES = 40  # that are listed one by one
SENTINEL_SHARE = 0.01


def report(data: HEPData) -> DataReport:
    """Facts, tables of inputs, classes and files, and warnings."""
    of, recipe = data.survey, data.recipe
    rows_S = of["rows_CS"].sum(0)
    counts = ", ".join(f"{n:.0f} {name}" for name, n in zip(SPLITS, rows_S, strict=True))
    total, cut_away, unlabelled = of["dropped_T3"].sum(0)
    facts = {
        "files": f"{len(data.files())}, from {data.files()[0]} to {data.files()[-1]}",
        "rows": f"{total:.0f}" + f", objects of {recipe.rows}" * bool(recipe.rows),
        "split": f"{counts} (by {data.split['by']})",
        "left out": f"{cut_away:.0f} not selected, {unlabelled:.0f} without a label",
    }
    if differing := "; ".join(_differences(data)):
        facts["differs across files"] = differing
    tables = [_inputs(data), _classes(data), _files(data)]
    return DataReport("Particle physics data", facts, tables, list(_warnings(data)))


def _names(data: HEPData) -> list[str]:
    return [*data.recipe.particles, *data.recipe.flat]


def _inputs(data: HEPData) -> Table:
    of = data.survey
    columns = ("mean", "std", "min", "max")
    numbers = [[f"{it:.4g}" for it in of[f"{name}_F"]] for name in columns]
    standards = [it for kind in data.standards().values() for it in kind]
    scaled = [f"(x - {c:.4g}) * {s:.4g}" for c, s, *_ in standards]
    missing = [f"{it:.2%}" for it in of["missing_F"] / (of["missing_F"] + of["count_F"])]
    rows = list(zip(_names(data), *numbers, missing, scaled, strict=True))
    return Table("Inputs (train)", ("name", *columns, "missing", "standardised"), rows)


def _classes(data: HEPData) -> Table:
    of = data.survey["weights_SK4"]
    rows = [
        (name, *(f"{n:.0f}" for n in of[:, k, 0]), f"{of[:, k, 1].sum():.5g}",
         f"{of[:, k, 3].sum() / max(of[:, k, 0].sum(), 1):.2%}")
        for k, name in enumerate(data.recipe.classes)
    ]  # fmt: skip
    return Table("Classes", ("class", *SPLITS, "sum of weights", "negative weights"), rows)


def _files(data: HEPData) -> Table:
    of, above = data.survey, os.path.commonpath([file.parent for file in data.files()])
    rows = [
        (os.path.relpath(table.place, above), *(f"{n:.0f}" for n in (*dropped, *counts)))
        for table, dropped, counts in zip(
            data.tables[:MOST_FILES], of["dropped_T3"], of["classes_TK"], strict=False
        )
    ]
    columns = ("file", "rows", "not selected", "unlabelled", *data.recipe.classes)
    return Table(f"Files ({len(data.tables)})", columns, rows)


def _differences(data: HEPData) -> Iterator[str]:
    """Branches that only some files have, and types that differ; all of it is taken care of."""
    tables = data.tables
    common = set.intersection(*(set(table.kinds) for table in tables))
    extra = {table.path.name: len(table.kinds) - len(common) for table in tables}
    if any(extra.values()):
        shown = ", ".join(
            f"{count} only in {name}" for name, count in list(extra.items())[:4] if count
        )
        yield f"branches ({shown}, and maybe others; {len(common)} in all)"
    for name in sorted(data.recipe.needs(data.recipe._keys)):
        kinds: dict[str, str] = {}
        for table in tables:
            if place := table.find(name):
                kinds.setdefault(table.kinds[place[0]], table.path.name)
        if len(kinds) > 1:
            yield f"{name}: " + ", ".join(f"{kind} in {file}" for kind, file in kinds.items())


def _warnings(data: HEPData) -> Iterator[str]:
    of, recipe = data.survey, data.recipe
    for table, (rows, *_), counts in zip(
        data.tables, of["dropped_T3"], of["classes_TK"], strict=True
    ):
        if not rows:
            yield f"{table.place} has no rows"
        elif not counts.sum():
            yield f"{table.place}: no row is selected and has a label"
        if recipe.weight and recipe.lacking(table, [recipe.weight]):
            yield f"{table.place} has no {recipe.weight}, as in collision data: its rows weigh 1"
    for name, count, missing, low, high, at_low in zip(
        _names(data),
        *(of[it] for it in ("count_F", "missing_F", "min_F", "max_F", "at_lowest_F")),
        strict=True,
    ):
        if low == high:
            yield f"{name} is {low:g} everywhere: nothing can be learnt from it"
        elif low < 0 and low == np.rint(low) != -high and at_low > SENTINEL_SHARE * count:
            yield (f"{name} is {low:g} in {at_low / count:.1%}: if that means missing, set "
                   f"data.sentinels=[{low:g}]")  # fmt: skip
        if missing:
            share = missing / (count + missing)
            yield f"{name} is missing (NaN) in {share:.2%}: the centre is taken"
    for name, rows_S in zip(recipe.classes, of["weights_SK4"][:, :, 0].T, strict=True):
        if empty := [split for split, rows in zip(SPLITS, rows_S, strict=True) if not rows]:
            yield f"class {name} has no row in {', '.join(empty)}"
    for name, total in zip(recipe.classes, of["weights_SK4"][:, :, 1].sum(0), strict=True):
        if total < 0:
            yield f"the weights of class {name} add up to {total:.4g}: more negative than positive"
