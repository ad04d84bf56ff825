"""Statistics of layers: summed over a step, then averaged over steps.

With ``g`` the gradient of the loss by a layer's output, N samples, T positions a sample and R = N T
rows, the factors of a mean loss are (Martens & Grosse 2015; Eschenhagen et al. 2023)

    expand:  A = 1/N sum_nt a a^T          G = N^2/R sum_nt g g^T
    reduce:  A = 1/N sum_n abar abar^T     G = N sum_n gsum gsum^T     abar: mean, gsum: sum over t

so that ``A (x) G`` is the Fisher matrix of the per-sample loss. What the reference implementation
leaves out is N^2: autograd gives gradients of the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from scadl_core.optim.layers import Call, Layer

Bucket = tuple[int, torch.dtype, torch.device]


class Tally:
    """What one layer has shown since the last step.

    Calls of one micro-batch share their samples: for a module used twice each sample has twice the
    positions.

    Args:
        layer: Whose.
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.clear()

    def clear(self) -> None:
        """Forgets all."""
        self.sums: dict[str, Tensor] = {}
        self.samples = self.rows = self.waiting = 0
        self.arrived = False
        self._inputs: Tensor | None = None
        self._gradients: Tensor | None = None
        self._positions = 0

    def add(self, call: Call, gradient_rows: Tensor) -> None:
        """Adds a call whose gradient has arrived; a second gradient of a call adds to G alone."""
        self.waiting -= not call.seen
        if not self.layer.reduced:
            self._add_rows(call, gradient_rows)
            return
        if self._gradients is not None and self._gradients.shape != gradient_rows.shape:
            self.fold()
        if not self.arrived:
            self.samples += call.samples
            self.rows += call.samples
        self.arrived = True
        self._gradients = _plus(self._gradients, gradient_rows)
        if not call.seen:
            self._positions += call.positions
            if call.input_rows is not None:
                self._inputs = _plus(self._inputs, call.input_rows)
        call.seen = True

    def _add_rows(self, call: Call, gradient_rows: Tensor) -> None:
        self._sum("G", self.layer.gradient_side.gram(gradient_rows))
        if not call.seen:
            assert call.input_rows is not None
            self._sum("A", call.input_rows)
            self.rows += call.samples * call.positions
            self.samples += 0 if self.arrived else call.samples
        self.arrived = call.seen = True

    def _sum(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def fold_gradients(self) -> None:
        """Ends one backward pass."""
        if self._gradients is not None:
            self._sum("G", self.layer.gradient_side.gram(self._gradients))
            self._gradients = None

    def fold(self) -> None:
        """Ends a micro-batch."""
        self.fold_gradients()
        if self._inputs is not None and self.layer.input_side is not None:
            self._sum("A", self.layer.input_side.gram(self._inputs / max(1, self._positions)))
        self._inputs, self._positions, self.arrived = None, 0, False

    @property
    def is_complete(self) -> bool:
        """Whether every forward pass has had its gradient."""
        return self.arrived and not self.waiting

    def counts(self) -> Tensor:
        """Samples and rows, (2,) of the layer's dtype, as they are summed over ranks."""
        return torch.tensor(
            [self.samples, self.rows], dtype=self.layer.dtype, device=self.layer.device
        )


def _plus(total: Tensor | None, value: Tensor) -> Tensor:
    return value if total is None else total + value


class Bank:
    """Square matrices of many layers; those of one size lie in one tensor, so that one call serves
    all of them.

    Args:
        layers: Whose factors; those of equal shape are neighbours, in A as in G.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.slots: dict[tuple[str, str], tuple[Bucket, slice]] = {}
        counts: dict[Bucket, int] = {}
        for layer in layers:
            for name, side in layer.sides.items():
                bucket = (side.size, layer.dtype, layer.device)
                start = counts.get(bucket, 0)
                counts[bucket] = start + side.groups
                self.slots[layer.name, name] = bucket, slice(start, counts[bucket])
        self.stacks = {
            (size, dtype, device): torch.zeros(count, size, size, dtype=dtype, device=device)
            for (size, dtype, device), count in counts.items()
        }

    def view(self, layer: Layer, name: str) -> Tensor:
        """The factor of a layer, (groups, size, size), in place."""
        bucket, rows = self.slots[layer.name, name]
        return self.stacks[bucket][rows]

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return sum(stack.nbytes for stack in self.stacks.values())


class Averages:
    """Moving averages of factors, without the bias of a start from nothing: an average of k
    values is divided by ``1 - decay^k`` (as Adam's), and there is no identity to begin with.

    Args:
        layers: Whose factors this process averages.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = sorted(layers, key=shape_order)
        self.bank = Bank(self.layers)
        self.weight = {
            layer.name: torch.zeros((), dtype=torch.float64, device=layer.device)
            for layer in self.layers
        }
        self.refused = {
            layer.name: torch.zeros((), dtype=torch.int64, device=layer.device)
            for layer in self.layers
        }

    def update(
        self,
        layer: Layer,
        sums: Mapping[str, Tensor],
        scales: Mapping[str, Tensor | float],
        decay: float,
    ) -> None:
        """Takes in the statistics of a step; those that are not finite, or of no sample, are
        refused and counted, without waiting for a device.

        Args:
            layer: Whose.
            sums: Of outer products, by factor; scaled in place.
            scales: What each sum is multiplied by.
            decay: Of the average.
        """
        traces = [v.diagonal(dim1=-2, dim2=-1).sum() * scales[n] for n, v in sums.items()]
        good = torch.stack(traces).isfinite().all()
        weight, refused = self.weight[layer.name], self.refused[layer.name]
        if is_free_to_ask(good):  # and then fewer passes over the factors will do
            if not bool(good):
                refused += 1
                return
            for name, value in sums.items():
                share = (1 - decay) * float(scales[name])
                self.bank.view(layer, name).mul_(decay).add_(value, alpha=share)
            weight.mul_(decay).add_(1 - decay)
            return
        for name, value in sums.items():
            average = self.bank.view(layer, name)
            value.mul_(scales[name])
            average.lerp_(torch.where(good, value, average, out=value), 1 - decay)
        weight.copy_(torch.where(good, weight * decay + (1 - decay), weight))
        refused += ~good

    def mean_diagonal(self, layer: Layer, name: str) -> Tensor:
        """The mean of the diagonal of :meth:`mean`, (groups,)."""
        means = self.bank.view(layer, name).diagonal(dim1=-2, dim2=-1).mean(1)
        weight = self.weight[layer.name]
        return means / torch.where(weight > 0, weight, 1.0).to(means.dtype)

    def mean(self, layer: Layer, name: str) -> Tensor:
        """The average without its bias, symmetric; zero before the first value."""
        value = self.bank.view(layer, name)
        weight = self.weight[layer.name]
        value = value / torch.where(weight > 0, weight, 1.0).to(value.dtype)
        return value.triu() + value.triu(1).mT if value.shape[1] > 1 else value


def shape_order(layer: Layer) -> tuple[int, ...]:
    """Brings layers of equal shape together."""
    side, other = layer.gradient_side, layer.input_side
    return (side.size, side.groups, *((other.size, other.groups) if other else (0, 0)))


def is_free_to_ask(flag: Tensor) -> bool:
    """Whether its value can be had without waiting for a device."""
    return flag.is_cpu
