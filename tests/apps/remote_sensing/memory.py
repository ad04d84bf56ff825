"""Predicts a scene of four bands in a process of its own; prints the peak above import in MiB, how
many windows were computed, and how many there are.

Usage: memory.py INPUT OUTPUT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from apps.remote_sensing import predict as module
from apps.remote_sensing.model import EDSR
from apps.remote_sensing.task import SuperResolution
from scadl_core.comm import World


def status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return next(int(it.split()[1]) << 10 for it in text.splitlines() if it.startswith(name))


def main(path: Path, output: Path) -> None:
    facts: dict[str, Any] = {
        "inputs": [f"band_{n}" for n in range(1, 5)],
        "model": {"in_channels": 4, "scale": 2},
        "white": 4000.0,
        "white_origin": "given",
        "mean_C": [0.5] * 4,
        "sensor": {"scale": 2},
    }
    torch.manual_seed(0)
    network = EDSR(4, 2)
    task = SuperResolution(network=network, facts=facts, world=World(), loss="l1", crop=0).eval()
    count = {"computed": 0, "there": 0}
    tiles = module.Tiles.__call__

    def counted(self: Any, read: Any, height: int, width: int, wanted: Any) -> Any:
        def asked(rows: slice, columns: slice) -> bool:
            count["there"] += 1
            is_wanted = bool(wanted(rows, columns))
            count["computed"] += is_wanted
            return is_wanted

        return tiles(self, read, height, width, asked)

    module.Tiles.__call__ = counted  # type: ignore[method-assign]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = status("VmRSS")
    provenance = {"versions": {"scadl": "1"}, "git": {}}
    module.predict_files(task, path, output, provenance)
    print((status("VmHWM") - before) / 2**20, count["computed"], count["there"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
