"""Run on each host of `scadl bench comm`: ``python -m scadl_core.bench.exchanges OUT QUICK``.

One network, one initialisation, one order of batches and one learning rate for all exchanges of
gradients; each trains until its loss is at the target.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from scadl_core.bench.links import INTERFACE
from scadl_core.bench.networks import Digits
from scadl_core.bench.rows import Row
from scadl_core.comm import World
from scadl_core.comm.compressed import Compressed
from scadl_core.comm.gradients import Bfloat16, GradientExchange
from scadl_core.comm.powersgd import PowerSGD
from scadl_core.comm.quantised import Quantised
from scadl_core.files import write_json

# At this rate the exact exchange is at the target after some 30 steps.
BATCH, RATE, TARGET, MOST, SMOOTH = 64, 0.005, 0.6, 100, 5
QUICK_STEPS, WARM_UP = 8, 4
WIDTHS = (48, 96, 192, 384)

METHODS: dict[str, Callable[[World], GradientExchange]] = {
    "compressed, bound 1": lambda world: Compressed(world, bound=1.0),
    "compressed, bound 2": lambda world: Compressed(world, bound=2.0),
    "PowerSGD, rank 1": lambda world: PowerSGD(world, rank=1, start=2),
    "PowerSGD, rank 4": lambda world: PowerSGD(world, rank=4, start=2),
    "PowerSGD, rank 16": lambda world: PowerSGD(world, rank=16, start=2),
    "quantised": Quantised,
    "bf16": Bfloat16,
    "plain": GradientExchange,
}


class Residual(nn.Module):
    """Two 3 x 3 convolutions and what goes around them (He et al. 2016), with group norm."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.GroupNorm(8, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.GroupNorm(8, width),
        )  # fmt: skip
        same = channels == width
        self.around = nn.Identity() if same else nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """Keeps or halves height and width."""
        return functional.relu(self.body(image_BCHW) + self.around(image_BCHW))


def resnet(widths: Sequence[int] = WIDTHS) -> nn.Sequential:
    """18 layers for the 8 x 8 images of digits; of the given widths 6.3 million parameters."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(1, widths[0], 3, 1, 1, bias=False)]
    channels = widths[0]
    for width in widths:
        layers += [Residual(channels, width, 1 if channels == width else 2),
                   Residual(width, width, 1)]  # fmt: skip
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def wire_bytes() -> int:
    """What this host has sent, headers and all."""
    return int(Path(f"/sys/class/net/{INTERFACE}/statistics/tx_bytes").read_text())


def measure(world: World, make: Callable[[World], GradientExchange], steps: int) -> dict[str, Any]:
    """Trains with one exchange.

    Args:
        world: The ranks.
        make: Makes the exchange.
        steps: At the most.
    """
    exchange = make(world)
    model = DistributedDataParallel(resnet())
    exchange.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    images, classes = Digits().train
    order = torch.Generator().manual_seed(1)
    losses: list[float] = []
    times: list[float] = []
    sent: list[int] = []
    world.barrier()
    while len(losses) < steps and not _reached(losses):
        began, before = time.perf_counter(), wire_bytes()
        chosen = torch.randperm(len(images), generator=order)[:BATCH][world.rank :: world.size]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[chosen]), classes[chosen])
        torch.autograd.backward(loss)
        optimizer.step()
        mean = loss.detach() / world.size
        dist.all_reduce(mean)  # also: a step is done when the slowest rank is
        losses.append(float(mean))
        times.append(time.perf_counter() - began)
        sent.append(wire_bytes() - before)
    exchange.close()
    return {
        "step": statistics.median(times[2:]), "steps": len(losses), "seconds": sum(times),
        "reached": _reached(losses), "loss": statistics.mean(losses[-SMOOTH:]),
        "wire": statistics.median(sent[3:]),
        "payload": exchange.sent_bytes / len(losses),
    }  # fmt: skip


def _reached(losses: list[float]) -> bool:
    return len(losses) >= SMOOTH and statistics.mean(losses[-SMOOTH:]) <= TARGET


def main(out: Path, case: str, quick: bool) -> None:
    """Measures every method, and writes the rows on rank 0 after each."""
    world = World.start()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name, make in METHODS.items():
        measure(world, make, WARM_UP)  # kernels are compiled, connections are made
        ranks = world.gather(measure(world, make, QUICK_STEPS if quick else MOST))
        found = ranks[0] | {
            key: max(rank[key] for rank in ranks) for key in ("step", "seconds", "wire", "payload")
        }
        rows += _rows(case, name, found)
        if world.is_first:
            write_json(out, [row._asdict() for row in rows])
    World.leave()


def _rows(case: str, name: str, found: dict[str, Any]) -> list[Row]:
    rows = [
        Row(case, name, "step", found["step"], "s"),
        Row(case, name, "payload a step", found["payload"] / 1e6, "MB"),
        Row(case, name, "on the wire a step", found["wire"] / 1e6, "MB"),
        Row(case, name, "steps", found["steps"], "1"),
        Row(case, name, "last loss", found["loss"], "1"),
    ]
    if found["reached"]:
        rows.append(Row(case, name, "time to target", found["seconds"], "s"))
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], bool(int(sys.argv[3])))
