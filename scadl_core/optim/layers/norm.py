"""Scale and shift of normalisations: a small exact Fisher block for every channel."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scadl_core.optim.layers.layer import Call, Layer, Picker, Side

NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Norm(Layer):
    """``y = scale * normalised(x) + shift``: one 2 x 2 block a channel, of per-sample gradients
    that are summed over positions, so there is nothing to expand or reduce.

    Args:
        name: Of the module.
        module: A LayerNorm, GroupNorm or BatchNorm with parameters.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.norm = cast(Any, module)
        super().__init__(name, module, True, self.norm.weight)
        bias = self.norm.bias
        self.bias = bias if bias is not None and bias.requires_grad else None
        self.input_side = None
        self.gradient_side = Side(self.norm.weight.numel(), 1 + (self.bias is not None))

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Scale, and shift if it is trained."""
        return (self.norm.weight,) if self.bias is None else (self.norm.weight, self.bias)

    def _normalised(self, inputs: Tensor) -> Tensor:
        norm = self.norm
        if isinstance(norm, nn.LayerNorm):
            return F.layer_norm(inputs, norm.normalized_shape, eps=norm.eps)
        if isinstance(norm, nn.GroupNorm):
            return F.group_norm(inputs, norm.num_groups, eps=norm.eps)
        return F.batch_norm(inputs, None, None, training=True, eps=norm.eps)

    def _per_sample(self, values: Tensor) -> Tensor:
        """(N, C): sums over positions."""
        if isinstance(self.norm, nn.LayerNorm):
            channels = self.norm.weight.numel()
            batch = values.shape[: values.dim() - self.norm.weight.dim()]
            return values.reshape(batch[0] if batch else 1, -1, channels).sum(1)
        return values.flatten(2).sum(2) if values.dim() > 2 else values

    def observe(self, inputs: Tensor, output: Tensor, pick: Picker) -> Call:
        """See :meth:`Layer.observe`. The input is kept, as the module itself keeps it."""
        has_batch = inputs.dim() > self.norm.weight.dim() or not isinstance(self.norm, nn.LayerNorm)
        return Call(None, inputs.shape[0] if has_batch else 1, 1, context=inputs)

    def gradient_rows(self, gradient: Tensor, call: Call, pick: Picker) -> Tensor:
        """(C, N, 2): the gradients of scale and shift of every sample."""
        assert call.context is not None
        gradient = gradient.to(self.dtype)
        scale_NC = self._per_sample(gradient * self._normalised(call.context.to(self.dtype)))
        if self.bias is None:
            return scale_NC.T[:, :, None]
        return torch.stack([scale_NC.T, self._per_sample(gradient).T], 2)

    def matrix(self) -> Tensor:
        """(C, 2, 1)."""
        gradients = [
            p.grad.reshape(-1, 1).to(self.dtype) for p in self.parameters if p.grad is not None
        ]
        return torch.stack(gradients, 1)

    def assign(self, matrix_GOI: Tensor) -> None:
        """See :meth:`Layer.assign`."""
        for number, parameter in enumerate(self.parameters):
            assert parameter.grad is not None
            parameter.grad.copy_(matrix_GOI[:, number, 0].view_as(parameter))
