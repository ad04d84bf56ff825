"""What K-FAC has to know of a layer: its statistics, and its gradient as a matrix.

Suffixes of names: N samples, R rows (samples times positions), G groups, O outputs, I inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Side:
    """One Kronecker factor of a layer: a stack of square matrices.

    Attributes:
        groups: How many matrices; a diagonal has one of size 1 for each of its elements.
        size: Rows of each.
        is_diagonal: Whether it stands for the diagonal of one matrix of ``groups`` rows.
    """

    groups: int
    size: int
    is_diagonal: bool = False

    @classmethod
    def of(cls, groups: int, size: int, max_size: int) -> Side:
        """A dense factor; above ``max_size`` its diagonal, since inverting costs the cube."""
        if size > max_size and groups == 1:
            return cls(size, 1, is_diagonal=True)
        return cls(groups, size)

    @property
    def numel(self) -> int:
        """Elements of all matrices."""
        return self.groups * self.size**2

    def gram(self, rows_GRD: Tensor) -> Tensor:
        """Sum over rows of their outer products, (groups, size, size); of large matrices the upper
        triangle alone is to be used.
        """
        if self.is_diagonal:
            return rows_GRD.square().sum(1).view(self.groups, 1, 1)
        if self.groups > 1:
            return rows_GRD.mT @ rows_GRD
        return _upper_gram(rows_GRD[0])[None] if self.size >= 128 else rows_GRD.mT @ rows_GRD


def _upper_gram(rows_RD: Tensor) -> Tensor:
    """Blocks on and above the diagonal: three quarters of the products, five eighths of many."""
    size = rows_RD.shape[1]
    gram, step = rows_RD.new_zeros(size, size), -(-size // (2 if size < 512 else 4))
    for start in range(0, size, step):
        stop = min(start + step, size)
        torch.mm(rows_RD[:, start:stop].T, rows_RD[:, start:], out=gram[start:stop, start:])
    return gram


@dataclass
class Call:
    """What one forward pass of a layer leaves until its gradient arrives.

    Attributes:
        input_rows: Rows of the input factor (G, R, I), or, reduced, sums over positions (G, N, I);
            None where there is no such factor. Their Gram matrix once ``is_gram``.
        samples: N.
        positions: T, how often each sample uses the weights in this call.
        context: What the layer itself needs again.
        is_gram: Whether ``input_rows`` are already multiplied out.
        seen: Whether a gradient has arrived.
    """

    input_rows: Tensor | None
    samples: int
    positions: int
    context: Tensor | None = None
    is_gram: bool = False
    seen: bool = False


class Layer(ABC):
    """A block of parameters whose Fisher matrix is approximated as ``A (x) G``.

    Attributes:
        name: Of the module, with dots.
        kind: Of the module, for reports.
        reduced: Whether positions are summed before outer products are taken (K-FAC-reduce,
            Eschenhagen et al. 2023, eq. 22) or after (K-FAC-expand, eq. 18).
        input_side: The factor A, if the layer has one.
        gradient_side: The factor G.
        dtype: Of factors: float64 for a float64 layer, otherwise float32.
    """

    input_side: Side | None
    gradient_side: Side

    def __init__(self, name: str, module: nn.Module, reduced: bool, weight: Tensor) -> None:
        self.name, self.kind, self.reduced = name, type(module).__name__, reduced
        self.module: nn.Module | None = module
        self.dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        self.device = weight.device

    @property
    @abstractmethod
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """What the layer trains."""

    @abstractmethod
    def observe(self, inputs: Tensor, output: Tensor, pick: Picker) -> Call:
        """Reads the input of a forward pass; nothing of the activations' size is kept, unless the
        layer needs it again.

        Args:
            inputs: As given to the module.
            output: What it returned, for its shape alone.
            pick: Chooses positions.
        """

    @abstractmethod
    def gradient_rows(self, gradient: Tensor, call: Call, pick: Picker) -> Tensor:
        """Rows of the gradient factor from the gradient of the loss by the output of a call."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """The gradient of the parameters as (groups, O, I); a layer's order of elements is its
        own.
        """

    @abstractmethod
    def assign(self, matrix_GOI: Tensor) -> None:
        """Writes such a matrix back to the parameters' gradients."""

    @property
    def has_gradient(self) -> bool:
        """Whether every parameter was used in this step."""
        return all(p.grad is not None for p in self.parameters)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of :meth:`matrix`: (groups, O, I)."""
        sides = [self.gradient_side, self.input_side or Side(1, 1)]
        outputs, inputs = [s.groups if s.is_diagonal else s.size for s in sides]
        dense = [s.groups for s in sides if not s.is_diagonal]
        return max(dense, default=1), outputs, inputs

    @property
    def sides(self) -> dict[str, Side]:
        """The factors there are, by the names A and G."""
        return ({"A": self.input_side} if self.input_side else {}) | {"G": self.gradient_side}


class Picker:
    """Chooses output positions at random: the same ones for all samples of a call, which is
    unbiased, and cheaper to gather.

    Args:
        most: How many are taken at most.
        seed: Of the choice.
    """

    def __init__(self, most: int | None, seed: int) -> None:
        self.most, self.seed = most, seed

    def __call__(self, total: int, device: torch.device, stream: int) -> Tensor | None:
        """Indices of positions, or None for all of them.

        Args:
            total: How many there are.
            device: Where the indices go.
            stream: Inputs and gradients choose for themselves, since neither knows of the other.
        """
        if self.most is None or total <= self.most:
            return None
        generator = torch.Generator().manual_seed((self.seed << 1 | stream) % 2**63)
        return torch.randint(total, (self.most,), generator=generator).to(device)


def with_ones(rows_GRI: Tensor, value: float) -> Tensor:
    """Appends the homogeneous coordinate that stands for the bias."""
    return torch.nn.functional.pad(rows_GRI, (0, 1), value=value)
