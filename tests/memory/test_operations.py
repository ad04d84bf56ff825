"""What operations outside of networks' usual layers save, and the ways in which people call them:
gradients stay within the fraction, and nothing that works without hooks fails with them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from scadl_core.memory import CompressedActivations
from scadl_core.memory.operations import _CURVED

Make = Callable[[], nn.Module]
X_NK = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))


def error(
    net: nn.Module, loss: Callable[[], Tensor], fraction: float = 0.01, steps: int = 3
) -> float:
    """Relative, of the whole gradient after some steps."""

    def gradient() -> Tensor:
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    def backward() -> None:
        loss().backward()

    net.zero_grad()
    backward()
    exact = gradient()
    compressed = CompressedActivations(net, fraction, smallest=64)
    for _ in range(steps):
        net.zero_grad()
        with compressed:
            value = loss()
        value.backward()
        assert compressed.ledger.peak > 0
    ours = gradient()
    assert bool(exact.isfinite().all())
    return float((ours - exact).norm() / exact.norm())


FIELD_NK = 300 + X_NK
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda y: y.amax(1).sum(),
    "max": lambda y: y.max(),
    "infinite norm": lambda y: torch.linalg.vector_norm(y, float("inf")),
    "norm": lambda y: (y + 300).norm(dim=1).sum(),
    "mse_loss": lambda y: functional.mse_loss(y + 300, FIELD_NK),
    "smooth_l1_loss": lambda y: functional.smooth_l1_loss(y + 300, FIELD_NK),
    "huber_loss": lambda y: functional.huber_loss(y + 300, FIELD_NK),
    "var": lambda y: (y + 300).var(1).sum(),
    "std": lambda y: (y + 300).std(1).sum(),
    "clamp": lambda y: y.round().clamp(0, 1).sum() + y.clamp(0, 1).square().sum(),
    "sin": lambda y: (30 * y).sin().square().sum(),
    "logsumexp": lambda y: (10 * y).logsumexp(1).sum(),
    "relu6": lambda y: functional.relu6(4 * y).square().sum(),
    "softplus": lambda y: functional.softplus(y).square().sum(),
    "cdist": lambda y: torch.cdist(y, y[:8].detach() + 0.01).sum(),
    "cumprod": lambda y: (1 + 0.1 * y).cumprod(1).mean(),
    "power": lambda y: (y.abs() + 1).pow(-3).sum(),
    "power of a tensor": lambda y: ((y.abs() + 1) ** (1 + 0.1 * y)).mean(),
    "elu": lambda y: functional.elu(y, alpha=2.0).square().sum(),
    "mish": lambda y: functional.mish(y).square().sum(),
    "gates": lambda y: (y.sigmoid() * y.tanh() * y.exp()).sum(),
    "quotient": lambda y: (y / (y.abs() + 1).sqrt()).square().sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_stay_near_the_fraction(name: str) -> None:
    torch.manual_seed(0)
    net = nn.Linear(64, 64)
    assert error(net, lambda: OPERATIONS[name](net(X_NK))) <= 0.02


@pytest.mark.parametrize("name", [name for name in _CURVED if name not in ("tanh", "sigmoid")])
def test_curvatures_are_the_largest(name: str) -> None:
    function = getattr(torch, name, None) or getattr(functional, name)
    x = torch.linspace(-6, 6, 200_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    bend = float(slope.diff().abs().max() / (12 / 200_000))
    assert bend == pytest.approx(_CURVED[name], rel=2e-3)


def weighted(wrap: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(wrap(nn.Linear(64, 64)), nn.ReLU(), wrap(nn.Linear(64, 64)))


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_weights_that_are_computed_are_exact(wrap: Callable[[nn.Module], nn.Module]) -> None:
    net = weighted(wrap).eval()  # spectral_norm's power iteration stands still
    assert error(net, lambda: net(X_NK).square().mean(), steps=12) <= 0.015


def test_weights_of_another_network_are_exact() -> None:
    net, judge = weighted(lambda it: it), weighted(lambda it: it)
    assert error(net, lambda: judge(net(X_NK)).square().mean(), steps=12) <= 0.015


def test_queries_and_keys_of_sharp_attention() -> None:
    torch.manual_seed(0)
    net = nn.Linear(64, 192)

    def loss() -> Tensor:
        parts = (4 * net(X_NK)).reshape(4, 64, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(*parts).square().sum()

    assert error(net, loss) <= 0.02


def test_multihead_attention() -> None:
    torch.manual_seed(0)
    net = nn.MultiheadAttention(64, 4, batch_first=True)
    x = 4 * X_NK.reshape(4, 64, 64)
    assert error(net, lambda: net(x, x, x, need_weights=False)[0].square().sum()) <= 0.02


def test_ways_to_call_what_is_known() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Linear(16, 16))
    image = torch.randn(4, 1, 16, 16)

    def loss() -> Tensor:
        a, b = net[0](image).relu(), net[0](-image).relu()
        joined = torch.cat([a, b], axis=1)  # type: ignore[call-overload]
        pooled = torch.max_pool2d(input=joined, kernel_size=2)
        wide = functional.interpolate(pooled[:, :, :5, :5], scale_factor=2.04)
        lines = functional.linear(input=joined, weight=net[1].weight, bias=net[1].bias)
        return wide.square().sum() + lines.square().sum() + net[0](joined[:, 4:5]).square().sum()

    assert error(net, loss) <= 0.015
    assert error(net, loss, fraction=0.0) == 0


@pytest.mark.parametrize("fraction", [0.0, 0.01])
def test_tensors_without_plain_memory(fraction: float) -> None:
    torch.manual_seed(0)
    net = nn.Linear(64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that layouts are in beta
        coo = (X_NK[:64] * (X_NK[:64] > 1)).to_sparse()
        csr = coo.to_sparse_csr()
    phase = torch.polar(torch.ones(64, 64), X_NK[:64])

    def loss() -> Tensor:
        y = net(X_NK[:64])
        spread = torch.sparse.mm(coo, y).square().sum() + (csr @ y).square().sum()
        turned: Tensor = (torch.complex(y, y) * phase.conj()).conj().imag * y
        return spread + turned.square().sum()

    assert error(net, loss, fraction) <= (0.015 if fraction else 0)


def test_lazy_modules() -> None:
    net = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(4))
    compressed = CompressedActivations(net, 0.0)
    with compressed:
        loss = net(X_NK).square().sum()
    loss.backward()
    ours = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    net(X_NK).square().sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(ours, net.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_is_exact_in_its_own_precision(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.3)).to(dtype)

    def loss() -> Tensor:
        torch.manual_seed(1)
        total: Tensor = net(X_NK.to(dtype)).square().sum()
        return total

    assert error(net, loss, fraction=0.0) == 0


def test_signs_of_a_relu_survive_a_stricter_reader() -> None:
    """Read by a convolution, dithered, and then by a normalisation, whose bound is tight."""
    torch.manual_seed(0)
    first, conv, norm = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)
    net, image = nn.ModuleList([first, conv, norm]), torch.randn(8, 3, 32, 32)
    compressed = CompressedActivations(net)
    for _ in range(3):
        with compressed:
            on = first(image).relu()
            loss = conv(on).square().mean() + norm(on).pow(2).mean()
        saved = on.grad_fn._saved_result  # type: ignore[union-attr]
        assert torch.equal(saved > 0, on > 0)
        loss.backward()
