"""The output block's sub-problem against Newton's method."""

from __future__ import annotations

import torch

from scadl_core.admm.problem import cross_entropy, squared
from scadl_core.admm.rules.output import solve_output


def newton(m: torch.Tensor, y: torch.Tensor, nu: float) -> torch.Tensor:
    z, one = m.clone(), torch.eye(m.shape[1], dtype=m.dtype)
    for _ in range(50):
        p = z.softmax(1)
        gradient = p - one[y] + nu * (z - m)
        hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None] + nu * one
        z = z - torch.linalg.solve(hessian, gradient)
    return z


def test_fista_finds_what_newton_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    m = 3 * torch.randn(40, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 6, (40,), generator=generator)
    for nu in (0.1, 1.0, 10.0):
        z = solve_output(cross_entropy, m, y, nu, torch.zeros_like(m), steps=5000, tolerance=0.0)
        torch.testing.assert_close(z, newton(m, y, nu), rtol=0, atol=1e-7)


def test_it_is_never_worse_than_where_it_began() -> None:
    m, y = torch.randn(30, 4), torch.randint(0, 4, (30,))
    z = torch.randn(30, 4)
    for _ in range(5):
        better = solve_output(cross_entropy, m, y, 0.01, z, steps=3)
        for at, least in ((better, z),):
            new = cross_entropy(at, y) + 0.005 * (at - m).square().sum()
            old = cross_entropy(least, y) + 0.005 * (least - m).square().sum()
            assert new <= old
        z = better


def test_the_squared_loss_has_a_closed_form() -> None:
    m, y = torch.randn(2, 5, 3, dtype=torch.float64)
    z = solve_output(squared, m, y, 0.3, m)
    torch.testing.assert_close(z - y + 0.3 * (z - m), torch.zeros_like(z))
