"""What ranks did when, in Chrome's trace format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from scadl_core.admm.steptime import Cost, Link, Timeline, one_forward_one_backward, pipeline

MOST = 2000  # spans that a rank remembers, the newest
MICRO_BATCHES = 4
_WORDS = {"F": "forward", "B": "backward", "U": "update"}


class Span(NamedTuple):
    """Something that took a while; seconds of ``time.perf_counter``."""

    name: str
    began: float
    ended: float


class Trace:
    """The newest spans of one rank.

    Args:
        most: How many are remembered.

    Attributes:
        zero: What counts as the beginning; ranks of hosts with clocks of their own set it when they
            have waited for one another.
    """

    def __init__(self, most: int = MOST) -> None:
        self.spans: deque[Span] = deque(maxlen=most)
        self.zero = time.perf_counter()

    def add(self, name: str, began: float) -> float:
        """Remembers what ends now; how long it took."""
        ended = time.perf_counter()
        self.spans.append(Span(name, began, ended))
        return ended - began

    def since_zero(self) -> list[Span]:
        """In the order in which they ended."""
        return [Span(it.name, it.began - self.zero, it.ended - self.zero) for it in self.spans]


def chrome(ranks: Sequence[tuple[str, Sequence[Span]]], expected: Timeline | None = None) -> Any:
    """The plain values of a trace file.

    Args:
        ranks: Each one's name and spans.
        expected: A pipeline of the same blocks, which is shown from the same beginning on, rank for
            rank.
    """
    first = min((it.began for _, spans in ranks for it in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for number, (name, spans) in enumerate(ranks):
        events += _named(number, name)
        events += [_event(number, it.name, it.began - first, it.ended - first) for it in spans]
    if expected is not None:
        for (what, rank, batch), (began, ended) in expected.spans.items():
            words = f"{_WORDS.get(what, what)} of micro-batch {batch}" if what != "U" else "update"
            events.append(_event(len(ranks) + rank, words, began, ended))
        for rank in expected.busy:
            words = f"rank {rank} of a pipeline, predicted: {expected.bubble:.0%} bubble"
            events += _named(len(ranks) + rank, words)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def expected_pipeline(seconds: Sequence[float], steps: int, link: Link = Link()) -> Timeline:  # noqa: B008
    """1F1B on blocks that take so long a local step, a backward pass taken for two forward ones.

    Args:
        seconds: Of an iteration of each rank's blocks.
        steps: Local steps of it.
        link: Between ranks.
    """
    third = [it / steps / 3 for it in seconds]
    return pipeline(
        [Cost(it, it, it) for it in third], link, MICRO_BATCHES, one_forward_one_backward
    )


def _event(rank: int, name: str, began: float, ended: float) -> dict[str, Any]:
    micro = 1e6
    return {
        "name": name, "ph": "X", "pid": rank, "tid": 0, "ts": round(began * micro, 3),
        "dur": round((ended - began) * micro, 3),
    }  # fmt: skip


def _named(rank: int, name: str) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "ph": "M", "pid": rank, "tid": 0, "args": {"name": name}},
        {"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}},
    ]
