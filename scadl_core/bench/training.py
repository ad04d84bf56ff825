"""The optimizers that are compared, and one network under one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from scadl_core.bench.nets import Problem
from scadl_core.optim import KFAC


class Method(NamedTuple):
    """An optimizer that takes part.

    Attributes:
        make: From a model and a learning rate.
        rate: With which it is timed, and around which trials lie.
    """

    make: Callable[[nn.Module, float], Optimizer]
    rate: float


def _kfac(periods: tuple[int, int], **arguments: Any) -> Method:
    factor, inverse = periods

    def make(model: nn.Module, rate: float) -> Optimizer:
        return KFAC(model, lr=rate, factor_period=factor, inverse_period=inverse, **arguments)

    return Method(make, 0.1)


def kfac(damping: float) -> Method:
    """K-FAC with its other arguments as they are."""
    return _kfac((1, 10), damping=damping)


def _soap(model: nn.Module, rate: float) -> Optimizer:
    from pytorch_optimizer import SOAP

    return SOAP(model.parameters(), lr=rate, weight_decay=0.0, precondition_frequency=10)


def _muon(model: nn.Module, rate: float) -> Optimizer:
    from scadl_core.optim.muon import Muon

    return Muon(model, lr=rate, adamw_lr=rate / 2)


def _singd(model: nn.Module, rate: float) -> Optimizer:
    from singd.optim.optimizer import SINGD

    # It knows nothing but dense layers and convolutions, and warns of the others.
    return SINGD(model, lr=rate, T=10, kfac_approx="reduce", warn_unsupported=False)  # type: ignore[no-any-return]


def methods() -> dict[str, Method]:
    """Who takes part."""
    found = {
        "SGD": Method(lambda m, rate: SGD(m.parameters(), lr=rate, momentum=0.9), 0.3),
        "AdamW": Method(lambda m, rate: AdamW(m.parameters(), lr=rate), 1e-2),
        "SOAP": Method(_soap, 1e-2),
        "Muon": Method(_muon, 0.02),
    }
    try:
        version("singd")
        found["SINGD"] = Method(_singd, 1e-3)
    except PackageNotFoundError:
        pass
    return found | {
        "K-FAC (1, 10)": _kfac((1, 10)),
        "K-FAC (10, 100)": _kfac((10, 100)),
        "K-FAC (1, 10), probe": _kfac((1, 10), refresh_above=0.1),
        "K-FAC (1, 10), EKFAC": _kfac((1, 10), inverse="ekfac"),
    }


class Training:
    """One network under one optimizer.

    Args:
        problem: What is trained.
        method: By what.
        seed: Of weights and batches.
        rate: The learning rate, by default the method's.
    """

    def __init__(
        self, problem: Problem, method: Method, seed: int, rate: float | None = None
    ) -> None:
        torch.manual_seed(seed)
        self.problem, self.model = problem, problem.network()
        self.optimizer = method.make(self.model, method.rate if rate is None else rate)
        self.generator = torch.Generator().manual_seed(seed)

    def step(self) -> None:
        """One batch, drawn with replacement."""
        rows = torch.randint(
            len(self.problem.inputs), (self.problem.batch,), generator=self.generator
        )
        self.optimizer.zero_grad()
        torch.autograd.backward(self.loss(rows))
        self.optimizer.step()

    def loss(self, rows: Tensor | slice) -> Tensor:
        """Mean cross-entropy of samples, 0-d."""
        logits = self.model(self.problem.inputs[rows])
        return nn.functional.cross_entropy(logits, self.problem.labels[rows])

    def seconds(self, steps: int) -> float:
        """CPU time of so many steps."""
        started = time.process_time()
        for _ in range(steps):
            self.step()
        return time.process_time() - started
