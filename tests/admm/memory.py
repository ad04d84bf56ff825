"""Run by mpirun: trains a deep residual network under a cap, and prints each rank's peak in MB.

Usage: memory.py CAP_MB (0: none)
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scadl_core.admm import Data, Problem, fit
from scadl_core.admm.rules import BlockADMM
from scadl_core.comm import World

WIDTH, BLOCKS = 700, 16


class Residual(nn.Module):
    """x + W relu(V x)."""

    def __init__(self, outputs: int = WIDTH) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 10) if outputs != WIDTH else nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(x + self.second(self.first(x).relu()))


def status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return next(int(it.split()[1]) << 10 for it in text.splitlines() if it.startswith(name))


def main(cap_MB: int) -> None:
    world = World.start()
    world.barrier()
    small = nn.Linear(2, 2)  # what an optimizer imports when it is first made is no memory of ours
    small(torch.ones(1, 2)).sum().backward()
    torch.optim.Adam(small.parameters()).step()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = status("VmRSS")
    if cap_MB:
        limit = status("VmSize") + (cap_MB << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    makers: list[Any] = [Residual] * (BLOCKS - 1) + [lambda: Residual(10)]
    data = Data.of(torch.randn(64, WIDTH), torch.randint(0, 10, (64,)))
    rule = BlockADMM(every=0, tau=10.0)
    fitted = fit(Problem(makers, "cross_entropy"), data, world, rule=rule, iterations=3)
    peaks = world.gather((status("VmHWM") - before) / 2**20)
    fitted.engine.close()
    if world.is_first:
        print(*(f"{peak:.1f}" for peak in peaks))
    World.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]))
