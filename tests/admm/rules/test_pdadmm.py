"""The closed-form rule against an independent dense computation, and against its own theory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scadl_core.admm import Data, Fitted, Problem, fit
from scadl_core.admm.engine import Engine
from scadl_core.admm.rules import PdADMM
from scadl_core.admm.rules.pdadmm import update_z
from scadl_core.errors import ConfigError


def mlp(widths: list[int], slope: float = 0.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU(slope) if slope else nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double()


def regression(seed: int, count: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, 3, generator=generator, dtype=torch.float64)


class Dense:
    """Problem 2 of arXiv:2105.09837 with samples as columns, u and q sent apart, every objective
    evaluated and every backtracking trial made.
    """

    def __init__(self, net: nn.Sequential, x: Any, y: Any, rho: float, nu: float) -> None:
        linear = [it for it in net if isinstance(it, nn.Linear)]
        self.W = [it.weight.detach().numpy().copy() for it in linear]
        self.b = [it.bias.detach().numpy().copy()[:, None] for it in linear]
        self.slope = next((it.negative_slope for it in net if isinstance(it, nn.LeakyReLU)), 0.0)
        self.rho, self.nu, self.y, self.n = rho, nu, y.numpy().T, len(linear)
        self.p, self.z, self.q = [x.numpy().T], [], []
        for layer in range(self.n):
            self.z.append(self.W[layer] @ self.p[layer] + self.b[layer])
            if layer < self.n - 1:
                self.q.append(self.f(self.z[layer]))
                self.p.append(self.q[layer].copy())
        self.u = [np.zeros_like(q) for q in self.q]

    def f(self, z: Any) -> Any:
        return np.where(z > 0, z, self.slope * z)

    def phi(self, layer: int, p: Any, W: Any, b: Any) -> float:
        value = self.nu / 2 * np.sum((self.z[layer] - W @ p - b) ** 2)
        if layer:
            gap = p - self.q[layer - 1]
            value += np.sum(self.u[layer - 1] * gap) + self.rho / 2 * np.sum(gap**2)
        return float(value)

    def descend(self, value: Any, x: Any, g: Any, step: float) -> Any:
        while value(x - g / step) > value(x) - np.sum(g * g) / (2 * step):
            step *= 2
        return x - g / step

    def iterate(self, first_step: float) -> None:
        for i in range(1, self.n):
            W, b = self.W[i], self.b[i]
            residual = W @ self.p[i] + b - self.z[i]
            g = self.nu * W.T @ residual + self.u[i - 1] + self.rho * (self.p[i] - self.q[i - 1])
            self.p[i] = self.descend(
                lambda p, i=i, W=W, b=b: self.phi(i, p, W, b), self.p[i], g, first_step
            )
        for i in range(self.n):
            g = self.nu * (self.W[i] @ self.p[i] + self.b[i] - self.z[i]) @ self.p[i].T
            self.W[i] = self.descend(
                lambda W, i=i: self.phi(i, self.p[i], W, self.b[i]), self.W[i], g, first_step
            )
            residual = self.W[i] @ self.p[i] + self.b[i] - self.z[i]
            self.b[i] = self.b[i] - residual.mean(1, keepdims=True)
            m = self.W[i] @ self.p[i] + self.b[i]
            if i == self.n - 1:
                self.z[i] = (self.nu * m + self.y) / (1 + self.nu)
            else:
                self.z[i] = self.best_z(m, self.q[i], self.z[i])
        for i in range(self.n - 1):
            f = self.f(self.z[i])
            self.q[i] = (self.rho * self.p[i + 1] + self.u[i] + self.nu * f) / (self.rho + self.nu)
            self.u[i] = self.u[i] + self.rho * (self.p[i + 1] - self.q[i])

    def best_z(self, m: Any, q: Any, z: Any) -> Any:
        """Each element's minimum over both branches, by the normal equation of each."""
        result = np.empty_like(m)
        for at in np.ndindex(m.shape):
            a = self.slope
            below = min((m[at] + z[at] + a * q[at]) / (2 + a * a), 0.0)
            above = max((m[at] + z[at] + q[at]) / 3, 0.0)

            def cost(v: float, at: Any = at) -> float:
                value = float(self.f(np.float64(v)))
                return (v - m[at]) ** 2 + (q[at] - value) ** 2 + (v - z[at]) ** 2

            result[at] = above if cost(above) < cost(below) else below
        return result


