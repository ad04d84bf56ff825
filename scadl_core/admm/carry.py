"""A tuple of tensors as one tensor, so that a skip connection can be carried across a cut."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Shapes = tuple[tuple[int, ...], ...]


def pack(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, Shapes | None]:
    """One tensor of what a block gives.

    Args:
        value: A tensor of shape (B, ...), or a tuple of such of one dtype.

    Returns:
        The tensor itself and None; or, of a tuple, a tensor of shape (B, D) and the shapes of its
        parts without B.
    """
    if isinstance(value, Tensor):
        return value, None
    shapes = tuple(tuple(part.shape[1:]) for part in value)
    return torch.cat([part.reshape(len(part), -1) for part in value], dim=1), shapes


def unpack(packed: Tensor, shapes: Shapes | None) -> Tensor | tuple[Tensor, ...]:
    """What :func:`pack` was given.

    Args:
        packed: Shape (B, D), or any where ``shapes`` is None.
        shapes: What :func:`pack` gave beside it.
    """
    if shapes is None:
        return packed
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.split(packed, sizes, dim=1)
    return tuple(part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True))
