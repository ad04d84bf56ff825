"""The report of a run: one HTML page that needs no other file and no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader

from scadl_core.files import write_text
from scadl_core.record.datareport import DataReport, Table

_FILES_SHOWN = 20
_PARTS = ("Summary", "Scorecard", "Figures", "Data", "Accounts", "How to use and repeat it",
          "Configuration", "Provenance")  # fmt: skip
_ERRORS = ("loss", "ece", "mae", "mse", "rmse", "sam", "ergas", "mass_js")  # of which less is more
_ACCOUNTS = ("train/", "memory/", "comm/", "solver/")


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
    shown = dict(list(provenance["data"].items())[:_FILES_SHOWN])
    if len(shown) < len(provenance["data"]):
        shown["..."] = f"{len(provenance['data']) - len(shown)} more in provenance.json"
    text = render(
        "report.html.j2",
        parts=_PARTS,
        summary=summary(app, yaml.safe_load(config), metrics, data.title, provenance),
        lower=lower_is_better,
        accounts=accounts(metrics),
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


def render(template: str, **values: Any) -> str:
    """A page of this room; what comes from files is escaped."""
    loader = PackageLoader("scadl_core.record", ".")
    return Environment(loader=loader, autoescape=True).get_template(template).render(**values)


def lower_is_better(score: str) -> bool:
    """Whether a score, with or without its split, is an error."""
    name = score.rpartition("/")[2]
    return any(name == it or name.startswith(f"{it}_") for it in _ERRORS)


def summary(
    app: str,
    config: dict[str, Any],
    metrics: dict[str, float],
    data: str,
    provenance: dict[str, Any],
) -> list[str]:
    """What was trained on what, and how good it is, in sentences.

    Args:
        app: The pipeline.
        config: The resolved configuration.
        metrics: What goes into ``metrics.json``.
        data: The data set in a few words.
        provenance: What goes into ``provenance.json``.
    """
    network = str(config.get("model", {}).get("_target_", "network")).rpartition(".")[2]
    ranks = provenance.get("ranks", [])
    where = f" on {len(ranks)} x {ranks[0]['device']}" if ranks else ""
    epochs = round(metrics["train/epochs"])
    said = [
        f"A {network} of the pipeline {app} was trained for {epochs} epoch{'s' * (epochs != 1)} "
        f"in {readable_seconds(metrics['train/seconds'])}{where}.",
        f"Data: {data.rstrip('.')}.",
    ]
    both = [(name, model, rule) for name, model, rule in scorecard(metrics) if rule is not None]
    better = [it for it in both if (it[1] <= it[2] if lower_is_better(it[0]) else it[1] >= it[2])]
    if both:
        of = f"{len(better) or len(both)} of {len(both)} scores" if len(both) > 1 else "the score"
        verb = "is at least as good as" if better else "is not as good as"
        name, model, rule = both[0]
        said.append(
            f"On data that it has not seen it {verb} the simple rule of the field in {of} "
            f"({name}: {model:.3g} against {rule:.3g})."
        )
    saved, whole = (metrics.get(f"memory/saved_bytes{it}", 0) for it in ("", "_uncompressed"))
    if 0 < saved < whole:
        said.append(f"Activations were kept in {whole / saved:.3g} times less memory.")
    return said


def accounts(metrics: dict[str, float]) -> Table:
    """Time, memory, communication and solver, in a person's units."""
    rows = [(n, readable(n, it)) for n, it in metrics.items() if n.startswith(_ACCOUNTS)]
    return Table("All that was measured of it", ["account", "value"], rows)


def readable(name: str, value: float) -> str:
    """A number in the units that its name ends in."""
    if "bytes" in name.rpartition("/")[2]:
        return readable_bytes(value)
    if name.endswith("seconds"):
        return readable_seconds(value) if value >= 10 else f"{value:.3g} s"
    return f"{value:.6g}"


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
