"""The partition against all partitions."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scadl_core.admm.balance import partition, slowest
from scadl_core.errors import ConfigError


def every(count: int, parts: int) -> list[list[range]]:
    cuts = combinations(range(1, count), parts - 1)
    return [[range(a, b) for a, b in pairwise((0, *cut, count))] for cut in cuts]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 4), st.integers(5, 60))
def test_no_partition_within_the_limits_is_faster(costs: list[int], parts: int, limit: int) -> None:
    parts = min(parts, len(costs))
    sizes = [float(cost) for cost in costs[::-1]]
    limits = [float(limit + rank) for rank in range(parts)]
    allowed = [
        it
        for it in every(len(costs), parts)
        if all(sum(sizes[i] for i in p) <= most for p, most in zip(it, limits, strict=True))
    ]
    best = min((slowest(costs, it) for it in allowed), default=math.inf)
    if math.isinf(best):
        with pytest.raises(ConfigError, match="within its memory"):
            partition(costs, parts, sizes, limits)
    else:
        found = partition(costs, parts, sizes, limits)
        assert found in allowed and slowest(costs, found) == best


def test_more_ranks_than_blocks_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 blocks cannot be spread over 3 ranks"):
        partition([1.0, 1.0], 3)
