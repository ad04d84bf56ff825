"""How strongly a block's local objective is curved in its input, a number a sample."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def curvature(
    objective: Callable[[Tensor], Tensor], x: Tensor, steps: int = 2, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The largest eigenvalue, in magnitude, of each sample's Hessian, from below: power iteration
    with Hessian-vector products.

    Where samples do not influence one another the Hessian is block-diagonal over them, so all are
    iterated at once.

    Args:
        objective: A sum over samples, of x.
        x: Shape (B, ...), floating.
        steps: Products.
        start: Directions to begin with, as given by an earlier call.

    Returns:
        Shape (B, 1, ...), to be broadcast against x; and the directions, shape of x.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        gradient = torch.autograd.grad(objective(x), x, create_graph=True)[0]
        direction = torch.randn_like(x) if start is None else start
        for step in range(steps):
            direction = direction / _norm(direction).clamp_min(1e-30)
            # A network that is linear in x, under a loss that is, has no Hessian to ask for.
            if not gradient.requires_grad:
                return torch.zeros_like(_norm(x)), direction
            again = step < steps - 1
            (direction,) = torch.autograd.grad(gradient, x, direction, retain_graph=again)
    return _norm(direction), direction


def _norm(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x.detach().flatten(1), dim=1)
    return norm.reshape(-1, *[1] * (x.dim() - 1))
