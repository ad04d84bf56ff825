"""What a block remembers of each batch, exactly or within a bound."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scadl_core.compress import Bound, Compressed, decode, encode, from_bytes, to_bytes


class Variables:
    """Tensors by batch and name.

    Args:
        bound: None keeps every bit; else every variable is coded within the bound.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        self.bound = bound
        self._kept: dict[int, dict[str, Tensor | Compressed]] = {}

    def __contains__(self, batch: int) -> bool:
        return batch in self._kept

    def batches(self) -> list[int]:
        """The numbers of those that it knows."""
        return list(self._kept)

    def get(self, batch: int) -> dict[str, Tensor]:
        """Those of a batch; what is changed is put back with :meth:`put`."""
        return {
            name: it if isinstance(it, Tensor) else decode(it)
            for name, it in self._kept[batch].items()
        }

    def put(self, batch: int, values: dict[str, Tensor]) -> None:
        """Sets variables of a batch; others of it stay."""
        kept = self._kept.setdefault(batch, {})
        for name, value in values.items():
            value = value.detach()
            kept[name] = value if self.bound is None else encode(value.contiguous(), self.bound)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(it.nbytes for batch in self._kept.values() for it in batch.values())

    def state_dict(self) -> dict[int, dict[str, Any]]:
        """Tensors, or streams of compressed ones."""
        return {
            batch: {
                name: it if isinstance(it, Tensor) else {"stream": _tensor(to_bytes(it))}
                for name, it in values.items()
            }
            for batch, values in self._kept.items()
        }

    def load_state_dict(self, state: dict[int, dict[str, Any]]) -> None:
        """Goes on from a state."""
        self._kept = {
            batch: {
                name: it if isinstance(it, Tensor) else from_bytes(it["stream"].numpy())
                for name, it in values.items()
            }
            for batch, values in state.items()
        }


def _tensor(stream: bytes) -> Tensor:
    return torch.frombuffer(bytearray(stream), dtype=torch.uint8)
