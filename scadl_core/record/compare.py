"""Finished runs side by side: scores with intervals over seeds, costs, what was set differently."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from scadl_core.errors import RunError
from scadl_core.files import write_text
from scadl_core.record.datareport import Table
from scadl_core.record.intervals import interval
from scadl_core.record.report import lower_is_better, readable, render
from scadl_core.record.runfolder import RunFolder, flat

_COSTS = ("train/", "memory/", "comm/", "solver/")


class Run(NamedTuple):
    """What a finished run left behind.

    Attributes:
        path: Its folder.
        metrics: ``metrics.json``.
        config: The configuration by full key, with the seed.
        provenance: ``provenance.json``.
    """

    path: Path
    metrics: dict[str, float]
    config: dict[str, Any]
    provenance: dict[str, Any]


class Group(NamedTuple):
    """Runs that differ in their seed alone.

    Attributes:
        name: A letter.
        runs: By seed.
    """

    name: str
    runs: dict[int, Run]

    def values(self, metric: str) -> dict[int, float]:
        """A number of each run that has it, by seed."""
        return {s: it.metrics[metric] for s, it in self.runs.items() if metric in it.metrics}


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The complete runs of some folders, or of the folders in them, in order, each once.

    Raises:
        RunError: A folder that is no run and holds none, or runs of several pipelines.
    """
    found: dict[Path, Run] = {}
    for path in paths:
        below = [path] if (path / "config.yaml").is_file() else sorted(path.glob("*/"))
        runs = [it for it in map(RunFolder, below) if it.exists and it.is_complete]
        if not runs:
            raise RunError(
                f"{path}: no finished run; give run folders, or a folder of them such as runs/hep"
            )
        for run in runs:
            config = {"app": run.load_config().app} | flat(run.load_config())
            parts = (run.load_metrics(), config, run.load_provenance())
            found[run.path.resolve()] = Run(run.path, *parts)
    apps = sorted({run.config["app"] for run in found.values()})
    if len(apps) > 1:
        raise RunError(f"runs of {' and '.join(apps)} have no scores in common; compare one app's")
    return list(found.values())


def groups_of(runs: Sequence[Run]) -> list[Group]:
    """Runs by their configuration without the seed, in the order of their first; of several with
    one seed, the last.
    """
    found: list[tuple[dict[str, Any], dict[int, Run]]] = []
    for run in runs:
        config = {key: it for key, it in run.config.items() if key != "seed"}
        same = next((members for known, members in found if known == config), None)
        if same is None:
            found.append((config, same := {}))
        same[int(run.config["seed"])] = run
    return [Group(_letters(number), runs) for number, (_, runs) in enumerate(found)]


def _letters(number: int) -> str:
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)


def scores_table(groups: Sequence[Group]) -> Table:
    """Test scores: mean and 95 % interval over seeds; and the difference to the first group, paired
    by seed, where both have seeds in common.
    """
    first, others = groups[0], groups[1:]
    columns = ["test score", *(f"{it.name} ({len(it.runs)} seeds)" for it in groups)]
    columns += [f"{it.name} - {first.name}" for it in others]
    rows = []
    for name in _names(groups, ("test/",)):
        cells = [_spread(list(it.values(name).values())) for it in groups]
        cells += [_difference(first.values(name), it.values(name)) for it in others]
        better = " (lower is better)" * lower_is_better(name)
        rows.append((name.removeprefix("test/") + better, *cells))
    rule = _names(groups, ("baseline/",))
    for name in rule:
        cells = [_spread(list(it.values(name).values())) for it in groups]
        rows.append((f"{name.removeprefix('baseline/')} of the simple rule", *cells,
                     *("" for _ in others)))  # fmt: skip
    return Table("Mean [95 % interval over seeds]; differences are paired by seed", columns, rows)


def costs_table(groups: Sequence[Group]) -> Table:
    """Time, memory and bytes: the mean over seeds, and its share of the first group's."""
    rows = []
    for name in _names(groups, _COSTS):
        means = [
            sum(values) / len(values) if (values := list(it.values(name).values())) else math.nan
            for it in groups
        ]
        cells = ["-" if math.isnan(it) else readable(name, it) for it in means]
        for number, mean in enumerate(means[1:], start=1):
            if mean > 0 and means[0] > 0:
                cells[number] += f" (x {mean / means[0]:.3g})"
        rows.append((name, *cells))
    return Table(f"Means over seeds; in brackets as a share of {groups[0].name}",
                 ["cost", *(it.name for it in groups)], rows)  # fmt: skip


