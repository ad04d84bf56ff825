"""The error that compression brings into gradients: predicted beside measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from scadl_core.memory.activations import CompressedActivations


class GradientError(NamedTuple):
    """Of one parameter, relative to the norm of its exact gradient.

    Attributes:
        name: Of the parameter.
        predicted: From the bounds of the tensors that its own operations saved; NaN where none was
            compressed or no formula says.
        measured: From all that was compressed.
    """

    name: str
    predicted: float
    measured: float


def gradient_errors(
    compressed: CompressedActivations, forward: Callable[[], Tensor]
) -> list[GradientError]:
    """Computes a step's gradients exactly and with compression.

    Gradients, running statistics and the states of random generators are left as they were.

    Args:
        compressed: Whose module is looked at; its statistics learn from the step.
        forward: Computes the loss; twice the same, but for random numbers, which are repeated.

    Returns:
        One entry for each parameter that has a gradient.
    """
    module = compressed.module
    exact = _gradients(compressed, forward)
    compressed.is_asked = True
    try:
        with compressed:
            ours = _gradients(compressed, forward)
    finally:
        compressed.is_asked = False
    squares: dict[str, float] = {}
    for site in compressed.sites.values():
        name = site.name.partition(" ")[2].partition(" #")[0]
        squares[name] = squares.get(name, 0.0) + site.error
    found = []
    for name, _ in module.named_parameters():
        if name in exact and float(exact[name].norm()) > 0:
            norm = float(exact[name].double().norm())
            predicted = squares.get(name.removesuffix(".weight"), 0.0)
            error = float((ours[name].double() - exact[name].double()).norm())
            relative = math.sqrt(predicted) / norm if predicted else math.nan
            found.append(GradientError(name, relative, error / norm))
    return found


def _gradients(
    compressed: CompressedActivations, forward: Callable[[], Tensor]
) -> dict[str, Tensor]:
    module = compressed.module
    before = {name: p.grad for name, p in module.named_parameters()}
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    for parameter in module.parameters():
        parameter.grad = None
    try:
        with torch.random.fork_rng():
            forward().backward()  # type: ignore[no-untyped-call]
        return {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    finally:
        for name, parameter in module.named_parameters():
            parameter.grad = before[name]
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
