"""Plans against all plans there are."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scadl_core.memory.planner import LOOSEST, MARGIN, Item, Recomputable, make_plan

SIZES = st.integers(1, 1000)
ITEMS = st.lists(
    st.tuples(SIZES, st.floats(1.5, 20), st.floats(1e-4, 1), st.sampled_from([None, "a", "b"])),
    min_size=1, max_size=6,
)  # fmt: skip


def of(drawn: list[tuple[int, float, float, str | None]]) -> list[Item]:
    """In the order of blocks, as a forward pass has them."""
    ordered = sorted(drawn, key=lambda it: it[3] or "")
    return [
        Item(f"t{n}", 1000 * raw, int(1000 * raw / ratio), 1e-3 * seconds, block)
        for n, (raw, ratio, seconds, block) in enumerate(ordered)
    ]


def cost(
    items: list[Item], blocks: list[Recomputable], keep: set[str], again: set[str]
) -> tuple[float, float]:
    """Bytes and seconds, from the definitions."""
    kept, seconds, most = 0.0, sum(b.seconds for b in blocks if b.name in again), 0.0
    inputs = {b.name: b.inputs for b in blocks}
    met: dict[str, float] = {}
    for it in items:
        if it.block in again:
            if it.block not in met:
                kept += inputs[it.block]
                met[it.block] = kept
            met[it.block] += it.raw
            most = max(most, met[it.block])
        elif it.name in keep:
            kept += it.raw
        else:
            kept, seconds = kept + it.stored, seconds + it.seconds
    return max(kept, most), seconds


def best(items: list[Item], blocks: list[Recomputable], budget: float) -> float:
    """The least seconds of all plans that fit; infinite where none does."""
    names, found = [it.name for it in items], float("inf")
    for bits in itertools.product([False, True], repeat=len(names) + len(blocks)):
        keep = {name for name, bit in zip(names, bits, strict=False) if bit}
        again = {b.name for b, bit in zip(blocks, bits[len(names) :], strict=True) if bit}
        nbytes, seconds = cost(items, blocks, keep, again)
        if nbytes <= budget:
            found = min(found, seconds)
    return found


@given(ITEMS, st.floats(0.05, 1.2), st.floats(1e-5, 1e-3))
def test_a_plan_is_what_it_says_and_fits_where_compression_does(
    drawn: list[tuple[int, float, float, str | None]], share: float, again: float
) -> None:
    items = of(drawn)
    blocks = [Recomputable("a", again, 1000), Recomputable("b", 2 * again, 2000)]
    budget = share * sum(it.raw for it in items)
    plan = make_plan(items, blocks, budget, 0.01)
    nbytes, seconds = cost(items, blocks, set(plan.keep), set(plan.recompute))
    if not plan.loosened:
        assert (plan.nbytes, plan.seconds) == pytest.approx((nbytes, seconds))
    if sum(it.stored for it in items) <= 0.97 * budget:
        assert nbytes <= budget
        everything = sum(it.seconds for it in items)
        assert plan.seconds <= everything + 1e-12
    if sum(it.raw for it in items) <= 0.97 * budget:
        assert plan.seconds == 0


def test_the_least_time_is_found_where_prices_can_tell() -> None:
    """Lagrange multipliers find every plan on the convex hull; between them a little is lost."""
    items = [Item(f"t{n}", 10**6, 10**5, 1e-3 * (n + 1), "a" if n < 3 else "b") for n in range(6)]
    blocks = [Recomputable("a", 1.5e-3, 10**5), Recomputable("b", 40e-3, 10**5)]
    for share in (0.15, 0.3, 0.5, 0.7, 0.9):
        budget = share * 6e6
        plan = make_plan(items, blocks, budget / 0.97, 0.01)
        assert plan.nbytes <= budget
        assert plan.seconds <= best(items, blocks, budget) + 3e-3


def test_a_block_that_would_hold_too_much_is_not_computed_again() -> None:
    items = [Item("big", 10**6, 10**5, 1.0, "a")]
    plan = make_plan(items, [Recomputable("a", 1e-6, 10)], 5e5, 0.01)
    assert plan.recompute == frozenset()
    assert plan.keep == frozenset()


def test_bounds_are_loosened_by_the_closed_form() -> None:
    """Of two tensors with the same sensitivity the larger one takes the larger error: the relative
    error goes as the root of the number of values.
    """
    items = [
        Item("large", 4 * 64_000, 40_000, 1.0, values=64_000.0),
        Item("small", 4 * 1_000, 1_000, 1.0, values=1_000.0),
    ]
    plan = make_plan(items, [], 9_300, 0.01)
    assert plan.nbytes <= 9_300
    assert plan.loosened["large"] / plan.loosened.get("small", 1.0) == pytest.approx(8, rel=0.05)
    # A bit of each value for each doubling, so the bytes are what they would be.
    tight = make_plan(items, [], 1_000, 0.01)
    assert max(tight.loosened.values()) == LOOSEST


def test_bytes_of_another_bound() -> None:
    item = Item("t", 4 * 8000, 8000, 1.0, values=8000.0, loosened=2.0)
    assert item.bytes_at(2.0) == 8000
    assert item.bytes_at(4.0) == 7000
    assert item.bytes_at(1.0) == 9000


@given(st.data())
def test_with_a_host_plans_fit_and_cost_no_more(data: st.DataObject) -> None:
    """Every tensor may be moved at some rate: what fits without fits with it, and hardly slower."""
    count = data.draw(st.integers(1, 8))
    number = st.integers(1, 1000)
    items = [
        Item(str(n), data.draw(number), data.draw(number), data.draw(number) / 1e6)
        for n in range(count)
    ]
    budget = data.draw(st.integers(1, 4000))
    near = [replace(it, moving=data.draw(number) / 1e6) for it in items]
    plain, moving = make_plan(items, [], budget, 0.01), make_plan(near, [], budget, 0.01)
    assert moving.nbytes <= budget
    assert not moving.keep & moving.offload
    held = sum(it.raw if it.name in moving.keep else it.stored * (it.name not in moving.offload)
               for it in near)  # fmt: skip
    assert moving.nbytes == held
    if plain.nbytes <= MARGIN * budget and not plain.offload and not plain.loosened:
        assert moving.seconds <= plain.seconds * 1.5 + 1e-12


def test_what_is_slow_to_code_is_moved_and_what_is_far_is_coded() -> None:
    fast_link = Item("a", raw=100, stored=10, seconds=1e-4, moving=1e-5)
    slow_link = Item("b", raw=100, stored=10, seconds=1e-4, moving=5e-4)
    plan = make_plan([fast_link, slow_link], [], 20, 0.01)
    assert (plan.keep, plan.offload) == (set(), {"a"})
    assert plan.seconds == pytest.approx(1.1e-4)
