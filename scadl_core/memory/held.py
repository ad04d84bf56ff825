"""What a network holds anyway: its parameters and buffers, their views and casts."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

# What leads from a parameter to what an operation saves of it, autocast's copies included.
_VIEWS = {f"{name}Backward0" for name in (
    "ToCopy", "T", "View", "Transpose", "Permute", "Unsqueeze", "Squeeze", "ReshapeAlias",
    "UnsafeView", "Expand", "Alias", "AsStrided", "Slice", "Select", "Detach", "Split", "Unbind",
)}  # fmt: skip


class Held:
    """Of one network; looked up anew in every step, since storages change hands with ``.to()`` and
    sharding.

    Args:
        module: The network.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._names: dict[int, str] = {}
        self._storages: set[int] = set()

    def refresh(self) -> None:
        """Looks at what the network has now."""
        named = [(name, p) for name, p in self.module.named_parameters() if not is_lazy(p)]
        self._names = {id(p): name.removesuffix(".weight") for name, p in named}
        tensors = chain((p for _, p in named), self.module.buffers())
        found = (t for t in tensors if not is_lazy(t) and t.layout is torch.strided)
        self._storages = {t.untyped_storage()._cdata for t in found}

    def name_of(self, tensor: Tensor | None) -> str:
        """The name of a parameter, without ``.weight``; empty for another tensor."""
        return self._names.get(id(tensor), "")

    def owns(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in memory that is held."""
        return tensor.untyped_storage()._cdata in self._storages

    def made(self, tensor: Tensor) -> bool:
        """Whether a tensor is held, or a view or a cast of what is."""
        if self.owns(tensor):
            return True
        node: Any = tensor.grad_fn
        while node is not None and node.name() in _VIEWS:
            node = node.next_functions[0][0]
        variable = getattr(node, "variable", None)
        return variable is not None and self.owns(variable)
