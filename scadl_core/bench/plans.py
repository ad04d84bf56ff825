"""Run on each host of `scadl bench tuner`: ``python -m scadl_core.bench.plans OUT CASE QUICK``."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from scadl_core.bench.exchanges import resnet
from scadl_core.bench.networks import Digits
from scadl_core.bench.rows import Row
from scadl_core.comm import World
from scadl_core.comm.compressed import Compressed
from scadl_core.comm.gradients import Bfloat16, GradientExchange
from scadl_core.comm.powersgd import PowerSGD
from scadl_core.comm.quantised import Quantised
from scadl_core.files import write_json
from scadl_core.memory import CompressedActivations
from scadl_core.tuning import Cost, Machine, Network, Plan, predict
from scadl_core.tuning.describe import Batch, describe
from scadl_core.tuning.plan import parse_codec
from scadl_core.tuning.probe import measure

WIDTHS = (24, 48, 96, 192)  # 1.6 million parameters
SAMPLES, ROUNDS, WARM_UP, STEPS = 16, 3, 4, 2
CODECS = ("off", "bf16", "quantised", "compressed 0.015", "compressed 1", "powersgd 1")
_LOOKS = 3  # of compressed activations, all in the warm-up


class Measured(NamedTuple):
    """A plan with what it costs and what it took."""

    plan: Plan
    cost: Cost
    seconds: float


def grid(quick: bool) -> list[Plan]:
    """Exchanges, buckets, micro-batches and ways to keep activations: 48 plans, or 12."""
    buckets = (25.0,) if quick else (2.0, 25.0)
    micro = (1,) if quick else (1, 2)
    return [
        Plan(*parse_codec(codec), bucket, accumulation, adaptive)
        for codec, bucket, accumulation, adaptive in product(CODECS, buckets, micro, (False, True))
    ]


def step_seconds(world: World, plan: Plan, images: Tensor, classes: Tensor) -> float:
    """The median of a few steps of a plan, from new weights."""
    model = DistributedDataParallel(
        resnet(WIDTHS), bucket_cap_mb=None if plan.bucket == 25 else plan.bucket
    )
    exchange = _exchange(world, plan)
    exchange.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.005, momentum=0.9)
    kept = CompressedActivations(model, every=_LOOKS) if plan.adaptive else nullcontext()
    seconds = []
    for _ in range(WARM_UP + STEPS):
        world.barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        parts = zip(images.chunk(plan.accumulation), classes.chunk(plan.accumulation), strict=True)
        for number, (image, truth) in enumerate(parts):
            last = number == plan.accumulation - 1
            with nullcontext() if last else model.no_sync():
                with kept:
                    loss = functional.cross_entropy(model(image), truth)
                torch.autograd.backward(loss)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    exchange.close()
    return max(world.gather(min(seconds[WARM_UP:])))


def main(out: Path, case: str, quick: bool) -> None:
    """Predicts and measures all plans, and writes the rows on rank 0."""
    world = World.start()
    torch.set_num_threads(1)
    images, classes = (it[world.rank :: world.size][:SAMPLES] for it in Digits().train)
    machine = measure(world, torch.device("cpu"))
    network = world.broadcast(_network(world, images, classes))
    plans = grid(quick)
    seconds: dict[Plan, list[float]] = {plan: [] for plan in plans}
    for _ in range(1 if quick else ROUNDS):
        for plan in plans:
            seconds[plan].append(step_seconds(world, plan, images, classes))
    if world.is_first:
        found = [Measured(plan, predict(machine, network, plan, SAMPLES), min(seconds[plan]))
                 for plan in plans]  # fmt: skip
        write_json(out, [row._asdict() for row in rows_of(case, machine, network, found)])
    world.barrier()
    World.leave()


def rows_of(case: str, machine: Machine, network: Network, found: Sequence[Measured]) -> list[Row]:
    """Every plan, how far off predictions are, and how good the pick is within limits.

    Args:
        case: The link.
        machine: As it was probed.
        network: As it was described.
        found: All plans.
    """
    rows = []
    for it in found:
        name = str(it.plan)
        rows += [Row(case, name, "predicted", it.cost.seconds, "s"),
                 Row(case, name, "measured", it.seconds, "s"),
                 Row(case, name, "ratio", it.cost.seconds / it.seconds, "1")]  # fmt: skip
    off = [abs(it.cost.seconds / it.seconds - 1) for it in found]
    close = statistics.mean(wrong <= 0.2 for wrong in off)
    rows.append(Row(f"{case}: predictions", "within 20 %", "value", close, "1"))
    rows.append(Row(f"{case}: predictions", "median error", "value", statistics.median(off), "1"))
    most = max(it.cost.memory for it in found)
    least = min(it.cost.memory for it in found)
    for memory in (most, (most + least) / 2):
        for error in (0.01, 1.0):
            allowed = [i for i in found if i.cost.memory <= memory and i.cost.error <= error]
            pick = min(allowed, key=lambda it: it.cost.seconds)
            best = min(it.seconds for it in allowed)
            limit = f"{memory / 1e6:.0f} MB, error {error:g}: {pick.plan}"
            rows.append(Row(f"{case}: pick over best", limit, "value", pick.seconds / best, "1"))
    link = machine.link
    rates = {"latency s": link.latency, "bandwidth B/s": link.bandwidth, "matmul flop/s":
             machine.matmul, "stream B/s": machine.stream, "encode B/s": machine.encode,
             "decode B/s": machine.decode, "a sample s": network.per_sample,
             "fixed s": network.fixed, "update s": network.update}  # fmt: skip
    rates |= {f"ratio of {name}": codec.ratio for name, codec in network.codecs.items()}
    return rows + [Row(f"{case}: machine", name, "value", v, "1") for name, v in rates.items()]


def _network(world: World, images: Tensor, classes: Tensor) -> Network:
    net = resnet(WIDTHS)
    optimizer = torch.optim.SGD(net.parameters(), 0.005, momentum=0.9)

    def batch(count: int) -> Batch:
        return Batch(count, lambda: functional.cross_entropy(net(images[:count]), classes[:count]))

    return describe(nn.ModuleList([net]), [batch(SAMPLES), batch(SAMPLES // 2)], optimizer, world)


def _exchange(world: World, plan: Plan) -> GradientExchange:
    value = plan.value or 0.0
    made: dict[str, Callable[[], GradientExchange]] = {
        "off": lambda: GradientExchange(world), "bf16": lambda: Bfloat16(world),
        "quantised": lambda: Quantised(world), "compressed": lambda: Compressed(world, value),
        "powersgd": lambda: PowerSGD(world, int(value), start=2),
    }  # fmt: skip
    return made[plan.comm]()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], bool(int(sys.argv[3])))
