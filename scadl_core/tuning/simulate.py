"""Scaling curves of a network on a machine that is described: the same cost model, more ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from scadl_core.admm.balance import partition
from scadl_core.admm.steptime import Cost, block_parallel
from scadl_core.tuning.costs import predict
from scadl_core.tuning.machine import Machine
from scadl_core.tuning.network import Network
from scadl_core.tuning.plan import Curvature, Plan


class Point(NamedTuple):
    """One point of a curve.

    Attributes:
        method: Whose.
        ranks: How many.
        seconds: Of a step.
        throughput: Samples a second.
        efficiency: Throughput over that of as many ranks alone with plain training.
        sent: Bytes that a rank sends a step.
        memory: Bytes of a rank; not a number where the model does not say.
    """

    method: str
    ranks: int
    seconds: float
    throughput: float
    efficiency: float
    sent: float
    memory: float


def curves(
    machine: Machine, network: Network, samples: int, methods: dict[str, Plan]
) -> Iterator[Point]:
    """Weak scaling, with so many samples on each rank, from one rank to all of the machine; ADMM
    with as many ranks as the network has layers at the most, each with the whole batch.

    Args:
        machine: With all of its ranks.
        network: With the times of one of its ranks, see :meth:`Network.on`.
        samples: Of a step on one rank.
        methods: Plans by name; of K-FAC the fastest fraction at each size is taken.
    """
    alone = predict(machine.with_ranks(1), network, Plan(), samples).seconds
    for ranks in sizes(machine):
        here = machine.with_ranks(ranks)
        for method, plan in methods.items():
            cost = min(
                (predict(here, network, way, samples) for way in _ways(plan, ranks)),
                key=lambda cost: cost.seconds,
            )
            yield Point(method, ranks, cost.seconds, ranks * samples / cost.seconds,
                        alone / cost.seconds, cost.sent, cost.memory)  # fmt: skip
        if 1 < ranks <= len(network.blocks):
            yield _admm(here, network, samples * ranks, alone / samples)


def sizes(machine: Machine) -> list[int]:
    """1, 2, 4 ... ranks on a node, then 1, 2, 4 ... nodes, and all."""
    within = [2**k for k in range(machine.ranks_per_node.bit_length())]
    nodes = [2**k for k in range(machine.nodes.bit_length())]
    found = {r for r in within if r <= machine.ranks_per_node}
    found |= {n * machine.ranks_per_node for n in nodes} | {machine.ranks}
    return sorted(size for size in found if size <= machine.ranks)


def _ways(plan: Plan, ranks: int) -> list[Plan]:
    if plan.kfac is None:
        return [plan]
    fractions = [m / ranks for m in range(1, ranks + 1) if ranks % m == 0]
    return [replace(plan, kfac=replace(plan.kfac, fraction=f)) for f in fractions]


def _admm(machine: Machine, network: Network, samples: int, per_sample: float) -> Point:
    """An iteration of block-local ADMM: a network's layers over ranks, balanced by their flops."""
    flops = [max(1.0, block.flops) for block in network.blocks]
    whole = network.seconds(samples)
    costs = []
    for part in partition(flops, machine.ranks):
        seconds = whole * sum(flops[n] for n in part) / sum(flops)
        forward = seconds * network.forward
        backward = (seconds - forward) / 2
        nbytes = samples * network.blocks[part[-1]].nbytes
        costs.append(Cost(forward, backward, backward, network.update / machine.ranks, nbytes))
    seconds = block_parallel(costs, machine.pair).makespan
    sent = 2 * max(cost.nbytes for cost in costs)
    ideal = per_sample * samples / machine.ranks
    return Point("ADMM", machine.ranks, seconds, samples / seconds, ideal / seconds, sent, math.nan)


METHODS: dict[str, Plan] = {
    "plain": Plan(),
    "bf16": Plan("bf16"),
    "compressed": Plan("compressed", 1.0),
    "K-FAC": Plan(kfac=Curvature(factor_period=10, inverse_period=100)),
}


def table(points: Sequence[Point]) -> list[list[str]]:
    """Rows of a CSV file, its head first."""
    rows = [[str(value) if isinstance(value, str | int) else f"{value:.6g}" for value in point]
            for point in points]  # fmt: skip
    return [list(Point._fields), *rows]
