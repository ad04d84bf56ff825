"""Sampling of neighbours, as a function of a key and the node alone.

Which neighbours of a node are drawn depends on (key, layer, node), not on the batch it is in, nor
on threads, reading processes or ranks: any cutting of the seeds gives the same edges. Arrays are
NumPy's or CuPy's, with the same result.

Suffixes: N node, S seed or node whose neighbours are drawn, M message (an edge one way).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from apps.graphs.csr import CSR
from scadl_core.errors import ConfigError


class Sampled(NamedTuple):
    """A part of a graph.

    Attributes:
        node_N: int64, the seeds first, in their order.
        row_M: int64, places in ``node_N`` of the receiving ends.
        column_M: int64, places of the sending ends.
        entry_M: int64, places in ``indices`` of the graph.
        factor_M: float32, by which a sum over the drawn neighbours has to be weighted so that its
            expectation is the sum over all.
    """

    node_N: Any
    row_M: Any
    column_M: Any
    entry_M: Any
    factor_M: Any


def sample(
    graph: CSR, seed_S: Any, fanouts: Sequence[int], key: int, replace: bool = False
) -> Sampled:
    """Draws neighbours of the seeds, of these, and so on: Hamilton et al. 2017, arXiv:1706.02216.

    Args:
        graph: The graph, its arrays of NumPy or CuPy.
        seed_S: int64, distinct nodes.
        fanouts: Neighbours of a node in each layer, from the seeds outwards; -1: all.
        key: A seed of 63 bits.
        replace: Whether a neighbour can be drawn twice; without, a node of fewer neighbours has
            all of them.

    Raises:
        ConfigError: A fan-out that is none.
    """
    if any(it < 1 and it != -1 for it in fanouts):
        raise ConfigError(f"data.fanouts: expected counts from 1, or -1 for all, got {fanouts}")
    xp = np if isinstance(seed_S, np.ndarray) else __import__("cupy")
    node_N, frontier_S, parts = seed_S, seed_S, []
    for layer, fanout in enumerate(fanouts):
        drawn = draw(xp, graph, frontier_S, fanout, mix(key, layer), replace)
        parts.append(drawn)
        sender_M = graph.indices[drawn[1]].astype(np.int64)
        frontier_S = xp.setdiff1d(sender_M, node_N)  # sorted, each once
        node_N = xp.concatenate([node_N, frontier_S])
    receiver_M, entry_M, factor_M = (xp.concatenate(it) for it in zip(*parts, strict=True))
    order_N = xp.argsort(node_N)
    row_M, column_M = (
        order_N[xp.searchsorted(node_N[order_N], it)]
        for it in (receiver_M, graph.indices[entry_M].astype(np.int64))
    )
    return Sampled(node_N, row_M, column_M, entry_M, factor_M)


def draw(
    xp: Any, graph: CSR, node_S: Any, fanout: int, key: int, replace: bool
) -> tuple[Any, Any, Any]:
    """Neighbours of each of some nodes: the node, the entry of the graph, the factor; each of M."""
    degree_S = graph.indptr[node_S + 1] - graph.indptr[node_S]
    whole_S = degree_S > 0 if fanout == -1 else (degree_S <= fanout) & (not replace)
    all_M = _all_entries(xp, graph, node_S[whole_S], degree_S[whole_S])
    if fanout == -1:
        return *all_M, xp.ones(len(all_M[0]), np.float32)
    some_S = ~whole_S & (degree_S > 0)
    node_S, degree_S = node_S[some_S], degree_S[some_S]
    pick = _with_replacement if replace else _without_replacement
    place_SJ = pick(xp, node_S.astype(np.uint64), degree_S, fanout, key)
    entry_M = (graph.indptr[node_S][:, None] + place_SJ).reshape(-1)
    factor_M = xp.repeat((degree_S / fanout).astype(np.float32), fanout)
    return (
        xp.concatenate([all_M[0], xp.repeat(node_S, fanout)]),
        xp.concatenate([all_M[1], entry_M]),
        xp.concatenate([xp.ones(len(all_M[0]), np.float32), factor_M]),
    )


def _all_entries(xp: Any, graph: CSR, node_S: Any, degree_S: Any) -> tuple[Any, Any]:
    # How many come before; repeats may be an array of CuPy only in its latest versions.
    owner_M = xp.searchsorted(xp.cumsum(degree_S), xp.arange(int(degree_S.sum())), side="right")
    before_S = xp.cumsum(degree_S) - degree_S
    entry_M = (graph.indptr[node_S] - before_S)[owner_M] + xp.arange(len(owner_M))
    return node_S[owner_M], entry_M


def _with_replacement(xp: Any, node_S: Any, degree_S: Any, fanout: int, key: int) -> Any:
    columns = [_below(xp, node_S, degree_S, key, j) for j in range(fanout)]
    return xp.stack(columns, 1)


def _without_replacement(xp: Any, node_S: Any, degree_S: Any, fanout: int, key: int) -> Any:
    """Floyd's algorithm, a step for all nodes at a time: Bentley and Floyd 1987,
    doi:10.1145/30401.315746.
    """
    place_SJ = xp.full((len(node_S), fanout), -1, np.int64)
    for j in range(fanout):
        last_S = degree_S - fanout + j
        place_S = _below(xp, node_S, last_S + 1, key, j)
        taken_S = (place_SJ[:, :j] == place_S[:, None]).any(1)
        place_SJ[:, j] = xp.where(taken_S, last_S, place_S)
    return place_SJ


def _below(xp: Any, node_S: Any, end_S: Any, key: int, step: int) -> Any:
    """A whole number from 0 to below each end, itself below 2^31, of 32 random bits."""
    bits_S = mix(node_S ^ np.uint64(mix(key, step))) >> np.uint64(32)
    return ((bits_S * end_S.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def mix(value: Any, more: int = 0) -> Any:
    """64 bits that look random, of 64 bits and a small number.

    The output function of SplitMix64: Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195.
    """
    if isinstance(value, int):
        start = (value + 0x9E3779B97F4A7C15 * (more + 1)) & 0xFFFFFFFFFFFFFFFF
        return int(mix(np.full(1, start, np.uint64))[0])
    value = value * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
