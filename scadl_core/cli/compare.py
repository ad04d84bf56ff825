"""``scadl compare DIR ... [--out FILE]``: which runs, and where the page goes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from scadl_core.cli.arguments import take_flags
from scadl_core.errors import ConfigError
from scadl_core.record.compare import groups_of, read_runs, warnings_of, write_comparison
from scadl_core.record.datareport import DataReport

PAGE = "compare.html"


def compare(words: list[str], console: Console) -> None:
    """Prints the tables and writes the page.

    Args:
        words: Run folders, or folders of runs; and ``--out FILE``.
        console: Where to print.

    Raises:
        ConfigError: No folder, or an unknown flag.
    """
    rest, flags = take_flags(words, {"--out": "FILE.html"})
    folders = [Path(it.removeprefix("run.dir=")).expanduser().absolute() for it in rest]
    if not folders:
        raise ConfigError("which runs? scadl compare DIR ...; or a folder of runs: runs/climate")
    groups = groups_of(read_runs(folders))
    path = Path(flags.get("--out", PAGE)).expanduser().absolute()
    tables = write_comparison(groups, path)
    title = f"{len(groups)} configurations, {sum(len(it.runs) for it in groups)} runs"
    DataReport(title, {}, tables, warnings_of(groups)).print(console)
    console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
