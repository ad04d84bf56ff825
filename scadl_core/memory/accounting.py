"""How many bytes the forward pass keeps for the backward pass."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor, nn


class SavedBytes:
    """Measures what autograd saves inside a ``with`` block around a forward pass.

    Counted are the distinct storages of saved tensors, each once, without those of parameters and
    buffers, which are held anyway. The values that reach the backward pass are the same tensors;
    only the check of in-place changes rests while the block is open, so measure one step, not a
    training.

    Args:
        module: Whose parameters and buffers are left out; none where it is None.
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        held = [*module.parameters(), *module.buffers()] if module is not None else []
        self._held = {_storage(tensor) for tensor in held}
        self._seen: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    @property
    def bytes(self) -> int:
        """Bytes saved so far."""
        return sum(self._seen.values())

    def __enter__(self) -> SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    def _pack(self, tensor: Tensor) -> Tensor:
        key = _storage(tensor)
        if key not in self._held:
            # A storage freed and its address used again within the block counts as the larger of
            # the two.
            self._seen[key] = max(self._seen.get(key, 0), tensor.untyped_storage().nbytes())
        # Without detaching, an operation's own saved output would keep its node alive in a cycle.
        return tensor.detach()


def _unpack(tensor: Tensor) -> Tensor:
    return tensor


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
