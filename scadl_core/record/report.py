"""The report of a run: one HTML page that needs no other file and no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from scadl_core.files import write_text
from scadl_core.record.datareport import DataReport, Table

_FILES_SHOWN = 20


def write_report(
    page: Path,
    app: str,
    config: str,
    metrics: dict[str, float],
    data: DataReport,
    figures: dict[Path, str],
    provenance: dict[str, Any],
    tables: Sequence[Table] = (),
) -> None:
    """Writes the page of a run.

    Args:
        page: Where to, in the run folder.
        app: The pipeline.
        config: The resolved configuration, as YAML.
        metrics: What goes into ``metrics.json``.
        data: What was found in the files.
        figures: Captions of the PNG files to put into the page, in order, and of others, which it
            links.
        provenance: What goes into ``provenance.json``.
        tables: What else there is to tell of the training.
    """
    loader = PackageLoader("scadl_core.record", ".")
    template = Environment(loader=loader, autoescape=True).get_template("report.html.j2")
    shown = dict(list(provenance["data"].items())[:_FILES_SHOWN])
    if len(shown) < len(provenance["data"]):
        shown["..."] = f"{len(provenance['data']) - len(shown)} more in provenance.json"
    text = template.render(
        title=f"ScaDL {app}: {page.parent.name}",
        app=app,
        folder=page.parent,
        cards=cards(metrics),
        scores=scorecard(metrics),
        figures=[
            {"data": base64.b64encode(path.read_bytes()).decode(), "caption": caption}
            for path, caption in figures.items()
            if path.suffix == ".png"
        ],
        files={
            path.relative_to(page.parent): caption
            for path, caption in figures.items()
            if path.suffix != ".png"
        },
        data=data,
        tables=tables,
        config=config,
        provenance=provenance,
        provenance_text=json.dumps({**provenance, "data": shown}, indent=2, default=str),
    )
    write_text(page, text)


def scorecard(metrics: dict[str, float]) -> list[tuple[str, float, float | None]]:
    """The test scores, each beside that of the simple rule where it has one."""
    names = [name.removeprefix("test/") for name in metrics if name.startswith("test/")]
    return [(name, metrics[f"test/{name}"], metrics.get(f"baseline/{name}")) for name in names]


def cards(metrics: dict[str, float]) -> list[tuple[str, str]]:
    """What the run took, in a person's units."""
    return [
        ("training time", readable_seconds(metrics["train/seconds"])),
        ("epochs", f"{metrics['train/epochs']:.0f}"),
        ("peak memory", readable_bytes(metrics["memory/peak_bytes"])),
        ("activations kept a step", readable_bytes(metrics["memory/saved_bytes"])),
        ("bytes sent", readable_bytes(metrics["comm/sent_bytes"])),
    ]


def readable_bytes(count: float) -> str:
    """For example ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def readable_seconds(seconds: float) -> str:
    """For example ``2 min 05 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
