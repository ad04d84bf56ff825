"""How long a step takes under each schedule, from the costs of blocks and of the network.

A schedule is a list of operations: where each runs, how long, after which others, and how
many bytes each of these has to send. Ranks do their operations in order; a message takes latency +
bytes / bandwidth and keeps nobody busy. The makespan of the list is the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Cost(NamedTuple):
    """One block on one rank.

    Attributes:
        forward: Seconds of a forward pass of the whole batch.
        backward_input: Seconds of the gradient in its input.
        backward_weight: Seconds of the gradient in its weights.
        update: Seconds of the optimizer's step.
        nbytes: Of its output for the whole batch.
    """

    forward: float
    backward_input: float
    backward_weight: float
    update: float = 0.0
    nbytes: float = 0.0


class Link(NamedTuple):
    """Between neighbouring ranks: seconds, and bytes a second."""

    latency: float = 0.0
    bandwidth: float = float("inf")

    def seconds(self, nbytes: float) -> float:
        """Of one message."""
        return self.latency + nbytes / self.bandwidth


Name = tuple[str, int, int]  # what, of which block, of which micro-batch


@dataclass
class Timeline:
    """Operations in the order in which they were added; what they wait for was added before."""

    spans: dict[Name, tuple[float, float]] = field(default_factory=dict)
    free: dict[int, float] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)

    def add(self, name: Name, seconds: float, after: Sequence[tuple[Name, float]] = ()) -> None:
        """Runs an operation on its block's rank.

        Args:
            name: Of it.
            seconds: It takes.
            after: What it waits for, and the seconds that its message takes.
        """
        rank = name[1]
        ready = max((self.spans[other][1] + delay for other, delay in after), default=0.0)
        begin = max(ready, self.free.get(rank, 0.0))
        self.free[rank] = begin + seconds
        self.spans[name] = begin, begin + seconds
        self.busy[rank] = self.busy.get(rank, 0.0) + seconds

    def has(self, *names: Name) -> bool:
        """Whether all were added."""
        return all(name in self.spans for name in names)

    @property
    def makespan(self) -> float:
        """Seconds until all is done."""
        return max(self.free.values())

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they do nothing."""
        return 1 - sum(self.busy.values()) / (len(self.busy) * self.makespan)


Order = Callable[[int, int, int], list[tuple[str, int]]]  # of rank, ranks, micro-batches


def gpipe(rank: int, ranks: int, count: int) -> list[tuple[str, int]]:
    """All forward, then all backward (Huang et al. 2019, arXiv:1811.06965)."""
    return [("F", m) for m in range(count)] + [("B", m) for m in range(count)]


def one_forward_one_backward(rank: int, ranks: int, count: int) -> list[tuple[str, int]]:
    """After a warm-up, one of each in turn (Narayanan et al. 2019, PipeDream-flush)."""
    ahead = min(ranks - rank, count)
    order = [("F", m) for m in range(ahead)]
    for m in range(count):
        order.append(("B", m))
        if ahead + m < count:
            order.append(("F", ahead + m))
    return order


def zero_bubble(rank: int, ranks: int, count: int) -> list[tuple[str, int]]:
    """1F1B whose gradients of weights wait for the end (Qi et al. 2023, arXiv:2401.10241, ZB-H1 in
    its simplest form): they fill the bubble at the end of the step.
    """
    order: list[tuple[str, int]] = []
    waiting: list[int] = []
    for what, m in one_forward_one_backward(rank, ranks, count):
        order.append(("I" if what == "B" else what, m))
        if what == "B":
            waiting.append(m)
            if len(waiting) > rank:
                order.append(("W", waiting.pop(0)))
    return order + [("W", m) for m in waiting]


def pipeline(costs: Sequence[Cost], link: Link, micro_batches: int, order: Order) -> Timeline:
    """A step of backpropagation, one block a rank, in so many micro-batches.

    Args:
        costs: Of the blocks, for the whole batch.
        link: Between neighbours.
        micro_batches: M.
        order: What a rank does when: :func:`gpipe`, :func:`one_forward_one_backward` or
            :func:`zero_bubble`.
    """
    line, count = Timeline(), micro_batches
    queues = [order(rank, len(costs), count) for rank in range(len(costs))]
    while any(queues):
        for rank, queue in enumerate(queues):
            while queue:
                waits = _waits(rank, *queue[0], costs, link, count)
                if not line.has(*(name for name, _ in waits)):
                    break
                what, m = queue.pop(0)
                line.add((what, rank, m), _seconds(costs[rank], what) / count, waits)
    for rank, cost in enumerate(costs):
        line.add(("U", rank, 0), cost.update)
    return line


def block_parallel(
    costs: Sequence[Cost], link: Link, local_steps: int = 1, ratio: float = 1.0
) -> Timeline:
    """An iteration of block-local ADMM: messages of the one before, both ways, and local steps.

    Args:
        costs: Of the blocks.
        link: Between neighbours.
        local_steps: K.
        ratio: By which messages are compressed.
    """
    line = Timeline()
    for rank, cost in enumerate(costs):
        line.add(("S", rank, 0), 0.0)
        step = cost.forward + cost.backward_input + cost.backward_weight + cost.update
        line.add(("K", rank, 0), local_steps * step)
    for rank in range(len(costs)):  # an iteration ends when the next can begin
        after = [(("K", rank, 0), 0.0)]
        if rank > 0:
            after.append((("K", rank - 1, 0), link.seconds(costs[rank - 1].nbytes / ratio)))
        if rank < len(costs) - 1:
            after.append((("K", rank + 1, 0), link.seconds(costs[rank].nbytes / ratio)))
        line.add(("E", rank, 0), 0.0, after)
    return line


def _waits(
    rank: int, what: str, m: int, costs: Sequence[Cost], link: Link, count: int
) -> list[tuple[Name, float]]:
    if what == "F":
        delay = link.seconds(costs[rank - 1].nbytes / count) if rank else 0.0
        return [(("F", rank - 1, m), delay)] if rank else []
    if what == "W":
        return [(("I", rank, m), 0.0)]
    waits: list[tuple[Name, float]] = [(("F", rank, m), 0.0)]
    if rank < len(costs) - 1:
        waits.append(((what, rank + 1, m), link.seconds(costs[rank].nbytes / count)))
    return waits


def _seconds(cost: Cost, what: str) -> float:
    both = cost.backward_input + cost.backward_weight
    each = {"F": cost.forward, "B": both, "I": cost.backward_input, "W": cost.backward_weight}
    return each[what]
