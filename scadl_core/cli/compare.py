"""``scadl compare DIR ... [--out FILE]``: which runs, and where the page goes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

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
    rest, page, folders = list(words), PAGE, []
    while rest:
        word = rest.pop(0)
        if word.startswith("--out"):
            page = word.partition("=")[2] or (rest.pop(0) if rest else "")
            if not page:
                raise ConfigError("--out needs a file: --out FILE.html")
        elif word.startswith("-"):
            raise ConfigError(f"unknown flag {word!r}; there is: --out FILE")
        else:
            folders.append(Path(word.removeprefix("run.dir=")).expanduser().absolute())
    if not folders:
        raise ConfigError("which runs? scadl compare DIR ...; or a folder of runs: runs/climate")
    groups = groups_of(read_runs(folders))
    path = Path(page).expanduser().absolute()
    tables = write_comparison(groups, path)
    title = f"{len(groups)} configurations, {sum(len(it.runs) for it in groups)} runs"
    DataReport(title, {}, tables, warnings_of(groups)).print(console)
    console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
