"""A machine as the cost model sees it: ranks on nodes, two kinds of links, and rates.

Messages cost latency + bytes / bandwidth; the laws of collectives are those of Thakur, Rabenseifner
and Gropp (2005), over nodes and over the ranks of a node one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from scadl_core.admm.steptime import Link

_IDEAL = Link()


@dataclass(frozen=True)
class Machine:
    """What a run has at its disposal.

    Attributes:
        ranks: Processes, P; a multiple of ``ranks_per_node`` or fewer.
        ranks_per_node: g.
        link: Between nodes: seconds, and bytes a second that one node sends.
        local: Between the ranks of a node: seconds, and bytes a second that one rank sends.
        pair: Between two neighbouring ranks, point to point.
        matmul: Floating-point operations a second of one rank, in the precision of a training.
        stream: Bytes a second that a pass over a tensor reads.
        factor: Seconds of a Cholesky factorisation with inverse, of n rows: of it the part that
            does not depend on n, and that of n^3.
        encode: Bytes of float32 a second that the codec compresses.
        decode: The same of decompression.
        memory: Of a rank's device, in bytes.
    """

    ranks: int = 1
    ranks_per_node: int = 1
    link: Link = _IDEAL
    local: Link = _IDEAL
    pair: Link = _IDEAL
    matmul: float = 1e12
    stream: float = 1e11
    factor: tuple[float, float] = (1e-5, 1e-12)
    encode: float = 1e9
    decode: float = 1e9
    memory: float = math.inf

    @property
    def nodes(self) -> int:
        """N."""
        return max(1, -(-self.ranks // self.ranks_per_node))

    @property
    def on_node(self) -> int:
        """Ranks of this run on a node."""
        return min(self.ranks, self.ranks_per_node)

    def with_ranks(self, ranks: int) -> Machine:
        """The same machine, more or less of it."""
        return replace(self, ranks=ranks)

    def all_reduce(self, nbytes: float, ranks: int | None = None) -> float:
        """Seconds of a sum over ranks that everybody gets: rings in nodes, and between them.

        2 ceil(log2 p) latencies and 2 (p - 1)/p n bytes at each of the two levels (Rabenseifner).

        Args:
            nbytes: n, of one rank.
            ranks: By default all.
        """
        return 2 * self._half(nbytes, ranks)

    def reduce(self, nbytes: float) -> float:
        """Seconds of a sum that one rank gets: half of an all-reduce where messages are large."""
        return self._half(nbytes, None)

    def broadcast(self, nbytes: float, ranks: int, messages: int = 1) -> float:
        """Seconds until so many ranks have what one of them had, pipelined along a tree.

        Args:
            nbytes: Of all messages together.
            ranks: That have them then.
            messages: How many.
        """
        if ranks < 2 or not nbytes:
            return 0.0
        link = self.local if ranks <= self.on_node else self.link
        return messages * _rounds(ranks) * link.latency + nbytes / link.bandwidth

    def all_to_all(self, nbytes: float) -> float:
        """Seconds until every rank has sent each other one its 1/P of n bytes.

        Nothing is added up on the way, so that all g ranks of a node share its link:
        g (N - 1)/N n bytes; ceil(log2 P) latencies (Bruck et al. 1997).
        """
        between = self.on_node * (self.nodes - 1) / self.nodes * nbytes / self.link.bandwidth
        within = (self.on_node - 1) / self.ranks * nbytes / self.local.bandwidth
        link = self.link if self.nodes > 1 else self.local
        return _rounds(self.ranks) * link.latency + between + within

    def invert(self, size: float) -> float:
        """Seconds of the inverse of a symmetric matrix of so many rows."""
        return self.factor[0] + self.factor[1] * size**3

    def _half(self, nbytes: float, ranks: int | None) -> float:
        ranks = self.ranks if ranks is None else ranks
        on_node = min(ranks, self.ranks_per_node)
        nodes = -(-ranks // self.ranks_per_node)
        found = 0.0
        for count, link in ((on_node, self.local), (nodes, self.link)):
            found += _rounds(count) * link.latency + (count - 1) / count * nbytes / link.bandwidth
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Machine:
        """From :meth:`to_json`; raises TypeError or ValueError where it is something else."""
        links = {name: Link(*map(float, values[name])) for name in ("link", "local", "pair")}
        constant, cubic = values["factor"]
        return cls(**{**values, **links, "factor": (float(constant), float(cubic))})


def _rounds(ranks: int) -> int:
    return math.ceil(math.log2(max(1, ranks)))
