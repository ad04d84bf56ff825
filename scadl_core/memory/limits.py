"""How much memory a process may take: that of the machine, or of the control group it is in."""

from __future__ import annotations

import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def free_share() -> float:
    """The share of the memory that is free, 0..1; pages of files, which give way, count as free.

    Of the machine and of the process's control group (version 1 or 2), the tighter one; 1 where the
    system does not say.
    """
    shares = [_machine(), *map(_group, _own_groups())]
    return max(0.0, min(shares))


def _machine() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 1.0
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return kib["MemAvailable"] / kib["MemTotal"]


def _own_groups() -> list[Path]:
    """The memory groups of this process and all above them, innermost first."""
    try:
        lines = Path(f"/proc/{os.getpid()}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for _, kinds, path in (line.split(":", 2) for line in lines):
        if kinds in ("", "memory"):
            root = _GROUPS / kinds
            inner = root / path.lstrip("/")
            found += [group for group in (inner, *inner.parents) if root in (group, *group.parents)]
    return found


def _group(group: Path) -> float:
    """The free share of one group; 1 without a limit."""
    try:
        if (group / "memory.max").exists():  # version 2
            limit, held = (group / "memory.max").read_text(), "anon"
        else:
            limit, held = (group / "memory.limit_in_bytes").read_text(), "total_rss"
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return 1.0 if limit.strip() == "max" else 1 - int(stat[held]) / int(limit)
    except (OSError, KeyError, ValueError):
        return 1.0
