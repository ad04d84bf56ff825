"""Convolutions of one to three dimensions: grouped, strided, dilated, padded in any mode, and
transposed ones.

A transposed convolution is an ordinary one of its input with zeros between the elements, with its
kernel flipped; so both share all below.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from scadl_core.optim.layers.layer import Call, Layer, Picker, Side, with_ones

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Axis(NamedTuple):
    """How a convolution slides along one dimension.

    Attributes:
        kernel: Offsets.
        stride: Between output positions.
        dilation: Between offsets.
        left: Padding before; negative where the input is cut.
        right: Padding after.
        mode: Of padding, as :func:`torch.nn.functional.pad` calls it.
        spread: Between input elements, with zeros between, in a transposed one; else 0.
        outputs: Output positions.
    """

    kernel: int
    stride: int
    dilation: int
    left: int
    right: int
    mode: str
    spread: int
    outputs: int

    def windows(self, values: Tensor, dim: int) -> Tensor:
        """A view of padded values in which ``dim`` has the output positions and a new last
        dimension the offsets.
        """
        span = self.dilation * (self.kernel - 1) + 1
        return values.unfold(dim, span, self.stride).narrow(dim, 0, self.outputs)[
            ..., :: self.dilation
        ]


@lru_cache(maxsize=256)
def _counts(axis: Axis, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(size, kernel): how often each input element meets each offset, over all positions."""
    signal = _prepare(torch.eye(size, dtype=dtype, device=device)[:, None], (axis,))
    counts = axis.windows(signal, 2).sum((1, 2))
    return counts.flip(-1) if axis.spread else counts


