"""An oracle of factors that knows of a layer only that it is linear in its parameters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from scadl_core.optim import KFAC
from scadl_core.optim.layers import Layer

# Factors by name and by kind of module, from (module, inputs, weights of the loss).
Factors = dict[str, Tensor]


def oracle(
    layer: Layer, module: nn.Module, inputs: Tensor, upstream: Tensor, reduced: bool
) -> Factors:
    """A and G from the derivative of every single output by the parameters.

    ``y[n, o, t] = sum_i W[o, i] a[n, t, i]``, so the derivative by W[o] is the row a[n, t].

    Args:
        layer: For the order of elements in its matrix.
        module: Of outputs (N, O, ...).
        inputs: Of the module.
        upstream: Gradients of the mean loss by the outputs.
        reduced: Reduce instead of expand.
    """
    groups, outputs, width = layer.shape
    y_NOT = module(inputs).flatten(2) if upstream.dim() > 2 else module(inputs)[..., None]
    samples, _, positions = y_NOT.shape
    rows = torch.zeros(groups, samples, positions, width)
    for g in range(groups):
        for n in range(samples):
            for t in range(positions):
                value = y_NOT[n, g * outputs, t]
                found = torch.autograd.grad(value, layer.parameters, retain_graph=True)
                for p, gradient in zip(layer.parameters, found, strict=True):
                    p.grad = gradient
                rows[g, n, t] = layer.matrix()[g, 0]
    upstream_GNTO = upstream.reshape(samples, groups, outputs, positions).permute(1, 0, 3, 2)
    if reduced:
        mean, total = rows.mean(2), upstream_GNTO.sum(2)
        return {
            "A": torch.einsum("gni,gnj->gij", mean, mean) / samples,
            "G": torch.einsum("gno,gnp->gop", total, total) * samples,
        }
    return {
        "A": torch.einsum("gnti,gntj->gij", rows, rows) / samples,
        "G": torch.einsum("gnto,gntp->gop", upstream_GNTO, upstream_GNTO) * samples / positions,
    }


@pytest.fixture
def check_factors(make_plain: Callable[..., KFAC]) -> Callable[..., KFAC]:
    """Compares the factors of one step, and the step itself, with dense computations.

    ``check_factors(module, inputs, reduced)`` for a module with outputs (N, O, ...).
    """

    def check(
        module: nn.Module, inputs: Tensor, reduced: bool, channels_last: bool = False
    ) -> KFAC:
        optimizer = make_plain(module, approximation="reduce" if reduced else "expand", damping=0.3)
        output = module(inputs)
        weights = torch.randn_like(output) / len(output)
        optimizer.zero_grad()
        (output * weights).sum().backward()
        before = [p.detach().clone() for p in module.parameters()]
        (layer,) = optimizer.layers.values()
        gradient = layer.matrix().clone()
        optimizer.step()
        module.eval()  # no hooks

        def moved(x: Tensor) -> Tensor:
            return module(x).movedim(-1, 1) if channels_last else module(x)

        step = [b - p.detach() for b, p in zip(before, module.parameters(), strict=True)]
        upstream = weights.movedim(-1, 1) if channels_last else weights
        expected = oracle(layer, _Moved(moved), inputs, upstream, reduced and layer.reduced)
        for name, value in expected.items():
            torch.testing.assert_close(
                _dense(optimizer, layer, name),
                value,
                rtol=1e-9,
                atol=1e-12,
            )
        for p, moved_by in zip(layer.parameters, step, strict=True):
            p.grad = moved_by
        torch.testing.assert_close(
            layer.matrix(), solve(expected, gradient, 0.3), rtol=1e-8, atol=1e-12
        )
        return optimizer

    return check


class _Moved:
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def __call__(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)


def _dense(optimizer: KFAC, layer: Layer, name: str) -> Tensor:
    value = optimizer.curvature.averages.mean(layer, name)
    return torch.diag(value.flatten())[None] if layer.sides[name].is_diagonal else value


def solve(factors: Factors, gradient: Tensor, damping: float) -> Tensor:
    """The damped Kronecker system, one dense solve a group."""
    found = []
    for a, g, matrix in zip(factors["A"], factors["G"], gradient, strict=True):
        pi = ((a.trace() / len(a)) / (g.trace() / len(g))) ** 0.5
        a = a + pi * damping**0.5 * torch.eye(len(a))
        g = g + damping**0.5 / pi * torch.eye(len(g))
        found.append(torch.linalg.solve(torch.kron(g, a), matrix.flatten()).view_as(matrix))
    return torch.stack(found)
