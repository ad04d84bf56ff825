"""Fully connected layers, also as a part of a larger weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scadl_core.optim.layers.layer import Call, Layer, Picker, Side, with_ones


class Linear(Layer):
    """``y = x W^T + b`` with x of (N, ..., I); the dimensions between are positions.

    Args:
        name: Of the module.
        module: Which has ``weight`` and ``bias``, or whose output the caller observes.
        reduced: Reduce instead of expand.
        max_size: Above which a factor is diagonal.
        weight: (O, I); by default the module's.
        bias: (O,); by default the module's.
        rows: The part of the weight that is this layer, by default all.
        bias_rows: The part of the bias, by default the same.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        reduced: bool,
        max_size: int,
        weight: nn.Parameter | None = None,
        bias: nn.Parameter | None = None,
        rows: slice | None = None,
        bias_rows: slice | None = None,
    ) -> None:
        whole: nn.Parameter = module.weight if weight is None else weight  # type: ignore[assignment]
        super().__init__(name, module, reduced, whole)
        given = getattr(module, "bias", None) if weight is None else bias
        self.weight = whole
        self.bias: nn.Parameter | None = (
            given if given is not None and given.requires_grad else None
        )
        self.rows = rows or slice(0, whole.shape[0])
        self.bias_rows = bias_rows or self.rows
        size = whole.shape[1] + (self.bias is not None)
        self.input_side = Side.of(1, size, max_size)
        self.gradient_side = Side.of(1, self.rows.stop - self.rows.start, max_size)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Weight, and bias if it is trained."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def _rows(self, values: Tensor, pick: Picker, stream: int) -> Tensor:
        values = values if values.dim() > 1 else values[None]
        rows_NTD = values.reshape(values.shape[0], -1, values.shape[-1]).to(self.dtype)
        if self.reduced:
            return (rows_NTD.sum(1) if rows_NTD.shape[1] > 1 else rows_NTD[:, 0])[None]
        chosen = pick(rows_NTD.shape[1], values.device, stream)
        if chosen is not None:
            scale = (rows_NTD.shape[1] / len(chosen)) ** 0.5
            rows_NTD = rows_NTD[:, chosen] * scale
        return rows_NTD.reshape(1, -1, values.shape[-1])

    def observe(self, inputs: Tensor, output: Tensor, pick: Picker) -> Call:
        """See :meth:`Layer.observe`."""
        samples = output.shape[0] if output.dim() > 1 else 1
        positions = output.numel() // (samples * output.shape[-1]) if samples else 0
        rows = self._rows(inputs, pick, 0)
        if self.bias is not None:
            ones = (
                positions if self.reduced else (samples * positions / max(1, rows.shape[1])) ** 0.5
            )
            rows = with_ones(rows, float(ones))
        return Call(rows, samples, positions)

    def gradient_rows(self, gradient: Tensor, call: Call, pick: Picker) -> Tensor:
        """See :meth:`Layer.gradient_rows`."""
        return self._rows(gradient, pick, 1)

    def matrix(self) -> Tensor:
        """(1, O, I), the bias in the last column."""
        assert self.weight.grad is not None
        weight_OI = self.weight.grad[self.rows].to(self.dtype)
        if self.bias is None:
            return weight_OI[None]
        assert self.bias.grad is not None
        return torch.cat([weight_OI, self.bias.grad[self.bias_rows, None].to(self.dtype)], 1)[None]

    def assign(self, matrix_GOI: Tensor) -> None:
        """See :meth:`Layer.assign`."""
        assert self.weight.grad is not None
        inputs = self.weight.shape[1]
        self.weight.grad[self.rows].copy_(matrix_GOI[0, :, :inputs])
        if self.bias is not None:
            assert self.bias.grad is not None
            self.bias.grad[self.bias_rows].copy_(matrix_GOI[0, :, inputs])
