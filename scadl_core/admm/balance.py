"""Which blocks on which rank: contiguous parts, the slowest of which is as fast as can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scadl_core.errors import ConfigError


def partition(
    costs: Sequence[float],
    parts: int,
    sizes: Sequence[float] | None = None,
    limits: Sequence[float] | None = None,
) -> list[range]:
    """The contiguous partition whose largest sum of costs is smallest, by dynamic programming.

    Every part has at least one block. Of equally good partitions the one whose early parts are
    shortest is taken, so that all ranks agree.

    Args:
        costs: Of each block, such as seconds an iteration.
        parts: How many, one a rank.
        sizes: Memory of each block, in bytes.
        limits: Memory of each rank, in bytes.

    Raises:
        ConfigError: More parts than blocks, or no partition within the limits.
    """
    count = len(costs)
    if not 1 <= parts <= count:
        raise ConfigError(
            f"ADMM: {count} blocks cannot be spread over {parts} ranks; start at most {count} "
            "ranks or cut the network into more blocks"
        )
    sums = _running(costs)
    bytes_ = _running(sizes or [0.0] * count)
    limits = limits or [math.inf] * parts
    # best[k][n]: the slowest of k parts of the first n blocks; begin[k][n]: where the k-th begins
    best = [[math.inf] * (count + 1) for _ in range(parts + 1)]
    begin = [[0] * (count + 1) for _ in range(parts + 1)]
    best[0][0] = 0.0
    for part in range(1, parts + 1):
        for end in range(part, count + 1):
            for start in range(part - 1, end):
                slowest = max(best[part - 1][start], sums[end] - sums[start])
                fits = bytes_[end] - bytes_[start] <= limits[part - 1]
                if fits and slowest < best[part][end]:
                    best[part][end], begin[part][end] = slowest, start
    if math.isinf(best[parts][count]):
        raise ConfigError(
            f"ADMM: no partition of {count} blocks over {parts} ranks keeps every rank within its "
            f"memory; the largest block needs {max(sizes or [0.0]):.3g} bytes: start more ranks, "
            "or cut the network into smaller blocks"
        )
    return _trace_back(begin, parts, count)


def slowest(costs: Sequence[float], placement: Sequence[range]) -> float:
    """The largest sum of costs of a part."""
    return max(sum(costs[index] for index in part) for part in placement)


def _running(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums


def _trace_back(begin: list[list[int]], parts: int, count: int) -> list[range]:
    found: list[range] = []
    for part in range(parts, 0, -1):
        found.append(range(begin[part][count], count))
        count = begin[part][count]
    return found[::-1]
