"""``scadl rerun``: a run again from its folder, and what came out differently."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scadl_core.comm import World
from scadl_core.errors import DataError
from scadl_core.record.provenance import git_state, versions
from scadl_core.record.runfolder import RunFolder
from scadl_core.workflow.train import choose_folder, train

# Measures of the machine, which differ from run to run.
_OF_THE_MACHINE = ("train/seconds", "memory/peak_bytes", "memory/codec_seconds")


def rerun(path: Path, console: Console, allow: Sequence[str] = ()) -> float:
    """Trains again with the stored configuration in a new folder and compares the metrics.

    Args:
        path: The folder of a complete run.
        console: Where the comparison is printed.
        allow: Packages that the stored configuration may name, see ``build.allow``.

    Returns:
        The largest difference in a ``test/`` or ``baseline/`` score.

    Raises:
        DataError: The data are not those of the run.
    """
    folder = RunFolder(path)
    config = folder.load_config()
    before = folder.load_metrics()
    config.run.dir, config.resume, config.build.allow = None, "never", list(allow)
    world = World.start()
    new = RunFolder(choose_folder(config, world))
    _say_what_changed(folder, console)
    after = train(config, new.path)
    old_data, new_data = (f.load_provenance()["data"] for f in (folder, new))
    if old_data != new_data:
        raise DataError(
            f"the data differ from those of {path}; its scores cannot be compared with those in "
            f"{new.path}"
        )
    table = Table(
        "metric",
        "then",
        "now",
        "difference",
        title=escape(f"{path.name} again as {new.path.name}"),
        title_justify="left",
    )
    scores = [name for name in after if name in before and name not in _OF_THE_MACHINE]
    for name in scores:
        table.add_row(
            name, f"{before[name]:.6g}", f"{after[name]:.6g}", f"{after[name] - before[name]:+.2g}"
        )
    if world.is_first:
        console.print(table)
    return max(
        (abs(after[n] - before[n]) for n in scores if n.startswith(("test/", "baseline/"))),
        default=0.0,
    )


def _say_what_changed(folder: RunFolder, console: Console) -> None:
    stored = folder.load_provenance()
    now = {**versions(), "git": git_state().get("sha")}
    then = {**stored["versions"], "git": stored["git"].get("sha")}
    for name, value in now.items():
        if then.get(name) != value:
            console.print(
                f"since then {name} has changed: {then.get(name)} -> {value}", style="yellow"
            )
