"""Bytes between all ranks, in messages of a size that everyone knows beforehand.

Compressed data have a length that only their sender knows. To tell it first costs a message;
to pad to the longest costs bytes. Here a message has the capacity that the last one of its kind
would have needed, and an eighth more; what does not fit follows in a second message between the
two who know of it from the head of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

_HEAD = 16  # two numbers: the length, and the longest that this rank has scattered


class Messages:
    """Scatters and gathers bytes; all ranks of a group call the same methods in the same order.

    Args:
        group: The processes.
        device: Where the backend wants its tensors.
        count: Told how many bytes are handed over.

    Attributes:
        overflows: How many messages of this rank did not fit.
    """

    def __init__(self, group: Any, device: torch.device, count: Callable[[int], None]) -> None:
        self.group, self.device, self.count = group, device, count
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.overflows = 0
        self._scattered: dict[Hashable, int] = {}
        self._gathered: dict[Hashable, int] = {}
        self._longest = 0

    def scatter(self, key: Hashable, payloads: Sequence[bytes], guess: int) -> list[bytes]:
        """Gives each rank its payload.

        Args:
            key: Messages of one kind have one capacity.
            payloads: One for each rank; this rank's own stays here.
            guess: The capacity of the first of a kind, in bytes, the same on all ranks.

        Returns:
            What each rank has for this one, in the order of ranks.
        """
        capacity = self._scattered.get(key, guess)
        others = [p if r != self.rank else b"" for r, p in enumerate(payloads)]
        self._longest = max(map(len, others))
        rows = np.stack([self._row(payload, capacity) for payload in others])
        sent = torch.from_numpy(rows).to(self.device)
        got = torch.empty_like(sent)
        self.count((self.size - 1) * sent[0].nbytes)
        dist.all_to_all_single(got, sent, group=self.group)
        works = [self._follow(p, capacity, r) for r, p in enumerate(others) if len(p) > capacity]
        found = [self._read(row, capacity, r) for r, row in enumerate(got.cpu().numpy())]
        for work, _ in works:
            work.wait()
        found[self.rank] = payloads[self.rank]
        return found

    def gather(self, key: Hashable, payload: bytes, guess: int) -> list[bytes]:
        """Gives every rank the payload of each, in the order of ranks; ends what
        :meth:`scatter` of the same key began: capacities follow what was needed.
        """
        capacity = self._gathered.get(key, guess)
        sent = torch.from_numpy(self._row(payload, capacity)).to(self.device)
        rows = [torch.empty_like(sent) for _ in range(self.size)]
        self.count(sent.nbytes)
        dist.all_gather(rows, sent, group=self.group)
        works = [
            self._follow(payload, capacity, r)
            for r in range(self.size)
            if r != self.rank and len(payload) > capacity
        ]
        arrays = [row.cpu().numpy() for row in rows]
        heads = np.stack([array[:_HEAD].view(np.int64) for array in arrays])
        found = [
            payload if r == self.rank else self._read(array, capacity, r)
            for r, array in enumerate(arrays)
        ]
        for work, _ in works:
            work.wait()
        self._gathered[key], self._scattered[key] = (_room(int(n)) for n in heads.max(0))
        return found

    def _row(self, payload: bytes, capacity: int) -> Any:
        row = np.zeros(_HEAD + capacity, np.uint8)
        row[:_HEAD] = np.array([len(payload), self._longest]).view(np.uint8)
        part = payload[:capacity]
        row[_HEAD : _HEAD + len(part)] = np.frombuffer(part, np.uint8)
        return row

    def _follow(self, payload: bytes, capacity: int, rank: int) -> tuple[Any, Tensor]:
        rest = torch.frombuffer(bytearray(payload[capacity:]), dtype=torch.uint8).to(self.device)
        self.overflows += 1
        self.count(rest.nbytes)
        return dist.isend(rest, dist.get_global_rank(self.group, rank), group=self.group), rest

    def _read(self, row: Any, capacity: int, rank: int) -> bytes:
        length = int(row[:8].view(np.int64)[0])
        first: bytes = row[_HEAD : _HEAD + min(length, capacity)].tobytes()
        if length <= capacity:
            return first
        rest = torch.empty(length - capacity, dtype=torch.uint8, device=self.device)
        dist.recv(rest, dist.get_global_rank(self.group, rank), group=self.group)
        return first + rest.cpu().numpy().tobytes()


def _room(length: int) -> int:
    return length + length // 8 + 64
