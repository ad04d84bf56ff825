"""Run by mpirun: a command of scadl; each rank's peak above import, in MiB, goes into a file.

Usage: peak.py FILE WORDS...
"""

from __future__ import annotations

import sys
from pathlib import Path

import lightning
import torch
from torch import nn

import apps.remote_sensing.data
import apps.remote_sensing.figures
import apps.remote_sensing.predict
import apps.remote_sensing.task  # noqa: F401
import scadl_core.workflow.admm  # noqa: F401
from scadl_core.cli import main
from scadl_core.comm import World

assert lightning


def status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return next(int(it.split()[1]) << 10 for it in text.splitlines() if it.startswith(name))


def run(file: Path, words: list[str]) -> None:
    small = nn.Conv2d(2, 2, 3)  # what libraries load when they are first used is no memory of ours
    small(torch.ones(1, 2, 8, 8)).sum().backward()
    torch.optim.AdamW(small.parameters()).step()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = status("VmRSS")
    sys.argv = ["scadl", *words]
    leave, World.leave = World.leave, staticmethod(lambda: None)  # type: ignore[method-assign]
    assert main(words) == 0
    World.leave = leave  # type: ignore[method-assign]
    peaks = World.start().gather((status("VmHWM") - before) / 2**20)
    if World.start().is_first:
        file.write_text(" ".join(f"{peak:.1f}" for peak in peaks))
    World.leave()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
