"""Who computes what, over all sizes."""

from __future__ import annotations

import pytest

from scadl_core.errors import ConfigError
from scadl_core.optim.placement import place


@pytest.mark.parametrize("size", [1, 2, 4, 6, 12])
def test_every_layer_has_its_workers_and_each_row_one_of_them(size: int) -> None:
    costs = {f"layer{n}": float(n % 5 + 1) for n in range(17)}
    for workers in (m for m in range(1, size + 1) if size % m == 0):
        placement = place(costs, size, workers / size)
        for name in costs:
            working = [rank for rank in range(size) if placement.works(rank, name)]
            assert len(working) == workers
            assert working == placement.ranks_of_column(placement.column_of(name))
            assert placement.owners[name] in working
            for rank in range(size):
                row = placement.ranks_of_row(rank)
                assert rank in row
                assert row[placement.column_of(name)] in working
                assert len(set(row) & set(working)) == 1


def test_load_is_within_the_bound_of_greedy_scheduling() -> None:
    """Largest first is at most 4/3 of the optimum (Graham 1969)."""
    costs = {f"layer{n}": float(n**3) for n in range(1, 30)}
    for size in (2, 3, 5, 8):
        placement = place(costs, size, 1 / size)
        loads = [sum(c for n, c in costs.items() if placement.owners[n] == r) for r in range(size)]
        assert max(loads) <= 4 / 3 * max(sum(costs.values()) / size, max(costs.values()))


def test_equal_layers_are_shared_equally() -> None:
    placement = place({f"layer{n:02}": 1.0 for n in range(12)}, 4, 0.25)
    assert sorted(placement.owners.values()) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.75, 1.5, -0.5])
def test_other_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match=r"with 4 ranks expected one of 0.25, 0.5, 1, got"):
        place({"layer": 1.0}, 4, fraction)
