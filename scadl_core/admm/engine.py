"""The engine: the blocks of a rank, what connects them, and an iteration of all."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scadl_core.admm.balance import partition, slowest
from scadl_core.admm.block import Block, Visit
from scadl_core.admm.carry import Shapes, pack, unpack
from scadl_core.admm.exchange import Inbox, Incoming, Local, Meter, Outbox, Outgoing, Port
from scadl_core.admm.problem import Problem
from scadl_core.admm.rules.rule import Rule
from scadl_core.admm.variables import Variables
from scadl_core.admm.wire import Wire
from scadl_core.compress import Bound
from scadl_core.errors import ConfigError, RunError

_WAVE, _MOVE = 30_000, 30_001  # tags above those of the lanes; MPI has at least 32767


@dataclass(frozen=True)
class Setting:
    """How an engine works; what is learned does not depend on it but for the two bounds.

    Attributes:
        schedule: "overlap" waits for a message where it is used; "synchronous" lets all ranks wait
            for one another after every phase.
        message_bound: Compresses what neighbours send; None sends every bit.
        feedback: Whether what a message lost is added to the next.
        memory_bound: Compresses the variables that are kept of each batch.
        device: Where blocks are.
        seed: Of the blocks that functions make, and of what is random inside of blocks.
    """

    schedule: str = "overlap"
    message_bound: Bound | None = None
    feedback: bool = True
    memory_bound: Bound | None = None
    device: str | torch.device = "cpu"
    seed: int = 0


class Engine:
    """Runs a rule on a problem, over the ranks of a communicator.

    Laws: every rank calls the same methods in the same order. Iterates are the same, bit by bit,
    for any number of ranks of one kind of machine, any placement and either schedule.

    Args:
        problem: What is trained.
        rule: How.
        comm: An mpi4py communicator, or None for one process.
        setting: See there.
        placement: The blocks of each rank; None: equally many.

    Raises:
        ConfigError: Fewer blocks than ranks, or a block that the rule cannot train.
    """

    def __init__(
        self, problem: Problem, rule: Rule, comm: Any = None, setting: Setting = Setting(),
        placement: Sequence[range] | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.rule, self.comm, self.setting = problem, rule, comm, setting
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size
        self.device = torch.device(setting.device)
        self.placement = list(placement or partition([1.0] * len(problem), self.size))
        self.meter = Meter()
        self.iteration = 0
        self.seconds = 0.0
        self.shapes: dict[
            int, Tensor
        ] = {}  # a meta tensor like what crosses the cut before a block
        self.blocks = {index: self._make(index) for index in self.placement[self.rank]}

    def owner(self, index: int) -> int:
        """The rank of a block."""
        return next(rank for rank, part in enumerate(self.placement) if index in part)

    def iterate(self, visit: Visit) -> None:
        """One iteration on a batch, whose first visit begins with a forward pass.

        Args:
            visit: Its inputs matter on the rank of the first block, its targets on that of the
                last (and of those with heads).

        Raises:
            DivergedError: A variable is no longer finite.
        """
        visit = Visit(visit.batch, _to(visit.inputs, self.device), _to(visit.targets, self.device))
        began = time.perf_counter()
        if visit.batch not in next(iter(self.blocks.values())).variables:
            self._begin(visit)
        for phase in self.rule.phases:
            for block in self.blocks.values():
                torch.manual_seed(self._seed(block.index))
                started = time.perf_counter()
                with block.working():
                    phase(block, visit)
                name = getattr(phase, "__name__", "phase")
                self.meter.trace.add(f"block {block.index}: {name}", started)
            if self.comm is not None and self.setting.schedule == "synchronous":
                self.comm.Barrier()
        for block in self.blocks.values():
            block.iteration += 1
            if block.left is not None and self.rule.hears_left:
                block.left.under_way += 1
            if block.right is not None and self.rule.hears_right:
                block.right.under_way += 1
        self.iteration += 1
        self.seconds += time.perf_counter() - began

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Any:
        """The network's output, on the rank of the last block; None on the others."""
        for block in self.blocks.values():
            block.module.eval()
        output = None
        for block, packed in self._wave(_to(inputs, self.device)):
            output = block.module(unpack(packed, block.carried))
            self._pass_on(block, *pack(output))
        for block in self.blocks.values():
            block.module.train()
        return output if len(self.problem) - 1 in self.blocks else None

    def facts(self) -> dict[str, float]:
        """What the rule measured in the last iteration, summed over blocks, on every rank."""
        own = [block.facts for block in self.blocks.values()]
        total: dict[str, float] = {}
        for facts in (it for rank in self._gather(own) for it in rank):
            for name, value in facts.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def set_penalty(self, penalty: float) -> None:
        """Another rho, for all blocks."""
        for block in self.blocks.values():
            self.rule.rescale(block, penalty)

    def costs(self) -> list[float]:
        """Processor seconds of each block since the last call, on every rank."""
        own = {index: block.busy_seconds for index, block in self.blocks.items()}
        for block in self.blocks.values():
            block.busy_seconds = 0.0
        every = {index: it for rank in self._gather(own) for index, it in rank.items()}
        return [every[index] for index in range(len(self.problem))]

    def balance(
        self, costs: Sequence[float], threshold: float = 0.1, **memory: Sequence[float]
    ) -> bool:
        """Moves blocks to other ranks, if the slowest rank is then faster by more than a threshold.

        Args:
            costs: Of each block, as given by :meth:`costs`.
            threshold: As a share of the best partition's slowest rank.
            memory: ``sizes`` and ``limits`` of :func:`scadl_core.admm.balance.partition`.

        Returns:
            Whether blocks were moved. What is learned does not change.
        """
        best = partition(costs, self.size, **memory)
        now = slowest(costs, self.placement)
        if best == self.placement or now <= (1 + threshold) * slowest(costs, best):
            return False
        states = {index: self._state(block) for index, block in self.blocks.items()}
        self._close()
        before = [self.owner(index) for index in range(len(self.problem))]
        self.placement = best
        self.blocks = {}
        self._exchange_states(before, states)
        return True

    def states(self) -> list[dict[str, Any]]:
        """The state of every block, on every rank; plain values and tensors on the CPU."""
        own = {index: self._state(block) for index, block in self.blocks.items()}
        packed = self._gather({index: _dump(state) for index, state in own.items()})
        every = {index: it for rank in packed for index, it in rank.items()}
        return [_load(every[index]) for index in range(len(self.problem))]

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on from the states of all blocks, written on any number of ranks.

        Raises:
            RunError: They are of another number of blocks.
        """
        if len(states) != len(self.problem):
            raise RunError(
                f"ADMM: the checkpoint has {len(states)} blocks, the problem {len(self.problem)}; "
                "resume with as many blocks as the run was begun with"
            )
        self._close()
        self._restore({index: states[index] for index in range(len(states))})

    def weights(self) -> list[dict[str, Tensor]]:
        """The state dict of every block's module, on every rank, on the CPU."""
        own = {index: _dump(block.module.state_dict()) for index, block in self.blocks.items()}
        every = {index: it for rank in self._gather(own) for index, it in rank.items()}
        return [_load(every[index]) for index in range(len(self.problem))]

    def publish(self) -> None:
        """Loads what other ranks have learned into the modules that the problem was given."""
        if self.size > 1:
            for module, weights in zip(self.problem.blocks, self.weights(), strict=True):
                if isinstance(module, nn.Module):
                    module.load_state_dict(weights)

    def close(self) -> None:
        """Gives the lanes back; every rank has to."""
        self._close()

    def _make(self, index: int) -> Block:
        made = self.problem.make(index, self.setting.seed)
        variables = Variables(self.setting.memory_bound)
        block = Block(index, len(self.problem) - 1, made, self.problem.loss, variables, self.device)
        block.penalty = self.rule.penalty
        self.rule.check(block)
        return block

    def _seed(self, index: int) -> int:
        return (self.setting.seed * 1_000_003 + self.iteration) * 1009 + index

    @torch.no_grad()
    def _begin(self, visit: Visit) -> None:
        """A forward pass, which gives every block its first input and output of the batch."""
        first = not self.shapes
        for block, packed in self._wave(visit.inputs):
            output, shapes = pack(block.module(unpack(packed, block.carried)))
            self._pass_on(block, output, shapes)
            self.rule.begin(block, visit, packed, output)
            if first:
                self.shapes[block.index] = torch.empty_like(_leading(packed), device="meta")
                self.shapes[block.index + 1] = torch.empty_like(output, device="meta")
            elif len(output) > len(self.shapes[block.index]):
                raise ConfigError(
                    f"ADMM: batch {visit.batch} has {len(output)} samples, the first had "
                    f"{len(self.shapes[block.index])}; visit the largest batch first"
                )
        if first:
            self._connect()

    def _wave(self, inputs: Tensor) -> Any:
        """Own blocks in order, each with its packed input as soon as that is there."""
        self._passed: dict[int, tuple[Tensor, Shapes | None]] = {}
        for index, block in self.blocks.items():
            if block.is_first:
                packed = inputs
            elif index - 1 in self.blocks:
                packed, block.carried = self._passed.pop(index)
            else:
                began = time.perf_counter()
                packed, block.carried = self.comm.recv(source=self.rank - 1, tag=_WAVE)
                self.meter.waited(began)
                packed = packed.to(self.device)
            yield block, packed

    def _pass_on(self, block: Block, output: Tensor, shapes: Shapes | None) -> None:
        if block.is_last:
            return
        if block.index + 1 in self.blocks:
            self._passed[block.index + 1] = output, shapes
        else:
            self.comm.send((output.cpu(), shapes), dest=self.rank + 1, tag=_WAVE)
            self.meter.sent_bytes += output.nbytes

    def _connect(self) -> None:
        """Opens the lanes of all boundaries of own blocks."""
        inner: dict[int, tuple[Local, Local]] = {}
        for index, block in self.blocks.items():
            inbox: Inbox
            outbox: Outbox
            if not block.is_first:
                inbox, outbox = inner.get(index) or self._lanes(index, self.rank - 1, False)
                block.left = Port(inbox, outbox, self._wire(), self.meter)
            if not block.is_last:
                if index + 1 in self.blocks:
                    inbox, outbox = Local(), Local()
                    inner[index + 1] = outbox, inbox
                else:
                    inbox, outbox = self._lanes(index + 1, self.rank + 1, True)
                block.right = Port(inbox, outbox, self._wire(), self.meter)

    def _lanes(self, boundary: int, rank: int, to_right: bool) -> tuple[Incoming, Outgoing]:
        """The lanes of a boundary with another rank, inbox first."""
        depth, like = 2 + self.rule.staleness, self.shapes[boundary]
        ahead, back = 2 * boundary, 2 * boundary + 1
        inward, outward = (back, ahead) if to_right else (ahead, back)
        return (
            Incoming(self.comm, rank, inward, like, depth, self.meter, self.device),
            Outgoing(self.comm, rank, outward, like, depth, self.meter),
        )

    def _wire(self) -> Wire:
        return Wire(self.setting.message_bound, self.setting.feedback)

    def _state(self, block: Block) -> dict[str, Any]:
        for port in block.ports():
            port.drain()
        ends = [self.shapes[at] for at in (block.index, block.index + 1) if at in self.shapes]
        likes = [(list(it.shape), str(it.dtype).removeprefix("torch.")) for it in ends]
        return {**block.state_dict(), "likes": likes}

    def _close(self) -> None:
        """Messages that are under way are lost, unless the state was taken before."""
        if self.comm is not None:
            self.comm.Barrier()
        ports = [port for block in self.blocks.values() for port in block.ports()]
        for port in ports:
            port.outbox.close()
        if self.comm is not None:
            self.comm.Barrier()
        for port in ports:
            port.inbox.close()
            port.inbox = port.outbox = Local()

    def _exchange_states(self, before: list[int], states: dict[int, dict[str, Any]]) -> None:
        sends = [
            self.comm.isend(_dump(state), dest=self.owner(index), tag=_MOVE)
            for index, state in states.items()
            if self.owner(index) != self.rank
        ]
        here = {
            index: states[index]
            if index in states
            else _load(self.comm.recv(source=before[index], tag=_MOVE))
            for index in self.placement[self.rank]
        }
        for send in sends:
            send.wait()
        self._restore(here)

    def _restore(self, states: dict[int, dict[str, Any]]) -> None:
        self.blocks = {index: self._make(index) for index in self.placement[self.rank]}
        self.shapes = {}
        for index in self.blocks:
            for offset, (shape, dtype) in enumerate(states[index]["likes"]):
                kind = getattr(torch, dtype)
                self.shapes[index + offset] = torch.empty(shape, dtype=kind, device="meta")
        if self.shapes:
            self._connect()
        for index, block in self.blocks.items():
            block.load_state_dict(states[index])
            self.iteration = block.iteration

    def _gather(self, value: Any) -> list[Any]:
        return [value] if self.comm is None else list(self.comm.allgather(value))


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, tuple):
        return tuple(_to(part, device) for part in value)
    return value.to(device) if isinstance(value, Tensor) else value


def _leading(inputs: Any) -> Tensor:
    """Of what the first block is given, which crosses no cut, the first tensor."""
    leading: Tensor = inputs[0] if isinstance(inputs, tuple) else inputs
    return leading


def _dump(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _load(packed: bytes) -> Any:
    return torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)
