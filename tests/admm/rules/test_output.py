"""The output block's sub-problem by its optimality conditions."""

from __future__ import annotations

import torch

from scadl_core.admm.problem import cross_entropy, squared
from scadl_core.admm.rules.output import solve_output


def test_fista_finds_the_minimum() -> None:
    """The objective is nu-strongly convex: the minimum is within ||gradient|| / nu."""
    generator = torch.Generator().manual_seed(0)
    m = 3 * torch.randn(40, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 6, (40,), generator=generator)
    for nu in (0.1, 1.0, 10.0):
        z = solve_output(cross_entropy, m, y, nu, torch.zeros_like(m), steps=5000, tolerance=0.0)
        gradient = z.softmax(1) - torch.eye(6, dtype=m.dtype)[y] + nu * (z - m)
        assert gradient.norm() / nu < 1e-6


def test_it_is_never_worse_than_where_it_began() -> None:
    m, y = torch.randn(30, 4), torch.randint(0, 4, (30,))
    z = torch.randn(30, 4)
    for _ in range(5):
        better = solve_output(cross_entropy, m, y, 0.01, z, steps=3)
        new = cross_entropy(better, y) + 0.005 * (better - m).square().sum()
        assert new <= cross_entropy(z, y) + 0.005 * (z - m).square().sum()
        z = better


def test_the_squared_loss_has_a_closed_form() -> None:
    m, y = torch.randn(2, 5, 3, dtype=torch.float64)
    z = solve_output(squared, m, y, 0.3, m)
    torch.testing.assert_close(z - y + 0.3 * (z - m), torch.zeros_like(z))
