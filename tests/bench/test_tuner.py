"""The grid of plans, and its summary against numbers done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scadl_core.bench.plans import Measured, grid, rows_of
from scadl_core.bench.rows import value_of
from scadl_core.tuning import Cost, Machine, Network, Plan

COST = Cost(1.0, 1.0, 0.0, 0.0, 0.0, 100e6, 0.0)


def test_the_grid() -> None:
    assert len(set(grid(quick=False))) == 48
    assert len(set(grid(quick=True))) == 12
    assert Plan() in grid(quick=True)


def test_a_summary_by_hand() -> None:
    found = [
        Measured(Plan(), COST, 1.1),
        Measured(Plan("bf16"), replace(COST, seconds=0.5, error=0.002), 0.8),
        Measured(Plan("powersgd", 1.0), replace(COST, seconds=0.6, error=0.9, memory=120e6), 0.2),
    ]
    rows = rows_of("link", Machine(ranks=2), Network(shapes=((2, 2),)), found)
    assert value_of(rows, "link", "comm bf16", "ratio") == pytest.approx(0.5 / 0.8)
    assert value_of(rows, "link: predictions", "within 20 %", "value") == pytest.approx(1 / 3)
    assert value_of(rows, "link: predictions", "median error", "value") == pytest.approx(0.375)
    picks = {row.method: row.value for row in rows if row.case == "link: pick over best"}
    assert picks == pytest.approx({
        "120 MB, error 0.01: comm bf16": 1.0,
        "120 MB, error 1: comm bf16": 4.0,  # predicted to be the fastest, and was not
        "110 MB, error 0.01: comm bf16": 1.0,
        "110 MB, error 1: comm bf16": 1.0,
    })  # fmt: skip
