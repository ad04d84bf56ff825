"""The output block's sub-problem: argmin_z R(z; y) + nu/2 ||z - m||^2."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from scadl_core.admm.problem import Loss, squared


def solve_output(
    loss: Loss, m: Tensor, targets: Any, nu: float, z: Tensor,
    lipschitz: float = 0.5, steps: int = 50, tolerance: float = 1e-3,
) -> Tensor:  # fmt: skip
    """FISTA (Beck and Teboulle 2009, doi:10.1137/080716542) on the loss, with the quadratic term
    taken exactly, as pdADMM-G has it; the squared loss in closed form.

    Args:
        loss: Convex, sum over samples.
        m: What the layer gives, shape (B, ...), float32 or float64.
        targets: Of the loss.
        nu: Penalty of the layer's equation.
        z: Where to begin.
        lipschitz: Of the gradient of the loss; 1/2 for the cross-entropy. (The published code
            takes 1/4, with which descent is not certain.)
        steps: At most.
        tolerance: Ends when the objective changes by less.

    Returns:
        The best z that was met; never worse than the one given.
    """
    if loss is squared:
        closed: Tensor = (nu * m + targets) / (nu + 1)
        return closed
    best, least = z, math.inf
    momentum, extrapolated, before, previous = 1.0, z, z, math.inf
    for _ in range(steps + 1):
        value, gradient = _value_and_gradient(loss, extrapolated, targets)
        total = value + 0.5 * nu * float((extrapolated - m).square().sum())
        if total < least:
            best, least = extrapolated, total
        if abs(total - previous) <= tolerance:
            break
        previous = total
        point = (nu * m + lipschitz * extrapolated - gradient) / (nu + lipschitz)
        following = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
        extrapolated = point + (momentum - 1) / following * (point - before)
        momentum, before = following, point
    return best


def _value_and_gradient(loss: Loss, z: Tensor, targets: Any) -> tuple[float, Tensor]:
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        value = loss(z, targets)
        return float(value.detach()), torch.autograd.grad(value, z)[0]
