"""The step-time model against the closed formulas of the schedules' papers."""

from __future__ import annotations

import pytest

from scadl_core.admm.steptime import (
    Cost,
    Link,
    block_parallel,
    gpipe,
    one_forward_one_backward,
    pipeline,
    zero_bubble,
)

EQUAL = Cost(forward=1.0, backward_input=1.0, backward_weight=1.0)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("order", [gpipe, one_forward_one_backward])
def test_equal_blocks_take_m_plus_p_minus_one_micro_steps(ranks, count, order) -> None:
    line = pipeline([EQUAL] * ranks, Link(), count, order)
    assert line.makespan == pytest.approx(3.0 / count * (count + ranks - 1))
    assert line.bubble == pytest.approx((ranks - 1) / (count + ranks - 1))


@pytest.mark.parametrize(("ranks", "count"), [(2, 4), (4, 8), (4, 16), (8, 16)])
def test_zero_bubble_leaves_a_third_of_the_bubble(ranks: int, count: int) -> None:
    """ZB-H1: (p - 1)(T_F + T_B - T_W), where 1F1B has (p - 1)(T_F + T_B + T_W)."""
    line = pipeline([EQUAL] * ranks, Link(), count, zero_bubble)
    assert line.makespan == pytest.approx(3.0 + (ranks - 1) / count)


def test_messages_delay_by_latency_and_bandwidth() -> None:
    costs = [Cost(1.0, 1.0, 1.0, nbytes=8.0)] * 2
    line = pipeline(costs, Link(latency=0.25, bandwidth=16.0), 1, gpipe)
    assert line.makespan == pytest.approx(6.0 + 2 * 0.75)


def test_block_parallel_waits_for_the_slowest_neighbour_alone() -> None:
    costs = [Cost(1, 1, 1, 0.5, nbytes=8), Cost(2, 2, 2, 0.5, nbytes=8), EQUAL, EQUAL]
    line = block_parallel(costs, Link(0.1, 80.0), local_steps=2, ratio=4.0)
    assert line.spans["E", 0, 0][1] == pytest.approx(13 + 0.1 + 8 / 4 / 80)
    assert line.spans["E", 3, 0][1] == pytest.approx(6 + 0.1)