def _prepare(values: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """Puts zeros between elements and pads."""
    if any(axis.spread > 1 for axis in axes):
        steps = [max(1, axis.spread) for axis in axes]
        shape = [(s - 1) * step + 1 for s, step in zip(values.shape[2:], steps, strict=True)]
        apart = values.new_zeros(*values.shape[:2], *shape)
        where: Any = (..., *(slice(None, None, step) for step in steps))
        apart[where] = values
        values = apart
    amounts = [n for axis in reversed(axes) for n in (axis.left, axis.right)]
    return pad(values, amounts, mode=axes[0].mode) if any(amounts) else values


class Conv(Layer):
    """A convolution as one dense layer a group, used at every output position.

    The reduced input statistic needs the sum over positions of each kernel offset alone. That sum
    separates over dimensions: one narrow matrix product a dimension, and no patches.

    Args:
        name: Of the module.
        module: One of the six of torch.nn.
        reduced: Reduce instead of expand.
        max_size: Above which a factor is diagonal.
    """

    def __init__(self, name: str, module: nn.Module, reduced: bool, max_size: int) -> None:
        self.conv = cast(Any, module)
        super().__init__(name, module, reduced, self.conv.weight)
        self.is_transposed = isinstance(module, TRANSPOSED)
        self.groups, self.kernel = self.conv.groups, tuple(self.conv.kernel_size)
        self.inputs = self.conv.in_channels // self.groups
        self.outputs = self.conv.out_channels // self.groups
        bias = self.conv.bias
        self.bias = bias if bias is not None and bias.requires_grad else None
        size = self.inputs * self.conv.weight[0, 0].numel() + (self.bias is not None)
        self.input_side = Side.of(self.groups, size, max_size)
        self.gradient_side = Side.of(self.groups, self.outputs, max_size)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Weight, and bias if it is trained."""
        return (self.conv.weight,) if self.bias is None else (self.conv.weight, self.bias)

    def axes(self, inputs: torch.Size, outputs: torch.Size) -> tuple[Axis, ...]:
        """How it slides, for spatial sizes of input and output."""
        mode = "constant" if self.conv.padding_mode == "zeros" else self.conv.padding_mode
        found = []
        for dim, kernel in enumerate(self.kernel):
            stride, dilation = self.conv.stride[dim], self.conv.dilation[dim]
            reach = dilation * (kernel - 1)
            if self.is_transposed:
                left = reach - int(self.conv.padding[dim])
                right = outputs[dim] + reach - left - (inputs[dim] - 1) * stride - 1
                found.append(Axis(kernel, 1, dilation, left, right, mode, stride, outputs[dim]))
                continue
            if self.conv.padding == "same":
                left, right = reach // 2, reach - reach // 2
            else:
                left = right = 0 if self.conv.padding == "valid" else int(self.conv.padding[dim])
            found.append(Axis(kernel, stride, dilation, left, right, mode, 0, outputs[dim]))
        return tuple(found)

    def observe(self, inputs: Tensor, output: Tensor, pick: Picker) -> Call:
        """See :meth:`Layer.observe`."""
        if inputs.dim() == len(self.kernel) + 1:
            inputs, output = inputs[None], output[None]
        axes = self.axes(inputs.shape[2:], output.shape[2:])
        samples, positions = output.shape[0], output[0, 0].numel()
        values = inputs.to(self.dtype)
        rows = self._sums(values, axes) if self.reduced else self._patches(values, axes, pick)
        if self.bias is not None:
            ones = (
                positions if self.reduced else (samples * positions / max(1, rows.shape[1])) ** 0.5
            )
            rows = with_ones(rows, float(ones))
        return Call(rows, samples, positions)

    def _sums(self, values: Tensor, axes: tuple[Axis, ...]) -> Tensor:
        """(G, N, I): for every offset the sum over positions."""
        for dim in range(len(axes) + 1, 1, -1):
            counts = _counts(axes[dim - 2], values.shape[dim], self.dtype, values.device)
            values = torch.tensordot(values, counts, dims=([dim], [0]))
        order = range(values.dim() - 1, 1, -1)  # the last dimension was summed first
        grouped = values.permute(0, 1, *order).reshape(len(values), self.groups, -1)
        return grouped.transpose(0, 1)

    def _patches(self, values: Tensor, axes: tuple[Axis, ...], pick: Picker) -> Tensor:
        """(G, R, I): the patch at every output position, or at some."""
        shape = [axis.outputs for axis in axes]
        total = torch.Size(shape).numel()
        view = _prepare(values, axes)
        for dim, axis in enumerate(axes):
            view = axis.windows(view, dim + 2)
        chosen = pick(total, values.device, 0)
        if chosen is None:
            patches: Tensor = view.flatten(2, len(axes) + 1)
        else:
            where: Any = (slice(None), slice(None), *torch.unravel_index(chosen, shape))
            patches = view[where] * (total / len(chosen)) ** 0.5
        if self.is_transposed:
            patches = patches.flip(tuple(range(3, patches.dim())))
        patches_NGITK = patches.reshape(len(values), self.groups, self.inputs, patches.shape[2], -1)
        rows = patches_NGITK.permute(1, 0, 3, 2, 4)
        return rows.reshape(self.groups, len(values) * patches.shape[2], -1)

    def gradient_rows(self, gradient: Tensor, call: Call, pick: Picker) -> Tensor:
        """See :meth:`Layer.gradient_rows`."""
        rows_NOT = gradient.reshape(call.samples, self.groups * self.outputs, -1)
        if self.reduced:
            rows_NOT = rows_NOT.sum(2, keepdim=True, dtype=self.dtype)
        else:
            chosen = pick(call.positions, gradient.device, 1)
            if chosen is not None:
                rows_NOT = rows_NOT[:, :, chosen] * (call.positions / len(chosen)) ** 0.5
        grouped: Tensor = rows_NOT.to(self.dtype).unflatten(1, (self.groups, self.outputs))
        return grouped.permute(1, 0, 3, 2).flatten(1, 2)

    def matrix(self) -> Tensor:
        """(G, O, I), the bias in the last column."""
        weight: Tensor | None = self.conv.weight.grad
        assert weight is not None
        if self.is_transposed:
            weight = weight.unflatten(0, (self.groups, self.inputs)).transpose(1, 2)
        matrix = weight.reshape(self.groups, self.outputs, -1).to(self.dtype)
        if self.bias is None:
            return matrix
        assert self.bias.grad is not None
        return torch.cat([matrix, self.bias.grad.view(self.groups, -1, 1).to(self.dtype)], 2)

    def assign(self, matrix_GOI: Tensor) -> None:
        """See :meth:`Layer.assign`."""
        weight: Tensor | None = self.conv.weight.grad
        assert weight is not None
        size = matrix_GOI.shape[2] - (self.bias is not None)
        values = matrix_GOI[:, :, :size].unflatten(2, (self.inputs, *self.kernel))
        if self.is_transposed:
            values = values.transpose(1, 2)
        weight.copy_(values.reshape(weight.shape))
        if self.bias is not None:
            assert self.bias.grad is not None
            self.bias.grad.copy_(matrix_GOI[:, :, size].reshape(-1))
