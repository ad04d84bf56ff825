"""Damped inverses of stacks of factors.

Damping is divided between the factors of a layer such that each gets a share in proportion to its
own size (Martens & Grosse 2015, section 6.3):

    pi^2 = mean diag(A) / mean diag(G)      A + pi sqrt(damping) I      G + sqrt(damping)/pi I

A factor without a partner gets the whole damping.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from scadl_core.errors import ConfigError

# Of batched eigenproblems torch solves on a GPU one after the other above this size (2.13).
_BATCHED_BY_TORCH = 32
_PI_RANGE = (1e-3, 1e3)


def split_damping(mean_a: Tensor, mean_g: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """The damping of both factors of a layer.

    Args:
        mean_a: Mean of the diagonal of each A, (groups,).
        mean_g: The same of each G.
        damping: Of the layer, in units of its Fisher matrix.

    Returns:
        Of A and of G, each of the shape of its argument; where the numbers of groups differ (a
        diagonal), the means over groups decide.
    """
    same = mean_a.shape == mean_g.shape
    ratio = mean_a / mean_g if same else mean_a.mean() / mean_g.mean()
    # A layer whose gradients are all zero has no G: the range keeps its inverse finite.
    pi = ratio.nan_to_num(1.0).sqrt().clamp(*_PI_RANGE)
    root = damping**0.5
    return (pi * root).expand_as(mean_a), (root / pi).expand_as(mean_g)


class Inverted(NamedTuple):
    """Inverses of a stack.

    Attributes:
        matrices: (K, n, n): inverses, or eigenvectors in columns.
        values: (K, n) eigenvalues, without damping; None for inverses.
        good: (K,) which are to be used.
    """

    matrices: Tensor
    values: Tensor | None
    good: Tensor


class Inverse(Protocol):
    """How factors are inverted and applied."""

    keeps_values: bool

    def invert(self, stack: Tensor, damping: Tensor) -> Inverted:
        """Factorises a stack of symmetric matrices (K, n, n), each with its damping (K,)."""
        ...


class Cholesky:
    """Explicit inverses of damped factors: two products a layer and step."""

    keeps_values = False

    def invert(self, stack: Tensor, damping: Tensor) -> Inverted:
        """See :class:`Inverse`."""
        damped = add_damping(stack, damping)
        if stack.shape[1] == 1:
            inverses, failed = damped.reciprocal(), damped[:, 0, 0] <= 0
        else:
            roots, codes = torch.linalg.cholesky_ex(damped)
            diagonal = roots.diagonal(dim1=-2, dim2=-1)
            failed = (codes != 0) | ~((diagonal > 0) & diagonal.isfinite()).all(1)
            # A zero on a diagonal would raise, and for all matrices of the stack.
            unit = torch.eye(stack.shape[1], dtype=stack.dtype, device=stack.device)
            inverses = torch.cholesky_inverse(torch.where(failed[:, None, None], unit, roots))
        return Inverted(inverses, None, ~failed & inverses.sum((1, 2)).isfinite())


class Eigen:
    """Eigenvectors and eigenvalues: the damping may change at every step, for four products
    instead of two.
    """

    keeps_values = True

    def invert(self, stack: Tensor, damping: Tensor) -> Inverted:
        """See :class:`Inverse`."""
        if stack.shape[1] == 1:
            return Inverted(torch.ones_like(stack), stack[:, 0], stack[:, 0, 0].isfinite())
        values, vectors = _eigh(stack)
        good = values.sum(1).isfinite() & vectors.sum((1, 2)).isfinite()
        return Inverted(vectors, values.clamp_min(0), good)


def _eigh(stack: Tensor) -> tuple[Tensor, Tensor]:
    if stack.is_cuda and stack.shape[1] > _BATCHED_BY_TORCH and len(stack) > 1:
        import cupy  # cuSOLVER's batched routine, which torch does not call above that size

        with cupy.cuda.ExternalStream(torch.cuda.current_stream(stack.device).cuda_stream):
            values, vectors = cupy.linalg.eigh(cupy.from_dlpack(stack.contiguous()))
            return torch.utils.dlpack.from_dlpack(values), torch.utils.dlpack.from_dlpack(vectors)
    try:
        values, vectors = torch.linalg.eigh(stack)
    except RuntimeError:  # does not say which: all keep what they have
        return stack.new_full(stack.shape[:2], torch.nan), torch.full_like(stack, torch.nan)
    return values, vectors


METHODS: dict[str, type[Cholesky] | type[Eigen]] = {
    "cholesky": Cholesky,
    "eigen": Eigen,
    "ekfac": Eigen,
}


def make_inverse(name: str) -> Inverse:
    """The method of that name; a ConfigError for another name."""
    if name not in METHODS:
        raise ConfigError(f"inverse: expected one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]()


def add_damping(stack: Tensor, damping: Tensor) -> Tensor:
    """A copy of (K, n, n) with (K,) on the diagonals."""
    damped = stack.clone()
    damped.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
    return damped


def residual(
    stack: Tensor, damping: Tensor, matrices: Tensor, values: Tensor | None, seed: int
) -> Tensor:
    """How far old inverses are from those of the present factors: ``|z - M inverse z| / |z|`` for
    two random z of each matrix; (K,).

    Args:
        stack: Present factors, (K, n, n).
        damping: Of each, (K,).
        matrices: (K, n, n), as of :class:`Inverted`.
        values: (K, n) or None, as of :class:`Inverted`.
        seed: Of z.
    """
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(*stack.shape[:2], 2, generator=generator, dtype=stack.dtype).to(stack.device)
    if values is None:
        solved = matrices @ z
    else:
        solved = matrices @ ((matrices.mT @ z) / (values + damping[:, None])[:, :, None])
    left = z - stack @ solved - damping[:, None, None] * solved
    far: Tensor = torch.linalg.vector_norm(left, dim=(1, 2)) / torch.linalg.vector_norm(
        z, dim=(1, 2)
    )
    return far
