"""What a benchmark measures: rows, written as JSON and shown as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from scadl_core.files import write_json


class Row(NamedTuple):
    """One number.

    Attributes:
        case: What was worked on.
        method: By what.
        metric: What was measured.
        value: How much.
        unit: Of what; "1" for a bare number.
    """

    case: str
    method: str
    metric: str
    value: float
    unit: str


def write_rows(rows: list[Row], name: str, folder: Path) -> Path:
    """Writes ``folder/name.json``, whole or not at all.

    Args:
        rows: What was measured.
        name: Of the benchmark.
        folder: Made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    write_json(path, [row._asdict() for row in rows])
    return path


def show_rows(rows: list[Row], metrics: dict[str, str], console: Console) -> None:
    """A table for each case: a method a line, a metric a column.

    Args:
        rows: What was measured.
        metrics: Format of each metric that is shown.
        console: Where to.
    """
    for case in dict.fromkeys(row.case for row in rows):
        here = [row for row in rows if row.case == case]
        columns = [metric for metric in metrics if any(row.metric == metric for row in here)]
        units = {row.metric: row.unit for row in here}
        heads = [f"{m} {units[m]}" if units[m] != "1" else m for m in columns]
        table = Table("method", *heads, title=case, title_justify="left")
        for method in dict.fromkeys(row.method for row in here):
            values = {row.metric: row.value for row in here if row.method == method}
            cells = [format(values[m], metrics[m]) if m in values else "-" for m in columns]
            table.add_row(method, *cells)
        console.print(table)


def markdown(rows: list[Row], metrics: dict[str, str] | None = None) -> str:
    """The same tables as text, each below a heading.

    Args:
        rows: What was measured.
        metrics: Format of each metric that is shown; None: all of them.
    """
    if metrics is None:
        metrics = {row.metric: ".4g" for row in rows}
    parts = []
    for case in dict.fromkeys(row.case for row in rows):
        here = [row for row in rows if row.case == case]
        units = {row.metric: row.unit for row in here}
        columns = [metric for metric in metrics if metric in units]
        heads = ["method", *(f"{m} ({units[m]})" if units[m] != "1" else m for m in columns)]
        lines = [heads, ["---"] * len(heads)]
        for method in dict.fromkeys(row.method for row in here):
            values = {row.metric: row.value for row in here if row.method == method}
            cells = [format(values[m], metrics[m]) if m in values else "-" for m in columns]
            lines.append([method, *cells])
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        parts.append(f"## {case}\n\n{table}\n")
    return "\n".join(parts)


def value_of(rows: list[Row], case: str, method: str, metric: str) -> float | None:
    """One number, or None where it was not measured."""
    found: dict[tuple[str, str, str], Any] = {(r.case, r.method, r.metric): r.value for r in rows}
    return found.get((case, method, metric))
