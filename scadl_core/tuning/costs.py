"""What a step of a plan costs: a pure function of machine, network and plan.

A step is

    (M - 1) (forward + backward) + end of the last micro-batch's exchange + update + K-FAC

for M micro-batches. In the last one, bucket k of the gradients can be sent when its share of the
backward pass is done, and after the bucket before (Li et al. 2020, PyTorch Distributed, section
3.2); what encodes and decodes it takes the same processor as the backward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from scadl_core.optim.placement import place
from scadl_core.tuning.machine import Machine
from scadl_core.tuning.network import Network
from scadl_core.tuning.plan import BUCKET_MIB, Curvature, Plan

_FIRST_BUCKET = 2**20  # bytes; DistributedDataParallel begins with a small one, unless told a size
# Passes over the gradients that an exchange takes beside the codec, as the code of each counts.
_PASSES = {"off": 1, "bf16": 3, "quantised": 14, "compressed": 14, "powersgd": 8}


@dataclass(frozen=True)
class Cost:
    """Of one step, on the slowest rank.

    Attributes:
        seconds: All.
        compute: Of it forward, backward and update.
        exchange: Of it what is waited for gradients, and their codec.
        kfac: Of it K-FAC.
        sent: Bytes that a rank sends a step.
        memory: Bytes of tensors that are held at the most.
        error: Of the gradient, relative; see :class:`scadl_core.tuning.network.Codec`.
    """

    seconds: float
    compute: float
    exchange: float
    kfac: float
    sent: float
    memory: float
    error: float


class Share(NamedTuple):
    """Seconds of the processor, seconds of the network, and bytes that a rank sends."""

    busy: float
    network: float
    sent: float


def predict(machine: Machine, network: Network, plan: Plan, samples: float) -> Cost:
    """The cost of a step.

    Args:
        machine: Where.
        network: What.
        plan: How.
        samples: Of a step on one rank, all micro-batches together.
    """
    once = network.seconds(samples / plan.accumulation)
    if plan.adaptive and network.kept is not None:
        once += network.kept.seconds * samples / plan.accumulation
    shares = [exchange(machine, network, plan, size) for size in buckets(network, plan)]
    alone = machine.ranks == 1
    last = once if alone else overlapped(once, network.forward, shares)
    curvature = Share(0.0, 0.0, 0.0)
    if plan.kfac is not None:
        curvature = precondition(machine, network, plan.kfac, samples / plan.accumulation)
    compute = plan.accumulation * once + network.update
    extra = curvature.busy + curvature.network
    error = 0.0 if alone else network.codecs[plan.codec].error
    if plan.kfac is not None and not alone:
        error = max(error, _factor_error(plan.kfac))
    return Cost(
        compute + last - once + extra, compute, last - once, extra,
        (0.0 if alone else sum(share.sent for share in shares)) + curvature.sent,
        memory(machine, network, plan, samples), error,
    )  # fmt: skip


def buckets(network: Network, plan: Plan) -> list[float]:
    """Bytes of the gradients that are exchanged together, in order."""
    left, size = network.gradient_bytes, plan.bucket * 2**20
    size = _FIRST_BUCKET if plan.bucket == BUCKET_MIB else size
    found = []
    while left > 0:
        found.append(min(left, size))
        left, size = left - found[-1], plan.bucket * 2**20
    return found


def overlapped(once: float, forward: float, shares: list[Share]) -> float:
    """Seconds of a micro-batch whose gradients are exchanged while the backward pass goes on.

    Args:
        once: Of forward and backward pass.
        forward: Of it the share of the forward pass.
        shares: Of the buckets; half of the processor's is before the message, half after.
    """
    now, sent = once * forward, 0.0
    whole = sum(share.sent for share in shares) or 1.0
    for share in shares:
        now += once * (1 - forward) * share.sent / whole + share.busy / 2
        sent = max(sent, now) + share.network
    return max(sent, now) + sum(share.busy for share in shares) / 2


def exchange(machine: Machine, network: Network, plan: Plan, nbytes: float) -> Share:
    """Of averaging a bucket.

    The compressed exchange (:mod:`scadl_core.comm.compressed`) encodes n (1 + 1/P) bytes, decodes
    n (3 - 1/P), and sends its share of them twice; the quantised one and PowerSGD (Vogels et al.
    2019) are all-reduces of less.

    Args:
        machine: Where.
        network: Whose gradients.
        plan: How.
        nbytes: Of the bucket in float32.
    """
    codec = network.codecs[plan.codec]
    ranks, small = machine.ranks, nbytes / codec.ratio
    busy = _PASSES[plan.comm] * nbytes / machine.stream
    sent = 2 * (ranks - 1) / ranks * small
    if plan.comm == "compressed":
        busy += (1 + 1 / ranks) * nbytes / (codec.encode or machine.encode)
        busy += (3 - 1 / ranks) * nbytes / (codec.decode or machine.decode)
        return Share(busy, 2 * machine.all_to_all(small), sent)
    seconds = machine.all_reduce(small)
    if plan.comm == "quantised":
        seconds += machine.all_reduce(4.0)  # the scales before
    if plan.comm == "powersgd":
        busy += 6 * (plan.value or 1) * nbytes / 4 / machine.matmul
        seconds += 2 * machine.all_reduce(4.0)  # vectors, P and Q are messages of their own
    return Share(busy, seconds, sent)


def precondition(machine: Machine, network: Network, kfac: Curvature, samples: float) -> Share:
    """What K-FAC adds to a step, on average over its periods (Pauloski et al. 2021, section 3).

    Statistics: one product of each side's rows. Factors go to their owner (reduce), inverses to the
    layer's workers (broadcast), preconditioned gradients to all others (broadcast).

    Args:
        machine: Where.
        network: Whose layers.
        kfac: How.
        samples: That statistics are taken of.
    """
    ranks, blocks = machine.ranks, network.blocks
    workers = max(1, round(kfac.fraction * ranks))
    inversion = [b.groups * (machine.invert(b.inputs) + machine.invert(b.outputs)) for b in blocks]
    slowest = _slowest(inversion, ranks, kfac.fraction)
    products = sum(2.0 * b.elements * (b.inputs + b.outputs) for b in blocks) * kfac.fraction
    gram = sum(b.groups * samples * b.rows * (b.inputs**2 + b.outputs**2) for b in blocks)
    busy = slowest / kfac.inverse_period
    busy += (products + gram / kfac.factor_period) / machine.matmul
    if ranks == 1:
        return Share(busy, 0.0, 0.0)
    factors = sum(b.factor_bytes for b in blocks)
    told = 0.0 if kfac.local_factors else factors / (_FACTOR_RATIO if kfac.compression else 1)
    inverses = factors if workers > 1 else 0.0
    gradients = 4.0 * sum(b.elements for b in blocks) if workers < ranks else 0.0
    network_seconds = (
        (machine.reduce(told) if told else 0.0) / kfac.factor_period
        + machine.broadcast(inverses, workers, 2 * len(blocks)) / kfac.inverse_period
        + machine.broadcast(gradients, ranks // workers, len(blocks))
    )
    sent = told * (ranks - 1) / ranks / kfac.factor_period
    sent += inverses / ranks * (workers - 1) / kfac.inverse_period
    sent += gradients / ranks * (ranks // workers - 1)
    return Share(busy, network_seconds, sent)


# Of triangles, measured at eps = 0.1 on two networks (docs/results/kfac.md: 14 of full matrices).
_FACTOR_RATIO = 7.0


def memory(machine: Machine, network: Network, plan: Plan, samples: float) -> float:
    """Bytes of tensors that a step holds at the most, on one rank.

    Parameters, gradients and the optimizer's state; with several ranks the buckets, and what a
    lossy exchange has not sent yet; the activations of a micro-batch; of K-FAC the factors of the
    layers that a rank owns, and the inverses of those that it preconditions.

    Args:
        machine: Where.
        network: What.
        plan: How.
        samples: Of a step on one rank.
    """
    copies = 2 + network.state + (machine.ranks > 1) * (1 + (plan.comm not in ("off", "bf16")))
    found = copies * network.gradient_bytes
    saved = network.saved * samples / plan.accumulation
    if plan.adaptive and network.kept is not None:
        saved /= network.kept.ratio
    if plan.kfac is not None:
        factors = sum(2 * b.factor_bytes for b in network.blocks)
        found += factors * (1 / machine.ranks + plan.kfac.fraction)
    return found + saved


def largest_batch(machine: Machine, network: Network, plan: Plan) -> int | None:
    """Samples a micro-batch on one rank that its memory has room for; None: without end."""
    fixed = memory(machine, network, plan, 0)
    each = memory(machine, network, plan, plan.accumulation) - fixed
    if math.isinf(machine.memory) or each <= 0:
        return None
    return max(0, int((machine.memory - fixed) / each))


def _slowest(costs: list[float], ranks: int, fraction: float) -> float:
    """Of the ranks that invert, by the placement of :mod:`scadl_core.optim.placement`."""
    owners = place({str(n): cost for n, cost in enumerate(costs)}, ranks, fraction).owners
    loads = [0.0] * ranks
    for number, cost in enumerate(costs):
        loads[owners[str(number)]] += cost
    return max(loads)


def _factor_error(kfac: Curvature) -> float:
    """Of an inverse: eps / (1 - eps) by :mod:`scadl_core.optim.compression`; that of local factors
    has no bound.
    """
    if kfac.local_factors:
        return math.inf
    return 0.0 if kfac.compression is None else kfac.compression / (1 - kfac.compression)
