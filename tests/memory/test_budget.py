"""Budgets as a person writes them; the largest batch against a plain search."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scadl_core.errors import ActivationError
from scadl_core.memory.budget import device_bytes, largest_batch, parse_budget

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("6GiB", 6 * 2**30), ("500 MB", 5 * 10**8), ("1.5kib", 1536), (1e6, 10**6), (None, None)],
)
def test_budgets(text: str | float | None, expected: int | None) -> None:
    assert parse_budget(text, CPU) == expected


def test_a_share_of_the_machine() -> None:
    total = device_bytes(CPU)
    assert total > 2**28
    assert parse_budget(0.25, CPU) == parse_budget("0.25", CPU) == int(0.25 * total)


@pytest.mark.parametrize("text", ["six", "6 apples", "-1", "0", "nan", "1e999", "", "--5GiB"])
def test_no_budgets(text: str) -> None:
    with pytest.raises(ActivationError, match="6GiB"):
        parse_budget(text, CPU)


@given(st.integers(1, 300), st.integers(0, 50), st.integers(1, 5000), st.integers(1, 200))
def test_largest_batch(slope: int, rest: int, budget: int, most: int) -> None:
    tried: list[int] = []

    def measure(size: int) -> int:
        tried.append(size)
        return rest + slope * size

    fits = [size for size in range(1, most + 1) if rest + slope * size <= budget]
    if not fits:
        with pytest.raises(ActivationError, match="batch of 1"):
            largest_batch(measure, budget, most)
        return
    assert largest_batch(measure, budget, most) == max(fits)
    assert max(tried) <= most
    assert len(tried) <= 2 * max(fits).bit_length() + 3
