"""Watches a network at work: which operation saves a tensor, and which gradients come back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scadl_core.memory.operations import NOWHERE, OPERATIONS, UNKNOWN, Call, name_of
from scadl_core.memory.sensitivity import energy_of, squares
from scadl_core.memory.sites import Site


class Packer(Protocol):
    """What keeps saved tensors."""

    def pack(self, tensor: Tensor, block: Block) -> Any:
        """Keeps one."""

    def unpack(self, box: Any) -> Tensor:
        """Gives it back."""


class Gradients:
    """Learns from the gradients of a backward pass how errors of saved tensors show in them."""

    def __init__(self) -> None:
        self._meetings: dict[int, Meeting] = {}

    def follow(self, call: Call, output: Any, saved: list[tuple[Site, Tensor]]) -> None:
        """Asks for the gradient of a call's output and for those that the errors of what it saved
        go into.

        Args:
            call: The operation.
            output: What it returned.
            saved: The tensors, still exact.
        """
        for site, tensor in saved:
            energy, partner = energy_of(call, tensor, output, site.density), call.partner(tensor)
            if energy is None or partner is None:
                continue
            if partner.requires_grad and output.requires_grad:
                meeting = self._meetings.get(id(partner)) or Meeting(self._meetings, partner)
                output.register_hook(Report(meeting, site, energy))


class Meeting:
    """Where the errors' energy and the gradient that they go into come together."""

    def __init__(self, meetings: dict[int, Meeting], partner: Tensor) -> None:
        self.meetings, self.key = meetings, id(partner)
        self.units: list[tuple[Site, float]] = []
        self.handle = partner.register_hook(self)  # type: ignore[no-untyped-call]
        meetings[self.key] = self

    def __call__(self, grad: Tensor) -> None:
        """Called by autograd with the gradient, after those of all outputs that it follows from."""
        self.handle.remove()
        self.meetings.pop(self.key, None)
        norm = math.sqrt(squares(grad.detach()))
        total = sum(unit for _, unit in self.units)
        for site, unit in self.units:
            site.learn(unit, norm, total)


class Report:
    """Tells a meeting the energy of one site."""

    def __init__(self, meeting: Meeting, site: Site, energy: Callable[[Tensor], float]) -> None:
        self.meeting, self.site, self.energy = meeting, site, energy

    def __call__(self, grad: Tensor) -> None:
        """Called by autograd with the gradient of an output."""
        self.meeting.units.append((self.site, self.energy(grad.detach())))


class Block(TorchFunctionMode):
    """One ``with`` block of one thread: which operation is running, and the hooks.

    Args:
        packer: Keeps what is saved.
        gradients: Learns from the backward pass.

    Attributes:
        call: The operation that is running.
        counts: How often each place was met.
        pending: Tensors saved in the running call whose errors shall be followed.
    """

    def __init__(self, packer: Packer, gradients: Gradients) -> None:
        super().__init__()
        self.packer, self.gradients, self.call = packer, gradients, NOWHERE
        self.counts: dict[str, int] = {}
        self.pending: list[tuple[Site, Tensor]] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Watches; raises RuntimeError inside of a transform of torch.func."""
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: self.packer.pack(tensor, self), self.packer.unpack
        )
        with hooks, self:
            yield

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = name_of(function), kwargs or {}
        if name == "__get__":  # of an attribute, such as a shape
            return function(*args, **kwargs)
        outer, self.call = self.call, Call(name, OPERATIONS.get(name, UNKNOWN), args, kwargs)
        try:
            output = function(*args, **kwargs)
            if self.pending:
                self.gradients.follow(self.call, output, self.pending)
            return output
        finally:
            self.call = outer
            self.pending.clear()
