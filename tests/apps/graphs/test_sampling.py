"""Neighbours are drawn evenly, as asked, and the same however the seeds are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from apps.graphs.csr import CSR, build
from apps.graphs.partition import partition
from apps.graphs.sampling import draw, sample
from scadl_core.errors import ConfigError

DRAWS = 3000


@pytest.fixture(scope="module")
def graph() -> CSR:
    rng = np.random.default_rng(0)
    hub = np.stack([np.zeros(13, int), np.arange(1, 14)])
    ends = np.concatenate([hub, rng.integers(1, 400, (2, 2000))], 1)
    return build([(*ends, None)], 402)  # the last two are isolated


@pytest.mark.parametrize("replace", [False, True])
def test_every_neighbour_is_as_likely(graph: CSR, replace: bool) -> None:
    counts, pairs = np.zeros(13), np.zeros((13, 13))
    for key in range(DRAWS):
        _, entry_M, factor_M = draw(np, graph, np.array([0]), 4, key, replace)
        place = entry_M - graph.indptr[0]
        assert len(place) == 4
        assert replace or len(set(place.tolist())) == 4
        np.testing.assert_allclose(factor_M, 13 / 4)
        np.add.at(counts, place, 1)
        pairs[place[0], place[1]] += 1
    assert chisquare(counts).pvalue > 1e-4
    if replace:  # and the draws of one node are independent
        assert chisquare(pairs.ravel()).pvalue > 1e-4


def test_sums_over_the_drawn_have_the_right_expectation(graph: CSR) -> None:
    x_N = np.random.default_rng(1).random(402)
    exact = np.array([x_N[graph.indices[a:b]].sum() for a, b in pairwise(graph.indptr)])
    for replace in (False, True):
        total_N = np.zeros(402)
        for key in range(400):
            node_M, entry_M, factor_M = draw(np, graph, np.arange(402), 3, key, replace)
            np.add.at(total_N, node_M, factor_M * x_N[graph.indices[entry_M]])
        np.testing.assert_allclose(total_N / 400, exact, atol=1.2)
        assert abs((total_N / 400 - exact).mean()) < 0.05


@pytest.mark.parametrize("replace", [False, True])
def test_edges_do_not_depend_on_the_batch(graph: CSR, replace: bool) -> None:
    """One batch, or one a rank, or one a seed: the same messages into the seeds."""
    seeds = np.random.default_rng(2).permutation(402)[:60]

    def messages(parts: Any) -> set[tuple[int, ...]]:
        found = set()
        for part in parts:
            node_M, entry_M, _ = draw(np, graph, part, 3, 77, replace)
            found |= set(zip(node_M.tolist(), entry_M.tolist(), strict=True))
        return found

    whole = messages([seeds])
    assert messages(np.array_split(seeds, 4)) == whole
    assert messages([seeds[[i]] for i in range(60)]) == whole
    assert messages([seeds[::-1]]) == whole


def test_what_is_sampled_is_a_part_of_the_graph(graph: CSR) -> None:
    seeds = np.array([5, 0, 401, 17])
    found = sample(graph, seeds, [3, 2], 9)
    np.testing.assert_array_equal(found.node_N[:4], seeds)
    assert len(np.unique(found.node_N)) == len(found.node_N)
    np.testing.assert_array_equal(graph.indices[found.entry_M], found.node_N[found.column_M])
    row = np.searchsorted(graph.indptr, found.entry_M, side="right") - 1
    np.testing.assert_array_equal(row, found.node_N[found.row_M])
    into = np.bincount(found.row_M, minlength=len(found.node_N))
    assert into[:4].tolist() == [min(3, graph.degree_N[it]) for it in seeds]
    again = sample(graph, seeds, [3, 2], 9)
    assert all(np.array_equal(*pair) for pair in zip(found, again, strict=True))
    other = sample(graph, seeds, [3, 2], 10)
    assert not np.array_equal(other.entry_M, found.entry_M)


def test_all_neighbours(graph: CSR) -> None:
    found = sample(graph, np.array([0]), [-1], 0)
    assert sorted(found.node_N[1:]) == graph.indices[: graph.indptr[1]].tolist()
    with pytest.raises(ConfigError, match=r"data.fanouts: expected counts from 1, or -1"):
        sample(graph, np.array([0]), [3, 0], 0)


def test_parts_are_even_joined_and_repeatable() -> None:
    """Two rings and a few bridges, with an edge one way and isolated nodes: METIS takes it."""
    ring = np.arange(100)
    ends = np.stack(
        [[*ring, *(ring + 100), 0], [*np.roll(ring, 1), *(np.roll(ring, 1) + 100), 150]]
    )
    graph = build([(*ends, None)], 210, directed=True)
    part_N = partition(graph, 2)
    assert np.bincount(part_N).tolist() == [105, 105] or abs(np.bincount(part_N) - 105).max() <= 6
    cut = part_N[graph.rows_of_messages()] != part_N[graph.indices]
    assert cut.sum() <= 6
    np.testing.assert_array_equal(part_N, partition(graph, 2))
    assert partition(graph, 1).tolist() == [0] * 210
    assert sorted(partition(build([], 3), 5)) == [0, 1, 2]
