"""scadl bench NAME [--quick] [--out DIR]: which benchmark, and where its rows go."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from rich.console import Console

from scadl_core.cli.arguments import take_flags
from scadl_core.config.apps import find_apps
from scadl_core.errors import ConfigError, nearest

_ROOM = "scadl_core.bench"  # found by name: nobody imports it


def bench(words: list[str], console: Console) -> None:
    """Runs a benchmark, prints its tables, and with ``--out DIR`` writes ``DIR/NAME.json``.

    Args:
        words: What follows the verb.
        console: Where to print.

    Raises:
        ConfigError: No such benchmark or flag.
    """
    names, flags = take_flags(words, {"--quick": "", "--out": "DIR"})
    module = _find(names)
    rows = module.bench("--quick" in flags, console)
    if "--out" in flags:
        rows_room = import_module(f"{_ROOM}.rows")
        path = rows_room.write_rows(rows, names[0], Path(flags["--out"]).expanduser())
        console.print(f"written: {path}")


def _find(names: list[str]) -> ModuleType:
    known = {name: f"{_ROOM}.{name}" for name in import_module(_ROOM).BENCHMARKS}
    for app in find_apps().values():  # an app may bring a benchmark of its own
        if find_spec(f"{app.module}.bench") is not None:
            known[app.name] = f"{app.module}.bench"
    if len(names) != 1:
        raise ConfigError(f"which benchmark? scadl bench NAME; there is: {', '.join(known)}")
    if names[0] not in known:
        raise ConfigError(f"no benchmark is called {names[0]!r}{nearest(names[0], known)}")
    return import_module(known[names[0]])
