"""`scadl bench all`: every benchmark in turn, and one page of all their tables.

What has been measured is not measured again: a stopped command goes on with the next benchmark, and
within those that go on by themselves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rich.console import Console

from scadl_core.bench import modules
from scadl_core.bench.journal import Journal, about
from scadl_core.bench.rows import Row, markdown, write_rows
from scadl_core.errors import ConfigError, RunError, ScadlError
from scadl_core.files import write_text


def bench_into(folder: Path, words: Sequence[str], quick: bool, console: Console) -> list[Row]:
    """Runs what is not in the journal yet.

    Args:
        folder: Of ``all.jsonl``, of ``NAME.json`` for every benchmark, and of ``all.md``; of a
            quick one all names end in ``-quick``.
        words: None are known.
        quick: Passed on.
        console: Where to print.

    Returns:
        The rows of all of them, each case with the benchmark's name before it.

    Raises:
        ConfigError: Words.
        RunError: Some could not be run, at the end; the others are done.
    """
    if words:
        raise ConfigError(f"bench all takes no {words[0]!r}; or name one benchmark")
    ending = "-quick" * quick
    journal, rows, refused = Journal(folder / f"all{ending}.jsonl"), list[Row](), dict[str, str]()
    for name, where in modules().items():
        path = folder / f"{name}{ending}.json"
        if name in journal.lines and path.exists():
            console.print(f"{name}: measured before, {path}")
        else:
            began = time.monotonic()
            try:
                found = run(where, folder, [], quick, console)
            except ScadlError as error:
                refused[name] = str(error)
                console.print(f"{name}: {error}", markup=False)
                continue
            write_rows(found, f"{name}{ending}", folder)
            journal.add(name, seconds=round(time.monotonic() - began, 1))
        stored = json.loads(path.read_text(encoding="utf-8"))
        rows += [Row(**{**row, "case": f"{name}: {row['case']}"}) for row in stored]
        write_text(folder / f"all{ending}.md", page(journal, rows, quick))
    if refused:
        names = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise RunError(f"not measured: {names} (all else: {folder / f'all{ending}.md'})")
    return rows


def run(where: str, folder: Path, words: Sequence[str], quick: bool, console: Console) -> list[Row]:
    """One benchmark by its module."""
    module = import_module(where)
    if hasattr(module, "bench_into"):
        found: list[Row] = module.bench_into(folder, words, quick, console)
        return found
    if words:
        raise ConfigError(f"this benchmark takes no {words[0]!r}")
    rows: list[Row] = module.bench(quick, console)
    return rows


def page(journal: Journal, rows: list[Row], quick: bool) -> str:
    """All tables, with how long each benchmark took and where it ran."""
    taken = ", ".join(f"{name} {line['seconds']:.0f} s" for name, line in journal.lines.items())
    flag = " --quick" * quick
    short = "**Quick: less data and fewer rounds than the tables of the other pages.**\n\n" * quick
    return (
        f"# All benchmarks\n\n`scadl bench all{flag} --out DIR`: {taken}. "
        f"{about(list(journal.lines.values()))}\n\n{short}{markdown(rows)}"
    )
