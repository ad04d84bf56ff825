"""Where a result comes from: code, versions, machine, data, command."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import scadl_core
from scadl_core.comm import World

PACKAGES = (
    "torch",
    "lightning",
    "torchmetrics",
    "hydra-core",
    "numpy",
    "xarray",
    "mpi4py",
    "cupy-cuda13x",
)
_EDGE_BYTES = 1 << 20


def describe(world: World, seed: int, command: str, data: dict[str, str]) -> dict[str, Any]:
    """Everything needed to say how a run came about.

    Args:
        world: The processes; every rank calls this.
        seed: The seed of the run.
        command: What was typed.
        data: Fingerprints by file name, see :func:`fingerprints`.
    """
    hosts = world.gather(
        {
            "host": platform.node(),
            "device": device_name(world.local_rank),
            "threads": torch.get_num_threads(),
        }
    )
    return {
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state(),
        "versions": {
            "scadl": scadl_core.__version__,
            "python": platform.python_version(),
            **versions(),
        },
        "launcher": world.launcher,
        "ranks": hosts,
        "slurm": {
            name: value
            for name, value in os.environ.items()
            if name in ("SLURM_JOB_ID", "SLURM_JOB_NAME")
        },
        "seed": seed,
        "data": data,
    }


def git_state() -> dict[str, Any]:
    """The commit of the checkout that ScaDL runs from, and whether files were changed since; empty
    for a wheel.
    """
    root = Path(scadl_core.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return {}
    try:
        run = [
            subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
            ).stdout.strip()
            for arguments in (
                ("rev-parse", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"sha": run[0], "dirty": bool(run[1])}


def versions() -> dict[str, str]:
    """The installed versions of the packages that decide results."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def device_name(local_rank: int) -> str:
    """What this rank computes on."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(local_rank % torch.cuda.device_count())
    return f"CPU ({platform.machine()})"


def fingerprints(files: Iterable[Path]) -> dict[str, str]:
    """A short fingerprint of every file: of its size and its first and last mebibyte, to be quick.

    Args:
        files: Files or folders (a folder's files are taken together).

    Returns:
        16 hexadecimal digits by path.
    """
    return {str(path): _fingerprint(path) for path in sorted(files)}


def command_line() -> str:
    """What was typed, as far as the process knows."""
    return " ".join(["scadl", *sys.argv[1:]])


def _fingerprint(path: Path) -> str:
    parts = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return _digest(path, tuple((part, *_stamp(part)) for part in parts))


def _stamp(part: Path) -> tuple[int, int]:
    status = part.stat()
    return status.st_size, status.st_mtime_ns


@cache  # statistics and provenance both ask
def _digest(path: Path, parts: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part, size, _ in parts:
        digest.update(f"{part.relative_to(path) if path.is_dir() else ''}{size}".encode())
        with part.open("rb") as file:
            digest.update(file.read(_EDGE_BYTES))
            file.seek(max(0, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()
