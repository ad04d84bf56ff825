"""The optimizer: exact where theory says so, robust, resumable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from curvlinops import GGNLinearOperator, KFACLinearOperator
from torch import Tensor, nn

from scadl_core.errors import ConfigError
from scadl_core.optim import KFAC
from scadl_core.optim.fisher import output_gradients

LOSSES = {
    ("categorical", "mean"): nn.CrossEntropyLoss(),
    ("categorical", "sum"): nn.CrossEntropyLoss(reduction="sum"),
    ("gaussian", "mean"): nn.MSELoss(),
    ("gaussian", "sum"): nn.MSELoss(reduction="sum"),
}


class OutputsSecond(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(-1, 1)


def linear_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 3), OutputsSecond())


def block(optimizer: KFAC, name: str) -> Tensor:
    """A (x) G of a layer, elements in the order of its weight's and then its bias'."""
    a, g = (optimizer.curvature.averages.mean(optimizer.layers[name], n)[0] for n in "AG")
    grid = torch.arange(len(g) * len(a)).view(len(g), len(a))
    order = torch.cat([grid[:, :-1].flatten(), grid[:, -1]])
    return torch.kron(g, a)[order][:, order]


@pytest.mark.parametrize("reduction", ["mean", "sum", "positions"])
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
@pytest.mark.parametrize("shape", [(6, 4), (5, 2, 4), (1, 4)], ids=["plain", "shared", "single"])
def test_deep_linear_networks_are_exact(
    shape: tuple[int, ...], likelihood: str, reduction: str
) -> None:
    """Where the Hessian by the output is the same for all (squared error, or a single sample)
    K-FAC is the block diagonal of the Gauss-Newton matrix (Bernacchia et al. 2018), with shared
    positions too (Eschenhagen et al. 2023, section 3); otherwise it is curvlinops' K-FAC.
    """
    model, x = linear_network(), torch.randn(shape)
    y = torch.randn(model(x).shape)
    if likelihood == "categorical":
        y = torch.randint(3, (shape[0], *shape[1:-1]))
    loss = LOSSES[likelihood, "sum" if reduction == "sum" else "mean"]
    found = sampled_blocks(model, x, y, loss, likelihood, reduction)
    for name, value in found.items():
        parameters = list(model.get_submodule(name).parameters())
        arguments = (model, loss, parameters, [(x, y)])
        if likelihood == "gaussian" or len(x) == 1:
            operator: Any = GGNLinearOperator(*arguments)
        else:
            operator = KFACLinearOperator(
                *arguments, fisher_type="type-2", separate_weight_and_bias=False
            )
        dense = operator @ torch.eye(operator.shape[1])
        torch.testing.assert_close(value, dense, rtol=1e-9, atol=1e-12)


def sampled_blocks(
    model: nn.Module, x: Tensor, y: Tensor, loss: nn.Module, likelihood: str, reduction: str
) -> dict[str, Tensor]:
    """Blocks of the exact Fisher matrix, after a step that moves nothing."""
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = KFAC(
        model, inner, fisher="sampled", loss_reduction=reduction, approximation="expand"
    )
    output = model(x)
    optimizer.sample_fisher(output, likelihood, samples=None)
    loss(output, y).backward()
    optimizer.step()
    optimizer.close()
    return {name: block(optimizer, name) for name in optimizer.layers}


def test_drawn_labels_tend_to_the_exact_fisher_matrix() -> None:
    """Each likelihood: the mean over many labels is the Hessian of its loss."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 3)
    losses = {
        "categorical": lambda v, k: nn.functional.cross_entropy(v[None], torch.tensor([k])),
        "bernoulli": lambda v, k: nn.functional.binary_cross_entropy_with_logits(
            v, torch.full((3,), float(k % 2)), reduction="sum"
        ),
        "gaussian": lambda v, k: v.square().sum(),
    }
    for likelihood, loss in losses.items():
        hessian = torch.stack([torch.func.hessian(loss)(row, 0) for row in z])
        for samples, tolerance in ((None, 1e-12), (4000, 0.1)):
            total = torch.zeros(2, 3, 3)
            for v in output_gradients(z, likelihood, samples, generator):
                total += torch.einsum("nk,nl->nkl", v, v)
            torch.testing.assert_close(total, hessian, atol=tolerance, rtol=0)
    with pytest.raises(ConfigError, match="likelihood: expected one of categorical"):
        list(output_gradients(z, "poisson", 1, generator))
