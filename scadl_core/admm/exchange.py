"""First-in-first-out lanes between neighbouring blocks: within a rank, or over MPI.

Across ranks a lane has persistent receives, posted before anything is sent, and persistent sends
where the size is known (uncompressed); compressed messages have their own size each time. What is
on a GPU is staged through the host.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scadl_core.admm.trace import Trace
from scadl_core.admm.wire import Message, Wire
from scadl_core.compress import decode, from_bytes

_HEAD = 3  # int64: batch, samples, bytes of the stream (-1: uncompressed)
_HEAD_BYTES = 8 * _HEAD


@dataclass
class Meter:
    """What a rank waited and sent.

    Attributes:
        wait_seconds: Time in which it did nothing but wait for a neighbour.
        sent_bytes: Bytes that left the rank, headers included.
        said_bytes: Bytes of all messages between blocks, whether or not they left the rank.
        plain_bytes: What these would have been uncompressed.
        trace: What the rank did when.
    """

    wait_seconds: float = 0.0
    sent_bytes: int = 0
    said_bytes: int = 0
    plain_bytes: int = 0
    trace: Trace = field(default_factory=Trace)

    def waited(self, began: float) -> None:
        """Counts what ends now."""
        self.wait_seconds += self.trace.add("waits", began)


class Outbox(Protocol):
    """Where messages go in; they come out in the same order."""

    def put(self, message: Message) -> None:
        """Sends; returns before it is received."""

    def close(self) -> None:
        """Gives requests back; what was put must have been taken."""


class Inbox(Protocol):
    """Where they come out."""

    def get(self) -> Message:
        """Receives; waits."""

    def close(self) -> None:
        """Gives requests back."""


class Local:
    """Between two blocks of a rank."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()

    def put(self, message: Message) -> None:
        """Appends."""
        self.messages.append(message)

    def get(self) -> Message:
        """Takes the oldest."""
        return self.messages.popleft()

    def close(self) -> None:
        """Nothing to give back."""


class Outgoing:
    """The sending end over MPI.

    Args:
        comm: An mpi4py communicator.
        rank: Of the receiver.
        tag: Of the lane.
        largest: The value with the most samples.
        depth: Messages that may be under way.
        meter: Counts.
    """

    def __init__(
        self, comm: Any, rank: int, tag: int, largest: Tensor, depth: int, meter: Meter
    ) -> None:
        self.comm, self.rank, self.tag, self.meter = comm, rank, tag, meter
        self.buffers = _buffers(largest, depth)
        self.persistent = [comm.Send_init(buffer, rank, tag) for buffer in self.buffers]
        self.active: list[Any] = [None] * depth
        self.turn = 0

    def put(self, message: Message) -> None:
        """Copies into the next buffer, once its last message has gone, and starts sending."""
        turn, buffer = self.turn, self.buffers[self.turn]
        self.turn = (turn + 1) % len(self.buffers)
        self._wait(turn)
        stream, value = message.stream, message.value
        if stream is not None and len(stream) >= value.nbytes:
            stream = None
        payload = (
            np.frombuffer(stream, np.uint8)
            if stream is not None
            else value.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8)
        )
        end = _HEAD_BYTES + payload.size
        sizes = (message.batch, len(value), -1 if stream is None else payload.size)
        buffer[:_HEAD_BYTES].view(np.int64)[:] = sizes
        buffer[_HEAD_BYTES:end] = payload
        if end == buffer.size:
            self.persistent[turn].Start()
            self.active[turn] = self.persistent[turn]
        else:
            self.active[turn] = self.comm.Isend(buffer[:end], self.rank, self.tag)
        self.meter.sent_bytes += end

    def close(self) -> None:
        """Waits until all is sent."""
        for turn in range(len(self.buffers)):
            self._wait(turn)
            self.persistent[turn].Free()

    def _wait(self, turn: int) -> None:
        if self.active[turn] is not None:
            began = time.perf_counter()
            self.active[turn].Wait()
            self.meter.waited(began)
            self.active[turn] = None


class Incoming:
    """The receiving end over MPI; arguments as of :class:`Outgoing`, and where values shall be."""

    def __init__(
        self, comm: Any, rank: int, tag: int, largest: Tensor, depth: int, meter: Meter,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.like, self.meter, self.device = largest, meter, device
        self.buffers = _buffers(largest, depth)
        self.requests = [comm.Recv_init(buffer, rank, tag) for buffer in self.buffers]
        for request in self.requests:
            request.Start()
        self.turn = 0

    def get(self) -> Message:
        """Waits for the next message, copies it out, and posts its buffer again."""
        turn, buffer = self.turn, self.buffers[self.turn]
        self.turn = (turn + 1) % len(self.buffers)
        began = time.perf_counter()
        self.requests[turn].Wait()
        self.meter.waited(began)
        batch, samples, size = buffer[:_HEAD_BYTES].view(np.int64).tolist()
        shape = (samples, *self.like.shape[1:])
        if size >= 0:
            stream = buffer[_HEAD_BYTES : _HEAD_BYTES + size].tobytes()
            value: Tensor = decode(from_bytes(stream))
            value = torch.as_tensor(value).reshape(shape)
        else:
            value = torch.empty(shape, dtype=self.like.dtype)
            flat = value.numpy().reshape(-1).view(np.uint8)
            flat[:] = buffer[_HEAD_BYTES : _HEAD_BYTES + flat.size]
        self.requests[turn].Start()
        return Message(batch, value.to(self.device))

    def close(self) -> None:
        """Takes the posted receives back."""
        for request in self.requests:
            request.Cancel()
            request.Wait()
            request.Free()


def _buffers(largest: Tensor, depth: int) -> list[Any]:
    return [np.empty(_HEAD_BYTES + largest.nbytes, np.uint8) for _ in range(depth)]


@dataclass
class Port:
    """A block's side of a boundary.

    Attributes:
        inbox: From the neighbour.
        outbox: To the neighbour.
        wire: Compresses what goes out.
        meter: Counts.
        under_way: Messages that the neighbour has sent, by what is known of its rule, and that
            were not taken.
        arrived: Of these, what was received ahead of its use.
    """

    inbox: Inbox
    outbox: Outbox
    wire: Wire
    meter: Meter
    under_way: int = 0
    arrived: deque[Message] = field(default_factory=deque)

    def send(self, batch: int, value: Tensor) -> None:
        """Says something to the neighbour."""
        message = self.wire.message(batch, value.detach())
        self.meter.said_bytes += message.nbytes
        self.meter.plain_bytes += value.nbytes
        self.outbox.put(message)

    def take(self) -> Message:
        """The neighbour's next message."""
        return self.arrived.popleft() if self.arrived else self.inbox.get()

    def take_older_than(self, count: int) -> list[Message]:
        """All messages but the newest ``count``."""
        taken = []
        while self.under_way > count:
            taken.append(self.take())
            self.under_way -= 1
        return taken

    def drain(self) -> None:
        """Receives all that is under way, so that it can be saved or moved with the block."""
        while len(self.arrived) < self.under_way:
            self.arrived.append(self.inbox.get())
