"""Damaged files, and children in which they are read: a library may end the process, or hang."""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

HANG_S = 60


class Fate(NamedTuple):
    """How a child came to its end: an exit status, or minus a signal's number."""

    status: int
    out: str
    err: str

    @property
    def hung(self) -> bool:
        return self.status == -signal.SIGKILL


def damaged(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """What was done, and the bytes: half of them have one byte changed, as disks and networks do
    it; others many, at the head too, or a stretch of zeros, or an end too early.
    """
    data = np.frombuffer(content, np.uint8).copy()
    way = rng.choice(["one", "head", "many", "zeros", "cut"], p=[0.5, 0.2, 0.1, 0.1, 0.1])
    if way == "cut":
        kept = int(rng.integers(0, len(data)))
        return f"cut at {kept}", content[:kept]
    if way == "zeros":
        start = int(rng.integers(0, len(data)))
        data[start : start + 512] = 0
        return f"zeros from {start}", data.tobytes()
    within = min(len(data), 512) if way == "head" else len(data)
    places = rng.integers(0, within, 16 if way == "many" else 1)
    data[places] ^= rng.integers(1, 256, len(places), dtype=np.uint8)
    return f"{way} at {places.tolist()[:3]}", data.tobytes()


def in_child(function: Callable[[], int], timeout_s: float = HANG_S) -> Fate:
    """The end of a fork that calls a function and leaves with what it returns."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():  # Python 3.12 warns of threads
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _be(function, out.fileno(), err.fileno())
        status = _ended(child, timeout_s)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Fate(status, *texts)


def _be(function: Callable[[], int], out: int, err: int) -> None:
    status = 1
    try:
        # The parent's OpenMP threads are not in a fork; on one core nothing waits for them.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(os.fdopen(it, "wb", closefd=False)) for it in (1, 2)
        )
        warnings.resetwarnings()  # as a person's process has them: not errors
        warnings.simplefilter("ignore")
        status = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _ended(child: int, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def aside(place: Path) -> set[Path]:
    """Files that a writer would leave if it did not come to its end."""
    return {path for path in place.rglob("*") if path.name.startswith(".") and path.is_file()}


def fault(fate: Fate, place: Path, before: Set[Path] = frozenset()) -> str | None:
    """What is wrong with the end of a command, in a line; None: a clean one, or one message."""
    whole = fate.out + fate.err
    if fate.hung:
        return "hung"
    if fate.status not in (0, 2):
        last = fate.err.strip().splitlines()
        return f"exit {fate.status}: {last[-1] if last else ''}"
    if "Traceback" in whole:
        return "a traceback"
    if fate.err and (fate.err.count("\n") != 1 or not fate.err.startswith("scadl: ")):
        return f"not one message: {fate.err!r}"
    left = sorted(path.name for path in aside(place) - before)
    return f"half-written: {left}" if left else None
