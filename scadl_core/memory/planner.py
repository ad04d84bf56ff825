"""Which saved tensors to keep, compress, move or compute again so that a budget of bytes is met.

What is known of a step that went before: the bytes of each tensor with and without compression,
the codec's seconds, and the seconds of each block that can be computed again. Minimised are the
seconds; every choice keeps the gradients' errors below the fraction asked for, unless the least
that can be had is still too much: then all bounds are loosened so that the sum of the relative
squared errors is smallest, ``eps_l^2 = mu n_l R_l / s_l`` (docs/results/memory.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

MARGIN = 0.97  # of the budget is planned: sizes differ from step to step
PRICES = [2.0**power for power in range(-48, -16)]  # seconds a byte: 280 TB/s to 66 kB/s
LOOSEST = 64.0  # factor on a bound; about then no bits are left


@dataclass(frozen=True)
class Item:
    """Tensors of one storage.

    Attributes:
        name: Where it is saved first.
        raw: Its bytes.
        stored: Bytes when compressed, with the bounds of the last step.
        seconds: That the codec takes for it.
        block: The block that makes it, if one does.
        values: Elements above zero whose bound can be loosened; each doubling saves a bit of them.
        loosened: The factor on the bound in the last step.
        moving: Seconds to move it to the host and back; infinite where there is no other memory.
    """

    name: str
    raw: int
    stored: int
    seconds: float
    block: str | None = None
    values: float = 0.0
    loosened: float = 1.0
    moving: float = math.inf

    def bytes_at(self, loosened: float) -> float:
        """Bytes with another factor; a bit for every eight values remains."""
        saved = self.values / 8 * math.log2(loosened / self.loosened)
        return max(min(self.values / 64, self.stored), self.stored - saved)


@dataclass(frozen=True)
class Recomputable:
    """A block that can be computed again in the backward pass.

    Attributes:
        name: Of the module.
        seconds: Of its forward pass.
        inputs: Bytes that it is computed again from.
    """

    name: str
    seconds: float
    inputs: int


@dataclass(frozen=True)
class Plan:
    """What to do in the next steps.

    Attributes:
        keep: Tensors kept as they are.
        recompute: Blocks computed again.
        offload: Tensors moved to the host.
        loosened: Factors on the bounds of the others, where above 1.
        nbytes: Predicted bytes at most.
        seconds: Predicted for the codec, for moving and for computing again.
    """

    keep: frozenset[str] = frozenset()
    recompute: frozenset[str] = frozenset()
    offload: frozenset[str] = frozenset()
    loosened: Mapping[str, float] = field(default_factory=dict)
    nbytes: float = 0.0
    seconds: float = 0.0


def make_plan(
    items: Sequence[Item], blocks: Iterable[Recomputable], budget: float, fraction: float
) -> Plan:
    """The plan that costs the least time within a budget.

    Args:
        items: In the order of the forward pass.
        blocks: Which can be computed again.
        budget: Bytes.
        fraction: See :class:`scadl_core.memory.CompressedActivations`.
    """
    known = {block.name: block for block in blocks}
    limit = MARGIN * budget
    least = Plan(frozenset(it.name for it in items if it.raw <= it.stored))
    away = frozenset(it.name for it in items if math.isfinite(it.moving))
    moved = Plan(least.keep - away, offload=away)
    plans = [least, moved, *(_choose(items, known, price, limit) for price in (0.0, *PRICES))]
    filled = [_fill(items, known, plan, limit) for plan in plans]
    fitting = [plan for plan in filled if plan.nbytes <= limit]
    if fitting:
        return min(fitting, key=lambda plan: plan.seconds)
    return _loosen(items, least, limit, fraction)


def _choose(
    items: Sequence[Item], blocks: Mapping[str, Recomputable], price: float, limit: float
) -> Plan:
    """For each tensor and block what costs the least, a byte having a price in seconds."""
    least = {it.name: min(price * it.stored + it.seconds, it.moving) for it in items}
    keep = frozenset(it.name for it in items if price * it.raw <= least[it.name])
    offload = frozenset(it.name for it in items if it.moving <= least[it.name]) - keep
    cost = dict.fromkeys(blocks, 0.0)
    for it in items:
        if it.block in cost:
            cost[it.block] += min(price * it.raw, least[it.name])
    again = {
        name for name, others in cost.items()
        if blocks[name].seconds + price * blocks[name].inputs < others
    }  # fmt: skip
    while True:
        plan, largest, most = _judge(items, blocks, Plan(keep, frozenset(again), offload), _stored)
        if most <= limit or largest is None:
            return plan
        again.discard(largest)  # it would hold too much while it is computed again


def _fill(
    items: Sequence[Item], blocks: Mapping[str, Recomputable], plan: Plan, limit: float
) -> Plan:
    """Keeps more where there is room, the dearest a byte first: between two prices a little is left
    over.
    """
    away = [it for it in items if it.name not in plan.keep and it.block not in plan.recompute]
    more = {it.name: it.raw - it.stored * (it.name not in plan.offload) for it in away}
    room = limit - _judge(items, blocks, plan, _stored)[0].nbytes
    for it in sorted(away, key=lambda it: -_seconds(it, plan) / max(1, more[it.name])):
        if more[it.name] <= room:
            room -= more[it.name]
            plan = replace(plan, keep=plan.keep | {it.name}, offload=plan.offload - {it.name})
    return _judge(items, blocks, plan, _stored)[0]


def _seconds(item: Item, plan: Plan) -> float:
    return item.moving if item.name in plan.offload else item.seconds


def _stored(item: Item) -> float:
    return float(item.stored)


def _judge(
    items: Sequence[Item],
    blocks: Mapping[str, Recomputable],
    plan: Plan,
    stored: Callable[[Item], float],
) -> tuple[Plan, str | None, float]:
    """A plan with its bytes and seconds; the block that holds the most while it is computed again,
    when what lies behind it is gone, and how much is kept then.
    """
    total, seconds = 0.0, sum(blocks[name].seconds for name in plan.recompute)
    transient: dict[str, float] = {}
    before: dict[str, float] = {}
    for it in items:
        if it.block in plan.recompute:
            assert it.block is not None
            if it.block not in transient:
                total += blocks[it.block].inputs
                transient[it.block], before[it.block] = 0.0, total
            transient[it.block] += it.raw
        elif it.name in plan.keep:
            total += it.raw
        else:
            total += stored(it) * (it.name not in plan.offload)
            seconds += _seconds(it, plan)
    during = {name: before[name] + transient[name] for name in transient}
    largest = max(during, key=lambda name: during[name], default=None)
    most = during[largest] if largest is not None else 0.0
    return replace(plan, nbytes=max(total, most), seconds=seconds), largest, most


def _loosen(items: Sequence[Item], plan: Plan, limit: float, fraction: float) -> Plan:
    """The smallest ``mu`` with which a plan fits. The relative error of a tensor's gradient is
    ``sqrt(mu n R)``, and not below the fraction asked for.
    """

    def factor(it: Item, mu: float) -> float:
        wanted = math.sqrt(mu * it.values) / max(fraction, 1e-12)
        return min(max(1.0, wanted), LOOSEST)

    def judged(mu: float) -> Plan:
        return _judge(items, {}, plan, lambda it: it.bytes_at(factor(it, mu)))[0]

    low, high = -120.0, 0.0  # powers of two of mu
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (low, middle) if judged(2**middle).nbytes <= limit else (middle, high)
    loosened = {it.name: factor(it, 2**high) for it in items if factor(it, 2**high) > 1}
    chosen = judged(2**high)
    return replace(chosen, loosened=loosened)
