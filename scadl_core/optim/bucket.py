"""Layers of one owner whose statistics travel in one flat tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scadl_core.optim.layers import Layer
from scadl_core.optim.packing import packed_size


@dataclass
class Bucket:
    """Layers of one owner whose statistics are sent together."""

    owner: int
    layers: list[Layer]
    buffer: Tensor | None = None
    work: list[Any] | None = None
    is_compressed: bool = False

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Layer and factor, in the order of the buffer."""
        return [(layer.name, name) for layer in self.layers for name in layer.sides]

    @property
    def sizes(self) -> list[int]:
        """Of the parts of the buffer: the factors of a layer, then its counts."""
        return [n for layer in self.layers for n in (*map(packed_size, layer.sides.values()), 2)]

    def separate(self, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """All factors, and all counts."""
        parts = iter(buffer.split(self.sizes))
        factors, counts = [], []
        for layer in self.layers:
            factors += [next(parts) for _ in layer.sides]
            counts.append(next(parts))
        return torch.cat(factors), torch.cat(counts)

    def counts_of(self, layer: Layer, counts: Tensor) -> list[float]:
        """Samples and rows of one layer."""
        start = 2 * self.layers.index(layer)
        return counts[start : start + 2].tolist()

    def join(self, factors: Tensor, counts: Tensor) -> Tensor:
        """The reverse of :meth:`separate`."""
        each = iter(factors.split([packed_size(s) for x in self.layers for s in x.sides.values()]))
        two = iter(counts.split(2))
        return torch.cat(
            [p for x in self.layers for p in (*(next(each) for _ in x.sides), next(two))]
        )


@dataclass
class Sent:
    """A message on its way, and the memory it is sent from."""

    work: Any
    values: Tensor

    def wait(self) -> None:
        """Until it is sent."""
        self.work.wait()
