"""The processes of one run, and what they say to one another."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from scadl_core.comm.rank import detect
from scadl_core.errors import LaunchError, ScadlError

T = TypeVar("T")

# Rank 0 may read a large data set while the others wait for what it found.
_TIMEOUT = timedelta(hours=6)


@dataclass
class Traffic:
    """Counts what this process hands to collectives.

    Attributes:
        sent_bytes: Payload in bytes, each message counted once, whatever route the library takes.
    """

    sent_bytes: int = 0

    def count(self, tensor: torch.Tensor) -> None:
        """Counts one message.

        Args:
            tensor: What is sent; any shape, dtype and device.
        """
        self.sent_bytes += tensor.numel() * tensor.element_size()


@dataclass(frozen=True)
class World:
    """Rank, size and collectives of a run.

    Laws: every rank calls the same methods in the same order; a method that raises, raises on every
    rank; with one process each collective is the identity.

    Attributes:
        rank: This process among all, from 0.
        size: How many processes there are.
        local_rank: This process among those of its host, from 0; also the number of its device.
        local_size: How many processes its host has.
        node_rank: This host among all hosts, from 0.
        num_nodes: How many hosts there are.
        launcher: Who started the processes: ``none``, ``mpi``, ``torchrun`` or ``slurm``.
        traffic: What this process has handed to collectives.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    num_nodes: int = 1
    launcher: str = "none"
    traffic: Traffic = field(default_factory=Traffic)

    @classmethod
    def start(cls) -> World:
        """Joins the processes that were launched together; the first call does, later ones return
        the same world.

        Returns:
            The world of this process.

        Raises:
            LaunchError: The launcher and this Python disagree, see :mod:`scadl_core.comm.rank`.
        """
        global _started
        if _started is None:
            _started = _join()
        return _started

    @staticmethod
    def leave() -> None:
        """Leaves the process group, if there is one.

        Every rank must be done with its collectives.
        """
        global _started
        if dist.is_initialized():
            dist.destroy_process_group()
        _started = None

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that prints and writes files."""
        return self.rank == 0

    def barrier(self) -> None:
        """Waits for every rank."""
        self.gather(None)

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks.

        Args:
            value: A small picklable object.
        """
        self._check_company()
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def gather_first(self, value: T) -> list[T]:
        """Every rank's value on rank 0, which the others need not hold; there, nothing.

        Args:
            value: A picklable object.
        """
        self._check_company()
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        dist.gather_object(value, values)
        return values or []

    def broadcast(self, value: T) -> T:
        """The value of rank 0.

        Args:
            value: A picklable object; only that of rank 0 counts.
        """
        self._check_company()
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank.

        Args:
            flag: This rank's flag.
        """
        self._check_company()
        if self.size == 1:
            return flag
        total = torch.tensor(int(flag), dtype=torch.int32)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        return bool(total)

    def together(self, function: Callable[[], T]) -> T:
        """Calls a function on every rank; where it fails on any, every rank raises the same error.

        Args:
            function: What every rank does. It must not use collectives itself.

        Returns:
            This rank's result.

        Raises:
            ScadlError: The error of the lowest rank that failed.
        """
        result, error = _attempt(function)
        errors = [e for e in self.gather(error) if e is not None]
        if errors:
            raise errors[0]
        return result  # type: ignore[return-value]  # no error, so there is a result

    def first(self, function: Callable[[], T]) -> T:
        """Calls a function on rank 0 alone and gives its result to every rank.

        Args:
            function: What rank 0 does, without collectives; its result must be picklable.

        Returns:
            The result of rank 0.

        Raises:
            ScadlError: What the function raised, on every rank.
            RuntimeError: It used a collective of this world, in which rank 0 would wait forever;
                also where there is one rank, so that tests on one find it.
        """
        outcome: tuple[T | None, ScadlError | None] = None, None
        if self.is_first:
            _alone.append(self)
            try:
                outcome = _attempt(function)
            finally:
                _alone.pop()
        result, error = self.broadcast(outcome)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # no error, so there is a result

    def global_sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sums over ranks such that a loss of the sums has the gradient of the whole batch.

        The gradient that flows back is this rank's own, times the number of ranks: the average over
        ranks which data-parallel training takes is then the exact gradient of the global loss. The
        same values as ``torch.distributed.nn.functional.all_reduce``, without its second message in
        the backward pass.

        Args:
            tensor: Numerators and denominators of this rank; any shape, floating dtype and device.

        Returns:
            The sum over ranks, same shape, dtype and device.
        """
        self._check_company()
        return tensor if self.size == 1 else _GlobalSum.apply(tensor, self)

    def _check_company(self) -> None:
        if any(world is self for world in _alone):
            raise RuntimeError("a collective was called by rank 0 alone, within World.first")


_alone: list[World] = []  # whose rank 0 is busy in World.first


class _GlobalSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, world: World) -> torch.Tensor:
        ctx.size = world.size
        world.traffic.count(tensor)
        total = tensor.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.size, None


def _attempt(function: Callable[[], T]) -> tuple[T | None, ScadlError | None]:
    try:
        return function(), None
    except ScadlError as error:
        return None, error


def _join() -> World:
    launch = detect(os.environ)
    if launch.size == 1:
        return World(launcher=launch.launcher)
    if launch.local_size == launch.size and sys.platform == "linux":
        # On one host nothing need leave it, and its name need not resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = launch.address, str(launch.port)
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            rank=launch.rank,
            world_size=launch.size,
            timeout=_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        raise LaunchError(
            f"{launch.size} processes could not meet at {launch.address}:{launch.port} ({error}); "
            "check that rank 0's host can be reached from the others and that the port is free"
        ) from error
    world = World(
        launch.rank, launch.size, launch.local_rank, launch.local_size, launcher=launch.launcher
    )
    hosts = world.gather(socket.gethostname())
    _share_cores(world, hosts)
    names = list(dict.fromkeys(hosts))
    return World(
        launch.rank,
        launch.size,
        launch.local_rank,
        launch.local_size,
        node_rank=names.index(socket.gethostname()),
        num_nodes=max(len(names), -(-launch.size // launch.local_size)),
        launcher=launch.launcher,
    )


def _share_cores(world: World, hosts: list[str]) -> None:
    """Caps the threads of each rank so that the ranks of a host share its cores; a user's
    OMP_NUM_THREADS stands.
    """
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
    claims = world.gather(cores)
    rivals = sum(
        host == hosts[world.rank] and claim == cores
        for host, claim in zip(hosts, claims, strict=True)
    )
    available = len(cores) or os.cpu_count() or 1
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, available // rivals))


_started: World | None = None
