"""What a long benchmark has measured up to now: a line of JSON after each part, so that it can be
stopped at any time and goes on where it was.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from scadl_core.errors import DataError
from scadl_core.files import write_text
from scadl_core.record.provenance import git_state, versions

_SHOWN = ("scadl", "torch", "lightning", "numpy", "numba")


class Journal:
    """A file of lines.

    Args:
        path: Made with the first line.

    Attributes:
        lines: By key, as they were added; of a key the last counts.

    Raises:
        DataError: A line that is none of a journal's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, dict[str, Any]] = {}
        whole = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for number, text in enumerate(whole, 1):
            try:
                line = json.loads(text)
                self.lines[line["key"]] = line
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number}: expected an object with a key, as a benchmark writes; "
                    "mend the line, or move the file away to begin anew"
                ) from error

    def add(self, key: str, **values: Any) -> None:
        """Adds a line; the file is on the disk, whole, when this returns."""
        self.lines[key] = {"key": key, **values, "machine": machine()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.lines.values()))


def machine() -> dict[str, str]:
    """Where something was measured, and by which versions."""
    found = {name: it for name, it in versions().items() if name in _SHOWN}
    state = git_state()
    if state.get("sha"):
        found["commit"] = str(state["sha"])[:12] + ("+" if state.get("dirty") else "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**found, "python": platform.python_version(), "processor": _processor(),
            "cores": str(cores)}  # fmt: skip


def _processor() -> str:
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        about = ""
    names = [line.partition(":")[2].strip() for line in about.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def about(lines: list[dict[str, Any]]) -> str:
    """A sentence of Markdown on where some lines were measured."""
    places = [line["machine"] for line in lines]
    names = list(dict.fromkeys(name for place in places for name in place))
    values = {name: dict.fromkeys(place[name] for place in places if name in place)
              for name in names}  # fmt: skip
    return "; ".join(f"{name} {', '.join(found)}" for name, found in values.items()) + "."