def variables(fitted: Fitted, name: str) -> list[Any]:
    blocks = fitted.engine.blocks.values()
    kept = [block.variables.get(0) for block in blocks]
    return [it[name].numpy().T for it in kept if name in it]


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("first_step", [0.02, 2.0])
def test_fifty_iterations_equal_the_dense_computation(slope: float, first_step: float) -> None:
    torch.manual_seed(1)
    net, (x, y) = mlp([5, 7, 6, 3], slope), regression(0)
    dense = Dense(net, x, y, rho=0.7, nu=0.3)
    fitted = fit(
        Problem(net, "squared"), Data.of(x, y), iterations=50,
        rule=PdADMM(penalty=0.7, nu=0.3, first_step=first_step),
    )  # fmt: skip
    for _ in range(50):
        dense.iterate(first_step)
    linear = [it for it in net if isinstance(it, nn.Linear)]
    for layer, W, b in zip(linear, dense.W, dense.b, strict=True):
        np.testing.assert_allclose(layer.weight.detach().numpy(), W, rtol=0, atol=1e-10)
        np.testing.assert_allclose(layer.bias.detach().numpy(), b[:, 0], rtol=0, atol=1e-10)
    for name, expected in (("p", dense.p), ("z", dense.z), ("q", dense.q), ("u", dense.u)):
        for found, wanted in zip(variables(fitted, name), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_the_lagrangian_falls_and_the_dual_is_what_the_theory_says(seed: int) -> None:
    torch.manual_seed(seed)
    net, (x, _) = mlp([5, 8, 8, 3]), regression(seed)
    y = torch.randint(0, 3, (len(x),))
    rule = PdADMM(penalty=0.45, nu=0.1, convergent=True)
    fitted = fit(Problem(net, "cross_entropy"), Data.of(x, y), rule=rule, iterations=15)
    lagrangian = [it["lagrangian"] for it in fitted.trace]
    assert np.diff(lagrangian).max() <= 1e-10
    assert lagrangian[-1] < lagrangian[0]
    z, q, u = (variables(fitted, name) for name in "zqu")
    for layer in range(2):  # Lemma 4: u = nu (q - f(z))
        np.testing.assert_allclose(u[layer], 0.1 * (q[layer] - np.maximum(z[layer], 0)), atol=1e-14)


def test_z_is_the_minimum_over_a_fine_grid() -> None:
    generator = torch.Generator().manual_seed(0)
    m, q, z = torch.randn(3, 200, generator=generator, dtype=torch.float64)
    grid = torch.linspace(-4, 4, 16001, dtype=torch.float64)[:, None]
    for slope in (0.0, 0.3):

        def cost(v: torch.Tensor, slope: float = slope) -> torch.Tensor:
            return (v - m) ** 2 + (q - torch.where(v > 0, v, slope * v)) ** 2 + (v - z) ** 2

        best = cost(update_z(m, q, z, slope))
        assert (best <= cost(grid).min(0).values + 1e-12).all()


def test_all_the_bytes_of_three_messages_are_said_with_two() -> None:
    net, (x, y) = mlp([5, 7, 6, 3]), regression(0)
    fitted = fit(Problem(net, "squared"), Data.of(x, y), rule="pdadmm", iterations=9)
    tensors = 20 * (7 + 6) * 8  # p, q and u would be three of them a boundary
    assert fitted.engine.meter.said_bytes == 9 * 2 * tensors


def test_a_convolution_s_sub_problems_are_solved() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, stride=2),
        nn.LeakyReLU(0.1), nn.Conv2d(4, 8, 1), nn.PixelShuffle(2),
    ).double()  # fmt: skip
    x, y = torch.randn(6, 1, 8, 8).double(), torch.randn(6, 2, 2, 2).double()
    rule = PdADMM(penalty=0.5, nu=0.1, convergent=True)
    fitted = fit(Problem(net, "squared"), Data.of(x, y), rule=rule, iterations=60)
    lagrangian = [it["lagrangian"] for it in fitted.trace]
    assert np.diff(lagrangian).max() <= 1e-10
    for block in fitted.engine.blocks.values():
        v, affine = block.variables.get(0), block.affine
        r = torch.randn_like(v["m"])
        left = (affine.linear(v["p"]) * r).sum()
        assert torch.isclose(left, (v["p"] * affine.adjoint(r, v["p"])).sum())
        assert torch.isclose(left, (affine.weight * affine.adjoint_weight(r, v["p"])).sum())
        torch.testing.assert_close(v["m"], block.module[: len(affine.map)](v["p"]))


def test_the_penalty_changes_between_p_and_q() -> None:
    """What p is solved with is what s was made with."""
    net, (x, y) = mlp([5, 7, 3]), regression(0)
    engine = Engine(Problem(net, "squared"), PdADMM(penalty=0.7, nu=0.1))
    visit = Data.of(x, y).visit(0)
    engine.iterate(visit)
    engine.set_penalty(1.4)
    v = engine.blocks[0].variables.get(0)
    s_by_hand = v["q"] - v["u"] / 0.7
    engine.iterate(visit)
    torch.testing.assert_close(engine.blocks[1].variables.get(0)["s"], s_by_hand)
    assert [block.penalty for block in engine.blocks.values()] == [1.4, 1.4]


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), "Tanh .* rule=block_admm"),
        (nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), "expects ReLU or LeakyReLU"),
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU()), "no activation"),
        (nn.Sequential(nn.Linear(5, 4), nn.MaxPool1d(2), nn.Linear(2, 3)), "MaxPool1d"),
    ],
)
def test_what_it_cannot_train_is_named(net: nn.Sequential, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fit(Problem(net.double(), "squared"), Data.of(*regression(0)), rule="pdadmm")


def test_minibatches_and_penalties_out_of_range_are_refused() -> None:
    net = mlp([5, 4, 3])
    with pytest.raises(ConfigError, match="all samples in one batch"):
        fit(Problem(net, "squared"), Data.of(*regression(0), batch_size=5), rule="pdadmm")
    with pytest.raises(ConfigError, match=r"rho > 4 nu, got rho=0\.3 and nu=0\.1"):
        PdADMM(penalty=0.3, nu=0.1, convergent=True)
