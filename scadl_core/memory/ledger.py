"""An account of what is saved for the backward pass: with compression and without, live and at
most, and where.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass
class Line:
    """The sums of one place over a step.

    Attributes:
        kind: How it was kept.
        raw: Bytes of the distinct storages that were saved there first.
        stored: Bytes kept in their place.
        tensors: How many.
        seconds: In the codec, both ways.
        leader: Where the same storage was saved first.
        block: The block of the network that was at work.
    """

    kind: str
    leader: str = ""
    block: str | None = None
    raw: int = 0
    stored: int = 0
    tensors: int = 0
    seconds: float = 0.0


@dataclass
class Storage:
    """A storage that would be alive without compression.

    Attributes:
        reference: Keeps its address from being used again.
        nbytes: Its size.
        boxes: Saved tensors in it that are still held.
        held: Of them those whose payload is the storage itself.
        leader: Where it was saved first.
    """

    reference: StorageWeakRef
    nbytes: int
    leader: str
    boxes: int = 0
    held: int = 0


def weak(tensor: Tensor) -> StorageWeakRef:
    """A reference to a tensor's storage that keeps its address, and not its memory."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def is_gone(reference: StorageWeakRef) -> bool:
    """Whether the storage of a reference was freed."""
    return bool(reference.expired())  # type: ignore[no-untyped-call]


class Ledger:
    """Counts distinct storages, and what is kept in their place.

    Attributes:
        live: Bytes kept now.
        live_raw: Bytes of the distinct storages that would be held now without compression.
        peak: The largest ``live`` of this step.
        peak_raw: The largest ``live_raw`` of this step.
        lines: Sums of this step by place.
        seconds: In the codec in this step, both ways.
        number: Of the step.
        waiting: Boxes held, by the number of the step that saved them.
    """

    def __init__(self) -> None:
        self.live = self.live_raw = self.peak = self.peak_raw = 0
        self.seconds = 0.0
        self.lines: dict[str, Line] = {}
        self.number = 0
        self.waiting: Counter[int] = Counter()
        self._storages: dict[int, Storage] = {}
        self.lock = threading.RLock()

    def begin(self) -> None:
        """Begins a step: peaks and lines start anew, what is alive stays."""
        self.peak, self.peak_raw, self.seconds = self.live, self.live_raw, 0.0
        self.lines, self.number = {}, self.number + 1

    def save(self, tensor: Tensor, place: str, kind: str, block: str | None = None) -> Storage:
        """Counts a saved tensor's storage, once however often it is saved."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        line = self.lines.setdefault(place, Line(kind, block=block))
        line.tensors += 1
        if (entry := self._storages.get(key)) is None:
            entry = self._storages[key] = Storage(weak(tensor), storage.nbytes(), place)
            self.live_raw += entry.nbytes
            line.raw += entry.nbytes
            self.peak_raw = max(self.peak_raw, self.live_raw)
        entry.boxes += 1
        self.waiting[self.number] += 1
        line.leader = entry.leader
        return entry

    def add(self, nbytes: int, place: str) -> None:
        """Counts bytes kept; negative ones are given back."""
        self.live += nbytes
        if place in self.lines:
            self.lines[place].stored += nbytes
        self.peak = max(self.peak, self.live)

    def hold(self, entry: Storage, place: str) -> None:
        """Counts a storage that is kept as it is."""
        entry.held += 1
        if entry.held == 1:
            self.add(entry.nbytes, place)

    def drop(self, entry: Storage, held: bool, nbytes: int, number: int) -> None:
        """Takes back what a box of some step held that autograd has let go."""
        entry.boxes -= 1
        self.waiting[number] -= 1
        if not self.waiting[number]:
            del self.waiting[number]
        if held:
            entry.held -= 1
            self.live -= entry.nbytes * (entry.held == 0)
        self.live -= nbytes
        if entry.boxes == 0:
            self.live_raw -= entry.nbytes
            self._storages.pop(entry.reference.cdata, None)

    @contextmanager
    def clock(self, place: str) -> Iterator[None]:
        """Adds the time of a block to the codec's."""
        began = perf_counter()
        yield
        passed = perf_counter() - began
        self.seconds += passed
        if place in self.lines:
            self.lines[place].seconds += passed

    @property
    def ratio(self) -> float:
        """Uncompressed over compressed bytes, each at its most."""
        return self.peak_raw / self.peak if self.peak else 1.0
