"""How rho changes along a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

Facts = dict[str, float]


class Penalty(Protocol):
    """A rule for rho, by what is measured."""

    def update(self, rho: float, facts: Facts) -> float:
        """The next rho.

        Args:
            rho: The last.
            facts: ``primal`` and ``dual``, squared residuals, and ``loss`` of an iteration.
        """


@dataclass
class Fixed:
    """rho stays."""

    def update(self, rho: float, facts: Facts) -> float:
        """The same."""
        return rho


@dataclass
class LossTriggered:
    """As published with pdADMM-G: rho x 10, up to 1, when the loss failed twice in a row to fall.

    Attributes:
        least: By which the mean loss has to fall.
        factor: Of rho.
        most: The largest rho.
        wait: Iterations before the first change.
    """

    least: float = 1e-3
    factor: float = 10.0
    most: float = 1.0
    wait: int = 3
    losses: list[float] = field(default_factory=list)

    def update(self, rho: float, facts: Facts) -> float:
        """By the last three losses."""
        self.losses.append(facts["loss"] / facts["samples"])
        if len(self.losses) <= self.wait:
            return rho
        a, b, c = self.losses[-3:]
        stuck = c > b - self.least and b > a - self.least
        return min(self.factor * rho, self.most) if stuck else rho


@dataclass
class ResidualBalanced:
    """Boyd et al. 2011, doi:10.1561/2200000016, section 3.4.1: doubles rho where the primal
    residual is more than ten times the dual one, and halves it in the opposite case.

    Attributes:
        ratio: Of the residuals' norms.
        factor: Of rho.
        range: rho stays within this factor of its start.
    """

    ratio: float = 10.0
    factor: float = 2.0
    range: float = 1e3
    start: float | None = None

    def update(self, rho: float, facts: Facts) -> float:
        """By squared residuals."""
        self.start = rho if self.start is None else self.start
        primal, dual = facts["primal"], facts["dual"]
        if primal > self.ratio**2 * dual:
            rho = rho * self.factor
        elif dual > self.ratio**2 * primal:
            rho = rho / self.factor
        return min(max(rho, self.start / self.range), self.start * self.range)
