"""What K-FAC covers, who computes it, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from scadl_core.optim.layers import Layer

if TYPE_CHECKING:
    from scadl_core.optim.kfac import KFAC

_SAMPLE = 256  # rows of the matrices by which a device is timed


@dataclass(frozen=True)
class Line:
    """One preconditioned layer.

    Attributes:
        layer: Its name.
        kind: Of its module.
        factors: Such as ``"A 257, G 3 x 64"``; a diagonal as ``"A diag 9000"``.
        owner: The rank that has its factors.
        factor_bytes: There: averages and inverses.
        milliseconds: Predicted for one step on this device, inversion shared over its period; the
            statistics, which depend on the batch, are not in it.
    """

    layer: str
    kind: str
    factors: str
    owner: int
    factor_bytes: int
    milliseconds: float


@dataclass(frozen=True)
class Report:
    """Coverage of a model.

    Attributes:
        lines: Preconditioned layers.
        uncovered: Parameter name to why the inner optimizer alone trains it.
        covered_share: Of trained parameters, those that are preconditioned, in [0, 1].
    """

    lines: list[Line]
    uncovered: dict[str, str]
    covered_share: float

    def __str__(self) -> str:
        rows = [("layer", "kind", "factors", "owner", "KiB", "ms")]
        rows += [
            (
                line.layer, line.kind, line.factors, str(line.owner),
                f"{line.factor_bytes / 1024:.0f}", f"{line.milliseconds:.3f}",
            )
            for line in self.lines
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        text.append(f"preconditioned: {100 * self.covered_share:.1f} % of trained parameters")
        text += [f"not: {name} ({reason})" for name, reason in self.uncovered.items()]
        return "\n".join(text)


def explain(optimizer: KFAC) -> Report:
    """See :meth:`scadl_core.optim.KFAC.explain`."""
    period = optimizer.period_of_inversion()
    lines = []
    for layer in optimizer.layers.values():
        sides = layer.sides.items()
        numel = sum(side.numel for _, side in sides)
        lines.append(
            Line(
                layer.name,
                layer.kind,
                ", ".join(
                    f"{name} " + (f"diag {s.groups}" if s.is_diagonal else _size(s.groups, s.size))
                    for name, s in sides
                ),
                optimizer.exchange.placement.owners[layer.name],
                2 * numel * layer.dtype.itemsize,
                1e3 * _seconds(layer, period),
            )
        )
    covered = {id(p): p.numel() for x in optimizer.layers.values() for p in x.parameters}
    trained = {id(p): p.numel() for g in optimizer.param_groups for p in g["params"]}
    share = sum(covered.values()) / max(1, sum(trained.values()))
    return Report(lines, dict(optimizer.coverage.uncovered), share)


def _size(groups: int, size: int) -> str:
    return f"{groups} x {size}" if groups > 1 else f"{size}"


def _seconds(layer: Layer, period: int) -> float:
    product, inversion = _rates(layer.device, layer.dtype)
    inverting = sum(s.groups * s.size**3 for s in layer.sides.values()) * inversion / period
    groups, outputs, inputs = layer.shape
    sides = (layer.gradient_side, layer.input_side)
    widths = sum(side.size for side in sides if side is not None and not side.is_diagonal)
    return inverting + groups * outputs * inputs * widths * product


@cache
def _rates(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Seconds for each n^3 of a matrix product and of an inversion on a device."""
    matrix = torch.eye(_SAMPLE, dtype=dtype, device=device) + 0.01

    def invert() -> None:
        torch.cholesky_inverse(torch.linalg.cholesky_ex(matrix)[0])

    return tuple(_time(f, device) / _SAMPLE**3 for f in (lambda: matrix @ matrix, invert))  # type: ignore[return-value]


def _time(function: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best
