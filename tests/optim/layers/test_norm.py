"""Scale and shift against per-sample gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from scadl_core.optim import KFAC

CASES = {
    "layer norm": (lambda: nn.LayerNorm(4), (5, 3, 4)),
    "layer norm of maps": (lambda: nn.LayerNorm((2, 3)), (5, 2, 3)),
    "layer norm without shift": (lambda: nn.LayerNorm(4, bias=False), (5, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (5, 4, 3, 2)),
    "batch norm 1d": (lambda: nn.BatchNorm1d(3), (6, 3)),
    "batch norm 2d": (lambda: nn.BatchNorm2d(3), (4, 3, 3, 2)),
    "batch norm 3d": (lambda: nn.BatchNorm3d(2), (4, 2, 3, 2, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_each_channel_has_its_exact_block(case: str, make_plain: Callable[..., KFAC]) -> None:
    make, shape = CASES[case]
    module, x = make(), torch.randn(shape)
    weights = torch.randn(shape) / shape[0]
    parameters = list(module.parameters())
    output = module(x)
    rows = []
    for n in range(shape[0]):
        one = torch.zeros(shape)
        one[n] = weights[n]
        found = torch.autograd.grad(output, parameters, one, retain_graph=True)
        rows.append(torch.stack([g.flatten() for g in found], 1))
    rows_NCD = torch.stack(rows)
    expected = torch.einsum("nci,ncj->cij", rows_NCD, rows_NCD) * shape[0]

    optimizer = make_plain(module, damping=0.2)
    before = torch.stack([p.detach().flatten() for p in parameters], 1)
    (module(x) * weights).sum().backward()
    optimizer.step()
    (layer,) = optimizer.layers.values()
    torch.testing.assert_close(optimizer.curvature.averages.mean(layer, "G"), expected)
    step = before - torch.stack([p.detach().flatten() for p in parameters], 1)
    width = len(parameters)
    solved = torch.linalg.solve(expected + 0.2 * torch.eye(width), rows_NCD.sum(0)[..., None])
    torch.testing.assert_close(step, solved[..., 0])
