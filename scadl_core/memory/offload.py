"""Saved tensors in the memory of the host, moved beside the computation and fetched ahead of it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

PROBE = 32 * 2**20  # bytes that are moved to learn the rate


class Moved:
    """A tensor on the host.

    Args:
        tensor: On the device; dense or not, its strides come back.
        mover: Of that device.

    Attributes:
        nbytes: On the device: 0, or the tensor's while it is fetched ahead.
    """

    def __init__(self, tensor: Tensor, mover: Mover) -> None:
        self.mover, self.device, self.nbytes = mover, tensor.device, 0
        self.host = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=mover.is_apart
        )
        with mover.beside():
            self.host.copy_(tensor.detach(), non_blocking=True)
        mover.lent(tensor)
        self._ahead: tuple[Tensor, Any] | None = None

    def fetch(self) -> None:
        """Begins to move it back."""
        if self._ahead is None:
            with self.mover.beside():
                back = torch.empty_like(self.host, device=self.device)
                back.copy_(self.host, non_blocking=True)
                self._ahead = back, self.mover.mark()
            self._count(back.untyped_storage().nbytes())

    def restore(self) -> Tensor:
        """The tensor, on the device; what was saved before it is fetched next."""
        self.fetch()
        assert self._ahead is not None
        back, mark = self._ahead
        self.mover.wait(mark, back)
        self._ahead = None
        self._count(0)
        self.mover.fetch_before(self)
        return back

    def _count(self, nbytes: int) -> None:
        self.mover.count(nbytes - self.nbytes)
        self.nbytes = nbytes


class Mover:
    """Moves tensors between a device and the host.

    On a CUDA device copies run in a stream of their own, from and to pinned memory. On a CPU they
    are plain copies, which save nothing: of use to tests alone.

    Args:
        device: Where the tensors are.
        count: Called with the bytes that what is fetched ahead takes more on the device.
    """

    def __init__(self, device: torch.device, count: Callable[[int], None]) -> None:
        self.count, self.is_apart = count, device.type == "cuda"
        self.device = device
        self._stream = torch.cuda.Stream(device) if self.is_apart else None  # type: ignore[no-untyped-call]
        self._order: list[weakref.ref[Moved]] = []
        self._rate: float | None = None

    def begin(self) -> None:
        """Begins a step: what was saved before is not fetched ahead any more."""
        self._order.clear()

    def away(self, tensor: Tensor) -> Moved:
        """Moves a tensor to the host."""
        moved = Moved(tensor, self)
        self._order.append(weakref.ref(moved))
        return moved

    def fetch_before(self, moved: Moved) -> None:
        """Fetches what was saved before: a backward pass asks for it next."""
        while self._order:
            last = self._order.pop()()
            if last is moved:
                break
        before = self._order[-1]() if self._order else None
        if before is not None:
            before.fetch()

    def seconds(self, nbytes: int) -> float:
        """Time to move so many bytes there and back, as if nothing else were done meanwhile.

        Infinite on a CPU, whose memory is the host's.
        """
        if not self.is_apart:
            return float("inf")
        if self._rate is None:
            probe = torch.empty(PROBE, dtype=torch.uint8, device=self.device)
            for _ in range(2):  # the first time pins memory
                torch.cuda.synchronize(self.device)
                began = time.perf_counter()
                Moved(probe, self).restore()
                torch.cuda.synchronize(self.device)
                self._rate = (time.perf_counter() - began) / PROBE
        assert self._rate is not None
        return nbytes * self._rate

    def beside(self) -> AbstractContextManager[Any]:
        """What is done inside runs beside the computation, after what was begun before."""
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._stream)

    def lent(self, tensor: Tensor) -> None:
        """A tensor's memory is not used again before the copy is done."""
        if self._stream is not None:
            tensor.record_stream(self._stream)

    def mark(self) -> Any:
        """The present end of what runs beside."""
        return None if self._stream is None else self._stream.record_event()

    def wait(self, mark: Any, tensor: Tensor) -> None:
        """The computation goes on when a mark is reached; it now owns the tensor."""
        if mark is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(mark)
            tensor.record_stream(stream)
