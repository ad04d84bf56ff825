"""Laws of collectives against formulas done by hand, and the round trip through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scadl_core.admm.steptime import Link
from scadl_core.tuning import Machine

FLAT = Machine(ranks=4, ranks_per_node=1, link=Link(1e-3, 1e6))
TWO_LEVELS = Machine(ranks=8, ranks_per_node=4, link=Link(1e-3, 1e6), local=Link(1e-4, 1e8))


def test_a_ring_sends_twice_three_quarters_among_four() -> None:
    # 2 ceil(log2 4) latencies, 2 * 3/4 * 1e6 bytes at 1e6 a second
    assert FLAT.all_reduce(1e6) == pytest.approx(4e-3 + 1.5)
    assert FLAT.reduce(1e6) == pytest.approx(FLAT.all_reduce(1e6) / 2)


def test_two_levels_add_up() -> None:
    within = 2 * (2 * 1e-4 + 3 / 4 * 1e6 / 1e8)
    between = 2 * (1 * 1e-3 + 1 / 2 * 1e6 / 1e6)
    assert TWO_LEVELS.all_reduce(1e6) == pytest.approx(within + between)


def test_what_cannot_be_added_up_shares_the_link_of_a_node() -> None:
    # Each of 4 ranks sends half of its bytes to the other node.
    between = 4 * 1 / 2 * 1e6 / 1e6
    within = 3 / 8 * 1e6 / 1e8
    assert TWO_LEVELS.all_to_all(1e6) == pytest.approx(3 * 1e-3 + between + within)


def test_a_tree_has_a_latency_a_level_and_message() -> None:
    assert FLAT.broadcast(1e6, 4, messages=5) == pytest.approx(5 * 2 * 1e-3 + 1.0)
    assert FLAT.broadcast(1e6, 1) == 0
    assert FLAT.broadcast(0, 4) == 0
    assert TWO_LEVELS.broadcast(1e6, 4) == pytest.approx(2 * 1e-4 + 1e-2)


def test_one_rank_says_nothing() -> None:
    alone = Machine(link=Link(1.0, 1.0), local=Link(1.0, 1.0))
    assert alone.all_reduce(1e9) == alone.all_to_all(1e9) == alone.reduce(1e9) == 0


@given(st.integers(1, 512), st.integers(1, 8), st.floats(0, 1e9))
def test_more_ranks_never_take_less(ranks: int, on_node: int, nbytes: float) -> None:
    machine = replace(TWO_LEVELS, ranks=ranks * on_node, ranks_per_node=on_node)
    more = machine.with_ranks(2 * machine.ranks)
    assert more.all_reduce(nbytes) >= machine.all_reduce(nbytes)
    assert machine.all_reduce(2 * nbytes) <= 2 * machine.all_reduce(nbytes)


def test_a_matrix_costs_its_cube() -> None:
    machine = replace(FLAT, factor=(0.5, 1e-6))
    assert machine.invert(100) == pytest.approx(1.5)


def test_json_and_back() -> None:
    machine = replace(TWO_LEVELS, factor=(1e-4, 1e-11), memory=math.inf)
    assert Machine.from_json(json.loads(json.dumps(machine.to_json()))) == machine
    with pytest.raises((TypeError, ValueError, KeyError)):
        Machine.from_json({"ranks": 2})
