"""Tables of vectors looked up by number."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from scadl_core.optim.layers.layer import Call, Layer, Picker, Side


class Embedding(Layer):
    """A linear layer of one-hot rows, whose input factor is a diagonal: how often each entry is
    looked up by a sample.

    Args:
        name: Of the module.
        module: An nn.Embedding with dense gradients.
        max_size: Above which the gradient factor is diagonal.
    """

    def __init__(self, name: str, module: nn.Embedding, max_size: int) -> None:
        super().__init__(name, module, False, module.weight)
        self.table = module
        self.weight = cast(nn.Parameter, module.weight)
        self.input_side = Side(module.num_embeddings, 1, is_diagonal=True)
        self.gradient_side = Side.of(1, module.embedding_dim, max_size)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The table."""
        return (self.weight,)

    def observe(self, inputs: Tensor, output: Tensor, pick: Picker) -> Call:
        """See :meth:`Layer.observe`; inputs are entry numbers of any shape (N, ...)."""
        entry_R = inputs.reshape(-1)
        samples = inputs.shape[0] if inputs.dim() else 1
        count_V = torch.bincount(entry_R, minlength=self.table.num_embeddings).to(self.dtype)
        used = None
        if self.table.padding_idx is not None:  # it is looked up, and never trained
            count_V[self.table.padding_idx] = 0
            used = entry_R != self.table.padding_idx
        positions = len(entry_R) // max(1, samples)
        return Call(count_V.view(-1, 1, 1), samples, positions, used, is_gram=True)

    def gradient_rows(self, gradient: Tensor, call: Call, pick: Picker) -> Tensor:
        """See :meth:`Layer.gradient_rows`."""
        rows_RO = gradient.reshape(-1, gradient.shape[-1]).to(self.dtype)
        return (rows_RO if call.context is None else rows_RO * call.context[:, None])[None]

    def matrix(self) -> Tensor:
        """(1, O, V)."""
        assert self.table.weight.grad is not None
        return self.table.weight.grad.T[None].to(self.dtype)

    def assign(self, matrix_GOI: Tensor) -> None:
        """See :meth:`Layer.assign`."""
        assert self.table.weight.grad is not None
        self.table.weight.grad.copy_(matrix_GOI[0].T)
