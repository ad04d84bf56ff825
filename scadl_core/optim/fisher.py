"""Output gradients whose second moment is the Hessian of the loss by the output.

With the gradients of the training loss itself K-FAC approximates the empirical Fisher matrix; with
these the Fisher matrix, which for the losses below is the generalised Gauss-Newton matrix (Martens
2020, section 9).

Suffixes: N samples, K classes or outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from scadl_core.errors import ConfigError

if TYPE_CHECKING:
    from scadl_core.optim.kfac import KFAC

LIKELIHOODS = ("categorical", "bernoulli", "gaussian")


def sample_fisher(
    optimizer: KFAC, output: Tensor, likelihood: str, samples: int | None, weight: float | None
) -> None:
    """See :meth:`scadl_core.optim.KFAC.sample_fisher`."""
    if weight is None:
        weight = _weight(output, likelihood, optimizer.loss_reduction)
    capture = optimizer.capture
    generator = torch.Generator().manual_seed(capture.seed)
    parameters = [p for layer in optimizer.layers.values() for p in layer.parameters]
    capture.listens = True
    for vector in output_gradients(output, likelihood, samples, generator):
        torch.autograd.grad(
            output,
            parameters,
            vector.view_as(output) * weight,
            retain_graph=True,
            allow_unused=True,
        )
        capture.end_pass()
    capture.listens = False


def _weight(output: Tensor, likelihood: str, reduction: str) -> float:
    """With which the factors are those of the Gauss-Newton matrix of PyTorch's loss, whose mean is
    over samples, positions and, but for classes, outputs.
    """
    if reduction == "sum":
        return 1.0
    outputs = output.shape[1] if output.dim() > 1 else 1
    positions = output[0].numel() // outputs
    elements = 1 if likelihood == "categorical" else outputs
    terms = positions if reduction == "positions" else sqrt(positions)
    return 1 / (len(output) * terms * sqrt(elements))


def output_gradients(
    output: Tensor, likelihood: str, samples: int | None, generator: torch.Generator
) -> Iterator[Tensor]:
    """Gradients ``v`` of per-position losses by the output, with E[sum of v v^T] = Hessian.

    Args:
        output: (N, K, ...) logits, or predictions of squared error.
        likelihood: "categorical" (cross-entropy, classes in dimension 1), "bernoulli" (binary
            cross-entropy with logits) or "gaussian" (squared error without a factor 1/2).
        samples: Of labels drawn from the model, or None for the exact sum: one gradient for each
            of the K outputs.
        generator: On the CPU.

    Raises:
        ConfigError: Another likelihood.
    """
    if likelihood not in LIKELIHOODS:
        raise ConfigError(
            f"likelihood: expected one of {', '.join(LIKELIHOODS)}, got {likelihood!r}"
        )
    output = output.detach().movedim(1, -1) if output.dim() > 1 else output.detach()[:, None]
    roots = (
        _exact(output, likelihood)
        if samples is None
        else _drawn(output, likelihood, samples, generator)
    )
    for root in roots:
        yield root.movedim(-1, 1)


def _drawn(
    output: Tensor, likelihood: str, samples: int, generator: torch.Generator
) -> Iterator[Tensor]:
    for _ in range(samples):
        if likelihood == "gaussian":  # the label is normal with variance 1/2
            noise = torch.randn(output.shape, generator=generator, dtype=torch.float32)
            gradient = noise.to(output) * sqrt(2)
        elif likelihood == "bernoulli":
            chance = output.sigmoid()
            label = torch.rand(output.shape, generator=generator).to(output) < chance
            gradient = chance - label.to(output)
        else:
            chance = output.softmax(-1)
            flat = chance.flatten(0, -2).float().cpu()
            label = torch.multinomial(flat, 1, generator=generator)[:, 0].view(output.shape[:-1])
            gradient = chance - one_hot(label, output.shape[-1]).to(output)
        yield gradient / sqrt(samples)


def _exact(output: Tensor, likelihood: str) -> Iterator[Tensor]:
    """Columns of a root of the Hessian, one for each output."""
    for k in range(output.shape[-1]):
        unit = torch.zeros_like(output)
        unit[..., k] = 1
        if likelihood == "gaussian":
            yield unit * sqrt(2)
        elif likelihood == "bernoulli":
            chance = output.sigmoid()
            yield unit * (chance * (1 - chance)).sqrt()
        else:
            chance = output.softmax(-1)
            yield (unit - chance) * chance[..., k : k + 1].sqrt()
