"""Which rank computes what: KAISA's spectrum (Pauloski et al. 2021).

The P ranks form a grid of m rows and P/m columns, m = fraction * P. A layer belongs to one column:
the m ranks there hold its inverses and precondition its gradient (its gradient workers), one of
them also its factors (its owner). Each row has one worker of every layer, who hands the
preconditioned gradient to the others of the row. With fraction 1 there is one column: everybody
preconditions everything and no gradient is sent; with 1/P one row: every layer has a single worker,
which needs least memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scadl_core.errors import ConfigError


@dataclass(frozen=True)
class Placement:
    """An assignment of layers to ranks, the same on every rank.

    Attributes:
        size: Ranks, P.
        workers: Of each layer, m.
        owners: Layer name to the rank that has its factors.
    """

    size: int
    workers: int
    owners: Mapping[str, int]

    @property
    def columns(self) -> int:
        """P/m."""
        return self.size // self.workers

    def column_of(self, name: str) -> int:
        """The column of a layer."""
        return self.owners[name] % self.columns

    def ranks_of_column(self, column: int) -> list[int]:
        """The workers of a column's layers, ascending."""
        return list(range(column, self.size, self.columns))

    def ranks_of_row(self, rank: int) -> list[int]:
        """The row of a rank, by columns."""
        start = rank // self.columns * self.columns
        return list(range(start, start + self.columns))

    def works(self, rank: int, name: str) -> bool:
        """Whether a rank preconditions a layer."""
        return rank % self.columns == self.column_of(name)


def place(costs: Mapping[str, float], size: int, fraction: float) -> Placement:
    """Gives each layer to the rank with the least work so far, the dearest first (Graham 1969).

    Args:
        costs: Of inverting a layer's factors, any unit.
        size: Ranks.
        fraction: Of ranks that precondition a layer; times ``size`` a divisor of ``size``.

    Raises:
        ConfigError: Another fraction.
    """
    workers = round(fraction * size)
    if (
        not (0 < fraction <= 1)
        or workers < 1
        or size % workers
        or abs(workers - fraction * size) > 1e-6
    ):
        choices = ", ".join(f"{m / size:.4g}" for m in range(1, size + 1) if size % m == 0)
        raise ConfigError(f"fraction: with {size} ranks expected one of {choices}, got {fraction}")
    loads = [0.0] * size
    owners = {}
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        owners[name] = min(range(size), key=lambda rank: (loads[rank], rank))
        loads[owners[name]] += costs[name]
    return Placement(size, workers, owners)
