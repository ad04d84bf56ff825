"""Predicted against measured errors of gradients, and the sums behind the prediction against the
definition.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from scadl_core.compress import Absolute
from scadl_core.memory import CompressedActivations

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(8, 16, 3, padding=1, bias=False), (8, 8, 24, 24)),
    "strided": (lambda: nn.Conv2d(8, 16, 5, stride=2, padding=2, bias=False), (8, 8, 24, 24)),
    "dilated, grouped": (lambda: nn.Conv2d(8, 16, 3, dilation=2, groups=4), (8, 8, 24, 24)),
    "same": (lambda: nn.Conv2d(8, 16, 3, padding="same"), (8, 8, 6, 6)),
    "small maps": (lambda: nn.Conv2d(16, 32, 3, padding=1), (64, 16, 4, 4)),
    "one axis": (lambda: nn.Conv1d(8, 16, 5, padding=2), (8, 8, 200)),
    "three axes": (lambda: nn.Conv3d(4, 8, 3, padding=1), (2, 4, 8, 12, 12)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 16, 3, stride=2), (8, 8, 16, 16)),
    "transposed, grouped": (
        lambda: nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1, groups=2), (8, 8, 16, 16)),
    "linear": (lambda: nn.Linear(64, 32, bias=False), (256, 64)),
    "linear of sequences": (lambda: nn.Linear(64, 32), (16, 32, 64)),
    "batch norm": (lambda: nn.BatchNorm2d(64), (8, 64, 16, 16)),
    "batch norm, fixed": (lambda: nn.BatchNorm2d(64).eval(), (8, 64, 16, 16)),
    "group norm": (lambda: nn.GroupNorm(8, 64), (8, 64, 16, 16)),
    "layer norm": (lambda: nn.LayerNorm(96), (64, 12, 96)),
    "instance norm": (lambda: nn.InstanceNorm2d(64, affine=True), (8, 64, 16, 16)),
}  # fmt: skip


@pytest.mark.parametrize("eps", [1e-3, 1e-2, 1e-1, 0.5])
@pytest.mark.parametrize("layer", LAYERS)
def test_measured_over_predicted_error(layer: str, eps: float) -> None:
    """At every bound, from far below the values to half of their deviation."""
    torch.manual_seed(0)
    make, shape = LAYERS[layer]
    module = make()
    values = torch.randn(shape).clamp_min(0) if "conv" in layer else torch.randn(shape)
    weights = torch.randn(module(values).shape)

    def gradient(compressed: CompressedActivations | None) -> Tensor:
        leaf = values.clone().requires_grad_()
        if compressed is None:
            output = module(leaf * 1)
        else:
            with compressed:
                output = module(leaf * 1)
        module.zero_grad()
        (output * weights).sum().backward()
        grad: Tensor = module.weight.grad.clone()
        return grad

    exact = gradient(None)
    measured, predicted = 0.0, 0.0
    for seed in range(4):  # means of squares, since a norm has 64 elements only
        compressed = CompressedActivations(module, bound=Absolute(eps), seed=seed, smallest=64)
        measured += float((gradient(compressed) - exact).double().square().sum())
        predicted += sum(site.error for site in compressed.sites.values())
    assert 0.8 < math.sqrt(measured / predicted) < 1.25


def test_a_product_of_two_activations() -> None:
    torch.manual_seed(0)
    left = torch.randn(8, 64, 48, requires_grad=True)
    right = torch.randn(8, 48, 64, requires_grad=True)
    weights = torch.randn(8, 64, 64)

    def gradients(compressed: CompressedActivations | None) -> tuple[Tensor, ...]:
        if compressed is None:
            output = (left * 1) @ (right * 1)
        else:
            with compressed:
                output = (left * 1) @ (right * 1)
        return torch.autograd.grad((output * weights).sum(), [left, right])

    exact = gradients(None)
    compressed = CompressedActivations(nn.Identity(), bound=Absolute(0.1), smallest=64)
    ours = gradients(compressed)
    errors = sorted(site.error for site in compressed.sites.values() if site.error)
    measured = sorted(float((a - b).square().sum()) for a, b in zip(ours, exact, strict=True))
    assert len(errors) == 2
    for one, other in zip(measured, errors, strict=True):
        assert 0.8 < math.sqrt(one / other) < 1.25


def test_nearest_rounding_would_be_biased_where_dither_is_not() -> None:
    """The reason for dither: of ReLU outputs, all small values round down to zero."""
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 16, 3, bias=False)
    values = torch.randn(8, 8, 24, 24).clamp_min(0)
    positive = torch.rand(8, 16, 22, 22)
    exact = nn.grad.conv2d_weight(values, layer.weight.shape, positive).detach()

    def error(rounded: Tensor) -> float:
        found = nn.grad.conv2d_weight(rounded.detach(), layer.weight.shape, positive)
        return float((found - exact).detach().norm())

    compressed = CompressedActivations(layer, bound=Absolute(1.0), smallest=64)
    leaf = values.clone().requires_grad_()
    with compressed:
        output = layer(leaf)
    saved = output.grad_fn._saved_input
    assert bool(((saved == 0) == (values == 0)).all())  # no zero became a value, nor the reverse
    assert error(saved) < 0.2 * error((values / 2).round() * 2)


@pytest.mark.parametrize("coherence", [0.3, 3.0])
@pytest.mark.parametrize("layer", ["batch norm", "group norm"])
def test_what_a_normalisation_passes_on(layer: str, coherence: float) -> None:
    """Gradients that go along with the values make errors of these show most."""
    torch.manual_seed(0)
    make, shape = LAYERS[layer]
    module, values = make(), torch.randn(shape)
    weights_NCHW = torch.randn(shape) + coherence * values * torch.randn(1, shape[1], 1, 1)
    compressed = CompressedActivations(module, bound=Absolute(0.3), smallest=1)

    def gradient(compressed: CompressedActivations | None) -> Tensor:
        leaf = values.clone().requires_grad_()
        with compressed or contextlib.nullcontext():
            output = module(leaf * 1)
        (output * weights_NCHW).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    exact = gradient(None)
    measured = float((gradient(compressed) - exact).norm() / exact.norm())
    (site,) = compressed.sites.values()
    predicted = site.passed * 0.3 / math.sqrt(3)  # the values' deviation is one
    # Group norm's samples go the same way here: at most the root of their number too careful.
    most = 1.2 if layer == "batch norm" else 1.2 * math.sqrt(shape[0])
    assert measured / 1.2 < predicted < most * measured


def test_a_bound_keeps_what_is_passed_on_within_the_fraction() -> None:
    """All of the gradient goes along with the values but for a percent: little is passed on, of
    which an error that would not matter for the scale would be much."""
    torch.manual_seed(0)
    norm, values_NCHW = nn.BatchNorm2d(16), torch.randn(16, 16, 16, 16)
    weights_NCHW = values_NCHW + 0.01 * torch.randn_like(values_NCHW)
    compressed = CompressedActivations(norm, 0.01, smallest=1)
    grads = []
    for enter in (contextlib.nullcontext(), *[compressed] * 9):
        leaf = values_NCHW.clone().requires_grad_()
        with enter:
            output = norm(leaf * 1)
        (output * weights_NCHW).sum().backward()
        grads.append(leaf.grad)
    first, *_, last = (float((grad - grads[0]).norm() / grads[0].norm()) for grad in grads[1:])
    assert first > 0.5
    assert last < 0.012
