"""A block on its rank: a module, its variables, and what it hears from its neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scadl_core.admm.carry import Shapes, pack, unpack
from scadl_core.admm.exchange import Port
from scadl_core.admm.problem import Loss
from scadl_core.admm.variables import Variables
from scadl_core.admm.wire import Message
from scadl_core.errors import ScadlError


class Visit(NamedTuple):
    """A batch, as an iteration meets it.

    Attributes:
        batch: Its number; the same samples under the same number each time.
        inputs: For the first block.
        targets: For the last block, and for the heads of a hybrid.
    """

    batch: int
    inputs: Any
    targets: Any


class DivergedError(ScadlError):
    """A variable is no longer finite."""


class Block:
    """One block.

    Attributes:
        index: Its place in the chain, from 0.
        module: What is trained.
        head: Its auxiliary head, if the problem has one.
        loss: Of the problem; sums over samples.
        left: To the block before, or None.
        right: To the block after, or None.
        variables: What belongs to the samples of a batch.
        optimizer: Of the module and its head, where the rule has one.
        affine: The module as the closed-form rule sees it.
        penalty: rho.
        iteration: How many it has done.
        numbers: What the rule carries from one iteration to the next.
        facts: What the rule measured in the last iteration, sums that can be added over blocks.
        busy_seconds: Processor time in its iterations; the balancer's measure.
    """

    def __init__(
        self, index: int, last: int, made: tuple[nn.Module, nn.Module | None], loss: Loss,
        variables: Variables, device: torch.device,
    ) -> None:  # fmt: skip
        self.index, self.is_first, self.is_last = index, index == 0, index == last
        self.module = made[0].to(device)
        self.head = None if made[1] is None else made[1].to(device)
        self.loss, self.variables, self.device = loss, variables, device
        self.left: Port | None = None
        self.right: Port | None = None
        self.carried: Shapes | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.affine: Any = None
        self.penalty = 1.0
        self.iteration = 0
        self.numbers: dict[str, float] = {}
        self.facts: dict[str, float] = {}
        self.busy_seconds = 0.0

    def __call__(self, packed: Tensor) -> Tensor:
        """The packed output of a packed input."""
        return pack(self.module(unpack(packed, self.carried)))[0]

    def parameters(self) -> list[nn.Parameter]:
        """Those that are trained, the head's last."""
        modules = [it for it in (self.module, self.head) if it is not None]
        return [p for it in modules for p in it.parameters() if p.requires_grad]

    def send_left(self, batch: int, value: Tensor) -> None:
        """To the block before."""
        assert self.left is not None, "the first block has no block before it"
        self.left.send(batch, self.finite(value))

    def send_right(self, batch: int, value: Tensor) -> None:
        """To the block after."""
        assert self.right is not None, "the last block has no block after it"
        self.right.send(batch, self.finite(value))

    def take_right(self) -> Message:
        """What the block after sent within this iteration."""
        assert self.right is not None, "the last block has no block after it"
        return self.right.take()

    def finite(self, value: Tensor) -> Tensor:
        """The value itself.

        Raises:
            DivergedError: It has a NaN or an infinity.
        """
        if not bool(torch.isfinite(value.detach().sum())):
            error = DivergedError(
                f"ADMM: block {self.index} is no longer finite at iteration {self.iteration} with "
                f"penalty rho={self.penalty:g}; try a smaller learning rate, a larger rho, or "
                "more safety in the majoriser"
            )
            error.local = True
            raise error
        return value

    @contextmanager
    def working(self) -> Iterator[None]:
        """Counts processor time as the block's."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.busy_seconds += time.thread_time() - began

    def ports(self) -> list[Port]:
        """Those it has."""
        return [port for port in (self.left, self.right) if port is not None]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on, in plain values; ports are drained."""
        return {
            "module": self.module.state_dict(),
            "head": {} if self.head is None else self.head.state_dict(),
            "optimizer": {} if self.optimizer is None else self.optimizer.state_dict(),
            "variables": self.variables.state_dict(),
            "carried": self.carried,
            "penalty": self.penalty,
            "iteration": self.iteration,
            "numbers": dict(self.numbers),
            "ports": [_port_state(port) for port in self.ports()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state; optimizer and ports must be there."""
        self.module.load_state_dict(state["module"])
        if self.head is not None:
            self.head.load_state_dict(state["head"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self.variables.load_state_dict(state["variables"])
        self.carried = state["carried"]
        self.penalty, self.iteration = state["penalty"], state["iteration"]
        self.numbers = dict(state["numbers"])
        for port, kept in zip(self.ports(), state["ports"], strict=True):
            port.under_way = kept["under_way"]
            port.arrived.extend(Message(batch, value) for batch, value in kept["arrived"])
            port.wire.errors = dict(kept["errors"])


def _port_state(port: Port) -> dict[str, Any]:
    return {
        "under_way": port.under_way,
        "arrived": [(message.batch, message.value) for message in port.arrived],
        "errors": dict(port.wire.errors),
    }


Phase = Callable[[Block, Visit], None]
