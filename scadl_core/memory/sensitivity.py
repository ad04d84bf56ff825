"""How an error of a saved tensor shows in a gradient, per square of the error's bound.

For errors that are independent, of mean zero and uniform in [-eps, eps] on the share R of elements
that are not zero, the squared error of the gradient is ``eps^2 * unit`` in the mean. For a
convolution ``dW[o, c, k] = sum g[o, p] x[c, p + k]`` that is ``unit = R / 3 * fan * ||g||^2``, fan
being the inputs of an output; for a normalisation ``dgamma[c] = sum g x_hat``, and
``unit = R / 3 * ||g / std||^2``. Nothing in it is fitted. The bias of nearest rounding at loose
bounds, which the formula leaves out, is what subtractive dither takes away (Schuchman 1964,
doi:10.1109/TCOM.1964.1088973).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scadl_core.memory.operations import Call, Need

Energy = Callable[[Tensor], float]
Passed = Callable[[Tensor, float], float]


def energy_of(call: Call, saved: Tensor, output: Any, density: float) -> Energy | None:
    """A function from the gradient of a call's output to ``unit``; None where there is no formula.

    Args:
        call: The operation.
        saved: The tensor that it saved, still exact.
        output: What it returned.
        density: Share of the saved elements that are not zero.
    """
    if not isinstance(output, Tensor) or call.partner(saved) is None:
        return None
    if call.operation.need is Need.NORM:
        inverse, shape = _inverse_deviation(call, saved)
        return lambda grad: density / 3 * squares(grad.reshape(shape) * inverse)
    fan = _fan(call, saved, output)
    return lambda grad: density / 3 * fan * squares(grad)


def passing(call: Call, saved: Tensor) -> Passed | None:
    """How an error of normalised values shows in the gradient that a normalisation passes on.

    That is ``gamma / std (g - mean(g) - x_hat mean(g x_hat))``, so an error of one in all x_hat
    makes ``||gamma / std mean(g x_hat)||``, and the sum over ``g x_hat`` is the gradient of gamma.
    For a group normalisation the sums of its channels and samples are taken for independent.

    Args:
        call: The normalisation.
        saved: Its input.

    Returns:
        A function of the gradient of gamma and the norm of the input's; None where it is not known.
    """
    scale = call.weight
    is_fixed = call.name == "batch_norm" and not call.argument(5, "training", False)
    is_known = call.name in ("batch_norm", "group_norm") and saved.ndim > 2
    if scale is None or is_fixed or not is_known:
        return None
    channels, inverse = saved.shape[1], _inverse_deviation(call, saved)[0]
    if call.name == "group_norm":
        groups = inverse.shape[1]
        inverse = inverse.square().mean((0, 2)).sqrt().repeat_interleave(channels // groups)
        size = saved.numel() // (saved.shape[0] * groups)
    else:
        size = saved.numel() // channels
    slope_C = scale.detach().float() * inverse.reshape(-1)

    def relative(scale_grad: Tensor, norm: float) -> float:
        return math.sqrt(squares(scale_grad.float() * slope_C) / size) / norm

    return relative


def squares(grad: Tensor) -> float:
    """The sum of a gradient's squares, of any float type."""
    wide = torch.promote_types(grad.dtype, torch.float32)
    return float(torch.linalg.vector_norm(grad, dtype=wide)) ** 2


def _inverse_deviation(call: Call, saved: Tensor) -> tuple[Tensor, Sequence[int]]:
    """One over the deviation that each element is divided by, and the shape of the gradient that
    it multiplies.
    """
    shape: Sequence[int] = saved.shape
    value = saved.detach().float()
    if call.name == "layer_norm":
        axes = list(range(-len(call.argument(1, "normalized_shape")), 0))
    elif call.name == "group_norm":
        groups = int(call.argument(1, "num_groups"))
        shape = (saved.shape[0], groups, saved.numel() // max(1, saved.shape[0] * groups))
        value, axes = value.reshape(shape), [-1]
    elif call.name == "instance_norm":
        axes = list(range(2, saved.ndim))
    elif call.argument(5, "training", False):
        axes = [axis for axis in range(saved.ndim) if axis != 1]
    else:
        running = call.argument(2, "running_var")
        wide = [1, -1] + [1] * (saved.ndim - 2)
        return (running.float() + _epsilon(call)).rsqrt().reshape(wide), shape
    return (value.var(axes, correction=0, keepdim=True) + _epsilon(call)).rsqrt(), shape


def _epsilon(call: Call) -> float:
    place = 7 if call.name in ("batch_norm", "instance_norm") else 4
    return float(call.argument(place, "eps", 1e-5))


def _fan(call: Call, saved: Tensor, output: Tensor) -> float:
    """How many products with one gradient of an output an element of the weight's gradient row
    has, in the mean.
    """
    weight = call.weight
    if weight is None or weight.ndim <= 2:
        return float(call.argument(0, "input").shape[-1])
    spatial = weight.ndim - 2
    kernel = weight.shape[2:]
    if call.name.startswith("conv_transpose"):
        # Each input meets each tap once; of the outputs a tap sees one in stride.
        positions = math.prod(saved.shape[-spatial:]) / math.prod(output.shape[-spatial:])
        groups = call.argument(6, "groups", 1)
        return float(weight.shape[0] // groups * math.prod(kernel)) * positions
    return float(weight.shape[1]) * math.prod(
        _coverage(
            saved.shape[d - spatial],
            output.shape[d - spatial],
            kernel[d],
            *_steps(call, d, kernel[d]),
        )
        for d in range(spatial)
    )


def _steps(call: Call, axis: int, kernel: int) -> tuple[int, int, int]:
    """Stride, padding and dilation along an axis."""

    def along(index: int, name: str, default: int) -> Any:
        given = call.argument(index, name, default)
        return given if isinstance(given, int | str) else given[axis if len(given) > 1 else 0]

    dilation = int(along(5, "dilation", 1))
    padding = {"same": dilation * (kernel - 1) // 2, "valid": 0}
    given = along(4, "padding", 0)
    return int(along(3, "stride", 1)), int(padding.get(given, given)), dilation


def _coverage(
    size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> float:
    """Taps that meet an element and not the padding, in the mean over the outputs."""
    first = torch.arange(outputs)[:, None] * stride - padding
    taps = first + torch.arange(kernel) * dilation
    return float(((taps >= 0) & (taps < size)).sum()) / outputs
