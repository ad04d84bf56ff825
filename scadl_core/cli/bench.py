"""scadl bench NAME [--quick] [--out DIR]: which benchmark, and where its rows go."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from rich.console import Console

from scadl_core.cli.arguments import take_flags
from scadl_core.errors import ConfigError, nearest

_ROOM = "scadl_core.bench"  # found by name: nobody imports it
_PLACE = "results"  # of what goes on after a stop, without --out


def bench(words: list[str], console: Console) -> None:
    """Runs a benchmark, prints its tables, and with ``--out DIR`` writes ``DIR/NAME.json``.

    Args:
        words: What follows the verb; behind ``claims`` pipelines may be named.
        console: Where to print.

    Raises:
        ConfigError: No such benchmark or flag.
    """
    names, flags = take_flags(words, {"--quick": "", "--out": "DIR"})
    name, where = _find(names)
    folder = Path(flags.get("--out", _PLACE)).expanduser()
    everything = import_module(f"{_ROOM}.everything")
    rows = everything.run(where, folder, names[1:], "--quick" in flags, console)
    if "--out" in flags:
        path = import_module(f"{_ROOM}.rows").write_rows(rows, name, folder)
        console.print(f"written: {path}")


def _find(names: list[str]) -> tuple[str, str]:
    known = {**import_module(_ROOM).modules(), "all": f"{_ROOM}.everything"}
    if not names:
        raise ConfigError(f"which benchmark? scadl bench NAME; there is: {', '.join(known)}")
    if names[0] not in known:
        raise ConfigError(f"no benchmark is called {names[0]!r}{nearest(names[0], known)}")
    return names[0], known[names[0]]
