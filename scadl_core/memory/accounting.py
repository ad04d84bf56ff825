"""How many bytes a forward pass keeps for the backward pass, or needs at a time."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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


class AliveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Measures how many bytes of tensors made inside a ``with`` block are alive at a time.

    Distinct storages are counted, on any device; not what a library uses inside an operation.

    Attributes:
        most: The most bytes so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and _storage(tensor) not in self._alive:
                storage = tensor.untyped_storage()
                self._alive[storage.data_ptr()] = storage.nbytes()
                weakref.finalize(storage, self._alive.pop, storage.data_ptr(), None)
        self.most = max(self.most, sum(self._alive.values()))
        return result