def settings_table(groups: Sequence[Group]) -> Table:
    """The keys in which the configurations differ, with the value of each group."""
    configs = [next(iter(it.runs.values())).config for it in groups]
    keys = sorted({key for config in configs for key in config} - {"seed"})
    rows = [
        (key, *(str(it.get(key, "-")) for it in configs))
        for key in keys
        if any(it.get(key) != configs[0].get(key) for it in configs)
    ]
    return Table("Keys that differ", ["key", *(it.name for it in groups)], rows)


def runs_table(groups: Sequence[Group]) -> Table:
    """Which runs these are, on which machine and of which code."""
    rows = []
    for group in groups:
        for seed, run in sorted(group.runs.items()):
            ranks, git = run.provenance.get("ranks", []), run.provenance.get("git", {})
            where = f"{len(ranks)} x {ranks[0]['device']}" if ranks else "-"
            code = str(git.get("sha", "-"))[:10] + "+" * bool(git.get("dirty"))
            rows.append((group.name, str(seed), str(run.path), where, code))
    return Table("Runs", ["group", "seed", "folder", "ranks", "code"], rows)


def warnings_of(groups: Sequence[Group]) -> list[str]:
    """What should be known before the numbers are believed."""
    runs = [run for group in groups for run in group.runs.values()]
    said = []
    if any(set(it.provenance["data"].values()) != set(runs[0].provenance["data"].values())
           for it in runs):  # fmt: skip
        said.append("the runs did not read the same files: their scores are of different data")
    if any(it.provenance.get("versions") != runs[0].provenance.get("versions") for it in runs):
        said.append("versions of packages differ between the runs; see their provenance.json")
    if alone := [it.name for it in groups if len(it.runs) < 2]:
        said.append(f"one seed alone says nothing of chance: {', '.join(alone)}")
    return said


def write_comparison(groups: Sequence[Group], page: Path) -> list[Table]:
    """Writes one HTML page that needs no other file.

    Args:
        groups: What to compare; the first is what others are held against.
        page: Where to.

    Returns:
        The tables of the page.
    """
    tables = [costs_table(groups), settings_table(groups), runs_table(groups)]
    app = next(iter(groups[0].runs.values())).config["app"]
    scores = scores_table(groups)
    text = render(
        "compare.html.j2", title=f"ScaDL {app}: {len(groups)} configurations", app=app,
        groups=groups, warnings=warnings_of(groups), scores=scores, tables=tables,
        figure=base64.b64encode(_picture(groups)).decode(),
    )  # fmt: skip
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text)
    return [scores, *tables]


def _names(groups: Sequence[Group], prefixes: tuple[str, ...]) -> list[str]:
    names = [n for group in groups for run in group.runs.values() for n in run.metrics]
    return [name for name in dict.fromkeys(names) if name.startswith(prefixes)]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, low, high = interval(values)
    return f"{mean:.4f} [{low:.4f}, {high:.4f}]" if len(values) > 1 else f"{mean:.4f}"


def _difference(first: dict[int, float], other: dict[int, float]) -> str:
    seeds = sorted(first.keys() & other.keys())
    if not seeds:
        return "no seed in common"
    mean, low, high = interval([other[seed] - first[seed] for seed in seeds])
    if len(seeds) < 2:
        return f"{mean:+.4f}"
    verdict = "" if low > 0 or high < 0 else " inconclusive"
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]{verdict}"


def _picture(groups: Sequence[Group]) -> bytes:
    names = _names(groups, ("test/",))
    columns = min(3, max(1, len(names)))
    height = -(-len(names) // columns) or 1
    size = (3.6 * columns, (0.9 + 0.3 * len(groups)) * height)
    figure = Figure(figsize=size, layout="constrained")
    panels = iter(figure.subplots(height, columns, squeeze=False).flat)
    for name in names:
        axes = next(panels)
        for row, group in enumerate(groups):
            values = list(group.values(name).values())
            axes.plot(values, [row] * len(values), ".", color="#66717f", alpha=0.6)
            if len(values) > 1:
                mean, low, high = interval(values)
                axes.errorbar(mean, row, xerr=[[mean - low], [high - mean]], fmt="o", capsize=3)
        axes.set_yticks(range(len(groups)), [it.name for it in groups])
        axes.invert_yaxis()
        axes.set_title(name.removeprefix("test/").replace("_", " "), fontsize=9)
        axes.grid(alpha=0.3, axis="x")
    for unused in panels:
        unused.set_axis_off()
    file = io.BytesIO()
    figure.savefig(file, dpi=110, format="png")
    return file.getvalue()
