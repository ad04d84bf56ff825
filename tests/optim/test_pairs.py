"""K-FAC beside what else people do to a training step: each pair gives the steps of plain K-FAC."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scadl_core.memory import CompressedActivations
from scadl_core.optim import KFAC

STEPS = 4


class Block(nn.Module):
    """Convolutions with an activation in place, one used twice, in a checkpoint if asked."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.twice = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(4, 3)
        self.reentrant: bool | None = None

    def body(self, x: Tensor) -> Tensor:
        x = nn.functional.relu(self.first(x), inplace=True)
        return self.norm(self.twice(self.twice(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.reentrant is None:
            x = self.body(x)
        else:
            x = checkpoint(self.body, x, use_reentrant=self.reentrant)
        return self.head(x.mean((2, 3)))


Backward = Callable[[nn.Module, Tensor, Tensor], None]


def backward(model: nn.Module, x: Tensor, y: Tensor) -> None:
    nn.functional.cross_entropy(model(x), y).backward()


def train(
    change: Callable[[Block], nn.Module] = lambda model: model,
    backward: Backward = backward,
    around: Callable[[nn.Module], AbstractContextManager[Any]] = nullcontext,
    **arguments: Any,
) -> Tensor:
    """The weights after some steps."""
    torch.manual_seed(0)
    block = Block()
    model = change(block)
    optimizer = KFAC(model, lr=0.05, inverse_period=2, **arguments)
    for _ in range(STEPS):
        x = torch.randn(8, 2, 5, 5).requires_grad_(block.reentrant is True)
        y = torch.randint(3, (8,))
        optimizer.zero_grad()
        with around(model):
            backward(model, x, y)
        optimizer.step()
    assert optimizer.report()["skipped"] == 0
    return torch.cat([p.detach().flatten() for p in block.parameters()])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    def change(model: Block) -> Block:
        model.reentrant = reentrant
        return model

    torch.testing.assert_close(train(change), train(), rtol=1e-10, atol=1e-12)


def test_gradient_accumulation() -> None:
    def parts(model: nn.Module, x: Tensor, y: Tensor) -> None:
        for half in (slice(0, 4), slice(4, 8)):
            (nn.functional.cross_entropy(model(x[half]), y[half]) / 2).backward()

    torch.testing.assert_close(train(backward=parts), train(), rtol=1e-10, atol=1e-12)


# dynamo looks at .grad of whatever a graph starts from
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model() -> None:
    def change(model: Block) -> nn.Module:
        return torch.compile(model, backend="eager")  # type: ignore[no-any-return]

    torch.testing.assert_close(train(change), train(), rtol=1e-10, atol=1e-12)


def test_activation_compression_without_loss() -> None:
    """Saved tensors are packed and unpacked exactly, the tensors themselves are let go."""

    def around(model: nn.Module) -> AbstractContextManager[Any]:
        return CompressedActivations(model, 0, smallest=1)

    torch.testing.assert_close(train(around=around), train(), rtol=1e-10, atol=1e-12)


def test_mixed_precision_with_a_scaled_loss() -> None:
    """bfloat16 products: the directions agree, and the scale of the loss is taken out of G."""
    torch.set_default_dtype(torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=10**6)

    def steps(scaled: bool, bad: bool) -> tuple[Tensor, KFAC]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        optimizer = KFAC(model, lr=0.05, scaler=scaler if scaled else None)
        for step in range(STEPS):
            x, y = torch.randn(32, 8), torch.randint(3, (32,))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=scaled):
                loss = nn.functional.cross_entropy(model(x).float(), y)
            if not scaled:
                loss.backward()
                optimizer.step()
                continue
            scale = float("nan") if bad and step == 1 else 1.0
            scaler.scale(loss * scale).backward()
            scaler.step(optimizer)
            scaler.update()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), optimizer

    start = torch.cat([p.detach().flatten() for p in steps_model().parameters()])
    plain, scaled = steps(False, False)[0] - start, steps(True, False)[0] - start
    assert torch.cosine_similarity(plain, scaled, 0) > 0.99
    assert 0.9 < scaled.norm() / plain.norm() < 1.1
    weights, optimizer = steps(True, True)
    assert optimizer.steps == STEPS - 1  # the scaler did not call it once
    assert weights.isfinite().all()


def steps_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def test_lightning_steps_with_a_closure() -> None:
    def closed(optimizer: KFAC, model: nn.Module, x: Tensor, y: Tensor) -> float:
        def closure() -> Tensor:
            loss = nn.functional.cross_entropy(model(x), y)  # forward, then zero_grad, as Lightning
            optimizer.zero_grad()
            loss.backward()
            return loss

        return float(optimizer.step(closure).detach())

    torch.manual_seed(0)
    model = Block()
    optimizer = KFAC(model, lr=0.05, inverse_period=2)
    for _ in range(STEPS):
        x = torch.randn(8, 2, 5, 5)
        assert closed(optimizer, model, x, torch.randint(3, (8,))) > 0
    found = torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.testing.assert_close(found, train(), rtol=1e-10, atol=1e-12)
