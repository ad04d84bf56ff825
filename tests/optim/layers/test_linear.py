"""Dense layers, their weight sharing and large sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from scadl_core.optim import KFAC


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("reduced", [True, False], ids=["reduce", "expand"])
@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 4), (2, 3, 2, 4)], ids=str)
def test_factors_and_step(
    shape: tuple[int, ...], reduced: bool, bias: bool, check_factors: Callable[..., KFAC]
) -> None:
    check_factors(nn.Linear(4, 3, bias=bias), torch.randn(shape), reduced, channels_last=True)


def test_above_max_size_a_factor_is_its_diagonal(make_plain: Callable[..., KFAC]) -> None:
    model, x = nn.Linear(6, 2), torch.randn(5, 6)
    optimizer = make_plain(model, max_size=5, damping=0.1)
    output = model(x)
    output.retain_grad()
    output.square().sum(1).mean().backward()
    (layer,) = optimizer.layers.values()
    gradient = layer.matrix()[0].clone()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()

    a = torch.cat([x, torch.ones(5, 1)], 1).square().mean(0)
    assert output.grad is not None
    g = 5 * output.grad.T @ output.grad
    pi = (a.mean() / (g.trace() / 2)) ** 0.5
    expected = torch.linalg.solve(g + 0.1**0.5 / pi * torch.eye(2), gradient) / (a + pi * 0.1**0.5)
    found = [b - p.detach() for b, p in zip(before, model.parameters(), strict=True)]
    torch.testing.assert_close(torch.cat([found[0], found[1][:, None]], 1), expected)
