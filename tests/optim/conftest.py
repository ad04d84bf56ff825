"""What tests of the optimizer share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scadl_core.optim import KFAC


@pytest.fixture(autouse=True)
def fixed_seed() -> Iterator[None]:
    """Random weights and data are the same in every run; 64-bit unless a test says otherwise."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


Step = Callable[..., KFAC]


@pytest.fixture
def one_step() -> Step:
    """One step of K-FAC around plain SGD of rate 1: parameters move by the preconditioned
    gradient. ``one_step(model, loss, **arguments)``.
    """

    def step(model: nn.Module, loss: Callable[[], Tensor], **arguments: Any) -> KFAC:
        optimizer = plain(model, **arguments)
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        return optimizer

    return step


def plain(model: nn.Module, **arguments: Any) -> KFAC:
    inner = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    return KFAC(model, inner, **{"kl_clip": None, "positions": None, **arguments})


@pytest.fixture
def make_plain() -> Callable[..., KFAC]:
    """The optimizer of :func:`one_step`."""
    return plain
