"""The block-local rule against iterations written out, and against backpropagation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from scadl_core.admm import Data, Problem, fit
from scadl_core.admm.block import DivergedError
from scadl_core.admm.rules import BlockADMM
from scadl_core.admm.rules.majoriser import curvature
from scadl_core.compress import Relative


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1)


def chain(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)
    ).double()  # fmt: skip


def samples(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (count,), generator=generator)


def by_hand(net: nn.Sequential, follow: float, dual: float, iterations: int) -> list[Any]:
    """Three blocks, K = 2, rho = 0.2, tau = 0.6, everything written out."""
    x_0, y = samples()
    f = [net[:2], net[2:4], net[4:]]
    rho, tau = 0.2, 0.6
    with torch.no_grad():
        o = [f[0](x_0), f[1](f[0](x_0))]
    x, c, t = [None, *o], [None, *o], [*o, None]
    dual_of = [None, torch.zeros_like(o[0]), torch.zeros_like(o[1])]
    for _ in range(iterations):
        out: list[Any] = [None] * 3
        back: list[Any] = [None] * 3
        for b in range(3):
            at = x_0 if b == 0 else x[b]
            for _ in range(2):
                at = at.detach().requires_grad_()
                out[b] = f[b](at)
                if b == 2:
                    phi = functional.cross_entropy(out[b], y, reduction="sum")
                else:
                    phi = rho / 2 * ((out[b] - t[b]) ** 2).sum()
                parameters = list(f[b].parameters())
                g_x, *g = torch.autograd.grad(phi, [at, *parameters])
                with torch.no_grad():
                    for parameter, slope in zip(parameters, g, strict=True):
                        parameter -= 0.1 * slope / len(y)
                    if b:
                        at = (rho * (c[b] + dual_of[b]) + tau * at - g_x) / (rho + tau)
            if b:
                x[b] = at.detach()
                dual_of[b] = dual * (dual_of[b] + c[b] - x[b])
                back[b] = x[b] - dual_of[b]
        for b in (1, 2):
            new = out[b - 1].detach()
            x[b] = x[b] + follow * (new - c[b])
            c[b], t[b - 1] = new, back[b]
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize(("follow", "dual"), [(0.0, 0.0), (1.0, 0.0), (0.5, 0.9)])
def test_iterations_are_those_written_out(follow: float, dual: float) -> None:
    net = chain()
    rule = BlockADMM(penalty=0.2, tau=3.0, every=0, steps=2, optimizer=sgd, follow=follow,
                     dual=dual, dual_below=1e9)  # fmt: skip
    fit(Problem(net, "cross_entropy"), Data.of(*samples()), rule=rule, iterations=9)
    for found, expected in zip(net.parameters(), by_hand(chain(), follow, dual, 9), strict=True):
        torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-12)


def test_one_block_is_backpropagation() -> None:
    net, peer, (x, y) = chain(), chain(), samples()
    fit(Problem(net, "cross_entropy", blocks=1), Data.of(x, y), iterations=5,
        rule=BlockADMM(optimizer=sgd))  # fmt: skip
    steps = sgd(peer.parameters())
    for _ in range(5):
        steps.zero_grad()
        functional.cross_entropy(peer(x), y).backward()
        steps.step()
    for found, expected in zip(net.parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_majoriser_is_the_largest_eigenvalue_of_each_sample() -> None:
    net, (x, y) = chain(), samples(5)

    def objective(at: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(net(at), y, reduction="sum")

    found, _ = curvature(objective, x, steps=200)
    for sample in range(5):
        hessian = torch.autograd.functional.hessian(
            lambda at, sample=sample: functional.cross_entropy(net(at), y[sample]), x[sample]
        )
        largest = torch.linalg.eigvalsh(hessian).abs().max()
        torch.testing.assert_close(found[sample, 0], largest, rtol=1e-3, atol=1e-9)


def test_no_rho_of_three_decades_diverges() -> None:
    losses = []
    for rho in (1e-3, 1e-2, 1e-1, 1.0):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16),
            nn.ReLU(), nn.Linear(16, 3),
        ).double()  # fmt: skip
        fitted = fit(Problem(net, "cross_entropy", blocks=4), Data.of(*samples()),
                     rule=BlockADMM(penalty=rho), iterations=60)  # fmt: skip
        losses.append([row["loss"] for row in fitted.trace])
        gap = fitted.trace[-1]["primal"] / max(fitted.trace[-1]["scale"], 1e-12)
        assert gap < 1, rho
    assert all(row[-1] < row[0] for row in losses)


def test_heads_of_a_hybrid_see_targets_and_do_not_move_x() -> None:
    (x, y), heads = samples(), [nn.Linear(6, 3).double(), nn.Linear(5, 3).double()]
    net = chain()
    rule = BlockADMM(auxiliary=1.0, optimizer=sgd, every=0)
    problem = Problem(net, "cross_entropy", heads=heads)
    before = [head.weight.detach().clone() for head in heads]
    expected, head = chain()[:2], nn.Linear(6, 3).double()
    head.load_state_dict(heads[0].state_dict())
    fit(problem, Data.of(x, y), rule=rule, iterations=3)
    assert all((a != head.weight).any() for a, head in zip(before, heads, strict=True))
    steps = sgd([*expected.parameters(), *head.parameters()])
    for _ in range(3):  # with the whole weight on the heads' loss the first block trains alone
        steps.zero_grad()
        functional.cross_entropy(head(expected(x)), y).backward()
        steps.step()
    torch.testing.assert_close(net[0].weight, expected[0].weight, rtol=0, atol=1e-12)


def test_skips_are_carried_across_a_cut_and_variables_kept_within_a_bound() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 6)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.layer(x).tanh(), x

    class Join(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(10, 3)

        def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return self.layer(torch.cat(both, 1))

    from scadl_core.admm import Setting

    x, y = samples()
    x, losses = x.float(), {}
    for bound in (None, Relative(2**-9)):
        torch.manual_seed(0)
        net = nn.Sequential(Split(), Join())
        before = functional.cross_entropy(net(x), y).item()
        problem = Problem(list(net), "cross_entropy")
        fit(problem, Data.of(x, y, 5), iterations=90, setting=Setting(memory_bound=bound))
        losses[bound] = functional.cross_entropy(net(x), y).item()
    assert losses[None] < 0.95 * before
    assert abs(losses[Relative(2**-9)] - losses[None]) < 0.02


def test_a_nan_is_named_with_block_iteration_and_penalty() -> None:
    net, (x, y) = chain(), samples()
    with torch.no_grad():
        net[2].weight[0, 0] = float("nan")
    with pytest.raises(DivergedError, match=r"block 1 .* iteration 0 with penalty rho=0\.01"):
        fit(Problem(net, "cross_entropy"), Data.of(x, y), rule=BlockADMM(every=0))
