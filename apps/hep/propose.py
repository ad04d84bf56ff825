"""A configuration for files never seen before: which branches could be inputs, which the label."""

from __future__ import annotations

import re
from typing import Any

from apps.hep.tables import Table, find_files, open_tables
from scadl_core.errors import DataError
from scadl_core.files import Paths
from scadl_core.record import datareport
from scadl_core.record.datareport import DataReport

LIST = re.compile(r"vector|RVec|\[|list", re.IGNORECASE)
NUMBER = re.compile(r"float|double|int|short|long|bool|char|halffloat", re.IGNORECASE)
REAL = re.compile(r"float|double|halffloat", re.IGNORECASE)
LABEL = re.compile(r"(.*[_.])?(labels?|target|flavour_label|is_signal(_new)?|y)$", re.IGNORECASE)
NOT_INPUT = re.compile(r"weight|label|truth|gen|event|run|lumi|aux_|(^|_)(mc|sf)", re.IGNORECASE)
MOST_SHOWN = 150


def propose(
    path: Paths | None = None, tree: Any = None, **_: Any
) -> tuple[DataReport, dict[str, Any]]:
    """Looks into the files of a ``data.path``, and proposes what to set.

    Returns:
        What was found, and values by their name below ``data``.

    Raises:
        DataError: A file cannot be read, or holds no table.
    """
    assert path is not None
    files, notes = find_files(path), list[str]()
    trees = [tree] if isinstance(tree, str) else list(tree or [])
    table = _table(files[0], trees, notes)
    flat = [
        name for name, kind in table.kinds.items() if NUMBER.search(kind) and not LIST.search(kind)
    ]
    lists = [
        name for name, kind in table.kinds.items() if NUMBER.search(kind) and LIST.search(kind)
    ]
    values: dict[str, Any] = {
        "path": str(path) if not isinstance(path, list) else list(map(str, path))
    }
    values |= {"tree": table.tree or None, **_labels(flat, notes), **_inputs(table, flat, lists)}
    values["weight"] = next((it for it in flat if re.search("weight$", it, re.IGNORECASE)), None)
    if not values["inputs"]:
        notes.append("no branch looks like an input: name some in data.inputs")
    facts = {"files": f"{len(files)}, such as {files[0]}"}
    facts["table"] = f"{table.tree or '-'}: {table.num_rows} rows, {len(table.kinds)} branches"
    rows = [
        (name, table.kinds[name], "list a row" if name in lists else "") for name in flat + lists
    ]
    title = f"Branches ({min(len(rows), MOST_SHOWN)} of {len(rows)})"
    shown = datareport.Table(title, ("name", "type", ""), rows[:MOST_SHOWN])
    return DataReport("Particle physics files", facts, [shown], notes), values


def _table(path: Any, trees: list[str], notes: list[str]) -> Table:
    """The table with the most branches, where it is not said which."""
    found = open_tables(path, trees, lambda _: False, strict=False)
    largest = max(found, key=lambda it: len(it.kinds))
    if len(found) > 1:
        names = ", ".join(f"{it.tree} ({it.num_rows} rows)" for it in found[:8])
        notes.append(f"{path} holds {names}: {largest.tree} is taken, as it has the most branches")
    if not largest.kinds:
        raise DataError(f"{path}: {largest.tree} has no branches")
    return largest


def _labels(flat: list[str], notes: list[str]) -> dict[str, Any]:
    one_hot = [name for name in flat if name.startswith("label_")]
    if len(one_hot) > 1:
        return {"target": one_hot, "classes": [it.removeprefix("label_") for it in one_hot]}
    if single := next((name for name in flat if LABEL.match(name)), None):
        notes.append(f"{single} looks like the class: name the classes in data.classes, from 0 on")
        return {"target": single, "classes": ["class_0", "class_1"]}
    notes.append(
        "no branch looks like a label: set data.target to conditions, one a class, such as "
        "data.target='[hadronFlavour != 5, hadronFlavour == 5]' data.classes='[light, b]'"
    )
    return {"target": "???", "classes": "???"}


def _inputs(table: Table, flat: list[str], lists: list[str]) -> dict[str, Any]:
    """Constituents of the collection with the most branches, or else numbers of rows."""
    real = [it for it in flat if REAL.search(table.kinds[it]) and not NOT_INPUT.search(it)]
    by_prefix: dict[str, list[str]] = {}
    for name in lists:
        by_prefix.setdefault(re.split(r"[_.]", name)[0], []).append(name)
    best = max(by_prefix.values(), key=len, default=[])
    inputs = {"flat": real[:40]} if real else {}
    return {"inputs": inputs | ({"particles": best[:40]} if best else {})}
