"""A configuration for graph files never seen before."""

from __future__ import annotations

from typing import Any

import pandas as pd

from apps.graphs.files import read
from scadl_core.errors import DataError
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport, Table

MOST_CLASSES = 50


def propose(path: Paths, **_: Any) -> tuple[DataReport, dict[str, Any]]:
    """Looks into the files of a ``data.path``, and proposes what to set.

    Returns:
        What was found, and values by their name below ``data``.

    Raises:
        DataError: The files cannot be read as one graph.
    """
    raw = read(path, unknown="drop")
    if not len(raw.ids):
        raise DataError(f"{raw.files[0]}: has no node")
    columns = {name: pd.Series(values) for name, values in raw.columns.items()}
    rows = [
        (name, str(it.dtype), str(it.nunique()), str(int(it.isna().sum())), str(it.iloc[0]))
        for name, it in columns.items()
    ]
    table = Table("Columns", ("name", "type", "different", "missing", "such as"), rows)
    texts = [it for it in columns if columns[it].dtype.kind not in "iufb"]
    labels = [it for it in texts if 2 <= columns[it].nunique() <= MOST_CLASSES]
    missing = any(it.isna().any() for name, it in columns.items() if name not in texts)
    values: dict[str, Any] = {
        "inputs": [],
        "target": "auto" if raw.label is not None or not labels else labels[0],
        "unknown": "drop",
        "missing": "mean" if missing else "error",
    }
    facts = {"files": f"{len(raw.files)} ({raw.layout})", "nodes": str(len(raw.ids))}
    return DataReport("Graph files", facts, [table] * bool(rows), raw.notes), values
