"""Symmetric matrices as their upper triangles, in one flat tensor."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from scadl_core.optim.layers import Side


@lru_cache(maxsize=64)
def _triangle(size: int, device: torch.device) -> Tensor:
    """(2, size (size + 1) / 2) indices; finding them anew costs more than packing."""
    return torch.triu_indices(size, size, device=device)


def packed_size(side: Side) -> int:
    """Elements of a packed factor."""
    return side.groups * (side.size * (side.size + 1) // 2)


def pack(stack: Tensor) -> Tensor:
    """(K, n, n) to (K n (n+1) / 2)."""
    rows, columns = _triangle(stack.shape[1], stack.device)
    return stack[:, rows, columns].flatten()


def unpack(flat: Tensor, side: Side) -> Tensor:
    """The reverse of :func:`pack`: (groups, size, size)."""
    rows, columns = _triangle(side.size, flat.device)
    stack = flat.new_empty(side.groups, side.size, side.size)
    values = flat.view(side.groups, -1)
    stack[:, rows, columns] = values
    stack[:, columns, rows] = values
    return stack
