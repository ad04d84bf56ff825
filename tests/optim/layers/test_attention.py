"""Attention against PyTorch's own, and its projections against four linear layers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scadl_core.optim import KFAC

MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "with weights of heads": {"average_attn_weights": False},
    "without weights": {"need_weights": False},
    "causal": {"attn_mask": torch.ones(4, 4, dtype=torch.bool).triu(1), "is_causal": True},
    "float mask": {"attn_mask": torch.linspace(-1, 1, 16).view(4, 4).double()},
    "mask of heads": {"attn_mask": torch.eye(4, dtype=torch.bool).repeat(6, 1, 1)},
    "padding": {"key_padding_mask": torch.tensor([[False] * 3 + [True]] * 3)},
    "both": {
        "key_padding_mask": torch.tensor([[False, True, False, False]] * 3),
        "attn_mask": torch.zeros(4, 4).double(),
        "need_weights": False,
    },
}


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("case", MASKS)
def test_outputs_and_gradients_are_those_of_pytorch(case: str, batch_first: bool) -> None:
    ours = nn.MultiheadAttention(6, 2, batch_first=batch_first)
    nn.init.normal_(ours.in_proj_bias)
    theirs = copy.deepcopy(ours)
    KFAC(ours)
    x = torch.randn(3, 4, 6) if batch_first else torch.randn(4, 3, 6)
    found = [m(x, x, x, **MASKS[case]) for m in (ours, theirs)]
    torch.testing.assert_close(found[0], found[1])
    for output, _ in found:
        (output**2).sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_unbatched_and_other_sizes_are_those_of_pytorch() -> None:
    ours = nn.MultiheadAttention(6, 3, kdim=5, vdim=4, batch_first=True)
    theirs = copy.deepcopy(ours)
    KFAC(ours)
    inputs = torch.randn(4, 6), torch.randn(7, 5), torch.randn(7, 4)
    torch.testing.assert_close(ours(*inputs), theirs(*inputs))


class Expanded(nn.Module):
    """The same attention of four linear layers."""

    def __init__(self, source: nn.MultiheadAttention) -> None:
        super().__init__()
        size, heads = source.embed_dim, source.num_heads
        self.heads = heads
        self.parts = nn.ModuleList(nn.Linear(size, size) for _ in range(4))
        weights = [*source.in_proj_weight.data.split(size), source.out_proj.weight.data]
        biases = [*source.in_proj_bias.data.split(size), source.out_proj.bias.data]
        for part, weight, bias in zip(self.parts, weights, biases, strict=True):
            part.weight.data.copy_(weight)
            part.bias.data.copy_(bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.parts[:3]
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.parts[3](attended.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
def test_projections_move_as_linear_layers_do(approximation: str) -> None:
    ours = nn.MultiheadAttention(6, 2, batch_first=True)
    theirs = Expanded(ours)
    x, target = torch.randn(3, 4, 6), torch.randn(3, 4, 6)
    for model in (ours, theirs):
        optimizer = KFAC(model, torch.optim.SGD(model.parameters(), 1.0), kl_clip=None,
                         approximation=approximation)  # fmt: skip
        assert optimizer.coverage.uncovered == {}
        for _ in range(2):
            output = ours(x, x, x, need_weights=False)[0] if model is ours else theirs(x)
            optimizer.zero_grad()
            (output - target).square().mean((1, 2)).mean().backward()
            optimizer.step()
    weights = torch.cat([part.weight for part in theirs.parts[:3]])
    torch.testing.assert_close(ours.in_proj_weight, weights)
    torch.testing.assert_close(ours.in_proj_bias, torch.cat([p.bias for p in theirs.parts[:3]]))
    torch.testing.assert_close(ours.out_proj.weight, theirs.parts[3].weight)


def test_copies_and_pickles_are_plain_modules() -> None:
    ours = nn.MultiheadAttention(6, 2, batch_first=True)
    KFAC(ours)
    x = torch.randn(3, 4, 6)
    expected = ours(x, x, x)[0]
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(other(x, x, x)[0], expected)
        other.in_proj_weight.data.zero_()
        assert not torch.equal(other(x, x, x)[0], expected)
