"""Whether the loss is reduced over samples as the optimizer was told.

A factor G scales with the square of the loss, so a sum taken for a mean is off by the square of the
batch size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from scadl_core.optim.kfac import KFAC

REDUCTIONS = ("mean", "sum", "positions")
CHECKED_SAMPLES = 8
TOLERATED = 10.0


def gradient_scale(
    reduction: str, samples: Tensor | float, rows: Tensor | float, terms: int
) -> Tensor | float:
    """What the sum of outer products of a layer's output gradients is multiplied by.

    Args:
        reduction: "mean" over samples; "sum"; or "positions": a mean over samples and positions
            each of which has a loss of its own.
        samples: That share one mean, N.
        rows: N T of the layer, over all ranks.
        terms: Loss terms of a sample.
    """
    if reduction == "sum":
        return samples / rows
    return samples * samples / rows * (terms if reduction == "positions" else 1)


def softmax_normaliser(logits: Tensor, gradient: Tensor) -> float | None:
    """By what the cross-entropies of single samples were multiplied, seen from its gradients.

    The gradient of ``c * cross_entropy`` by logits is ``c (p - label)``: divided by p it is c for
    every class but the label's.

    Args:
        logits: (N, K) or (N, K, ...); a few samples.
        gradient: Of the loss by the logits.

    Returns:
        c, or None where the gradient is no cross-entropy's.
    """
    if logits.dim() < 2 or logits.shape[1] < 2:
        return None
    chance = logits.double().softmax(1)
    quotient = (gradient.double() / chance).movedim(1, -1).flatten(0, -2)
    largest = quotient.max(-1, keepdim=True).values
    close = (quotient - largest).abs() < 0.01 * largest
    typical = close.sum(-1) >= quotient.shape[-1] - 1
    negative = (quotient < 0).sum(-1) == 1
    if not bool((typical & negative).all()):
        return None
    return float(largest.mean())


def warn_if_off(ratio: float, told: str, what: str) -> None:
    """Warns when the curvature would be off by more than ten.

    Args:
        ratio: Of the curvature to the true one.
        told: The optimizer's ``loss_reduction``.
        what: What it was compared with.
    """
    if not 1 / TOLERATED <= ratio <= TOLERATED:
        warnings.warn(
            f"KFAC: with loss_reduction={told!r} curvature is {ratio:.2g} times that of {what}: "
            f"choose the reduction of your loss ({', '.join(REDUCTIONS)}), or damping will mean "
            "something else",
            stacklevel=4,
        )


def compare_reduction(optimizer: KFAC, loss: Callable[[slice], Tensor], samples: int) -> float:
    """See :meth:`scadl_core.optim.KFAC.check_reduction`."""
    parameters = [p for layer in optimizer.layers.values() for p in layer.parameters]
    capture = optimizer.capture
    before = capture.is_on, capture.listens
    capture.clear()
    capture.is_on = capture.listens = True
    torch.autograd.grad(loss(slice(0, samples)), parameters, allow_unused=True)
    terms = capture.last[1].positions if capture.last else 1
    ours = 0.0
    for tally in capture.take().values():
        if tally.samples:
            scale = gradient_scale(optimizer.loss_reduction, tally.samples, tally.rows, terms)
            traces = {n: float(v.diagonal(dim1=-2, dim2=-1).sum()) for n, v in tally.sums.items()}
            ours += traces["G"] * float(scale) * traces.get("A", samples) / samples
    capture.clear()
    capture.is_on = False
    true = 0.0
    for n in range(samples):
        gradients = torch.autograd.grad(loss(slice(n, n + 1)), parameters, allow_unused=True)
        true += sum(float(g.double().square().sum()) for g in gradients if g is not None) / samples
    capture.is_on, capture.listens = before
    warn_if_off(ours / true, optimizer.loss_reduction, f"the gradients of {samples} single samples")
    return ours / true


def warn_of_normaliser(found: float, told: str, samples: int, terms: int) -> None:
    """Compares what :func:`softmax_normaliser` saw with what the optimizer was told.

    Args:
        found: The normaliser.
        told: The optimizer's ``loss_reduction``.
        samples: N.
        terms: Positions that have a loss; the loss of a sample may be their sum or their mean.
    """
    highest = 1.0 if told == "sum" else 1 / samples / (terms if told == "positions" else 1)
    lowest = highest / (1 if told == "positions" else terms)
    ratio = (found / min(max(found, lowest), highest)) ** 2
    warn_if_off(ratio, told, "the cross-entropy that its gradients show")
