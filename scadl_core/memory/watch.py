"""Watches a network at work: which operation saves a tensor, and which gradients come back."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scadl_core.memory.boxes import Box
from scadl_core.memory.lineage import Lineage
from scadl_core.memory.operations import NOWHERE, OPERATIONS, UNKNOWN, Call, Need, name_of
from scadl_core.memory.sensitivity import Passed, energy_of, passing, squares
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
        self._passing: dict[str, Passing] = {}

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
            if not (partner.requires_grad and output.requires_grad):
                continue
            meeting = self._meetings.get(id(partner))
            if meeting is None or meeting.partner() is not partner:
                meeting = Meeting(self._meetings, partner)
            output.register_hook(Report(meeting, site, energy))
            if site.need is Need.NORM and (passed := passing(call, tensor)) is not None:
                if site.name in self._passing:
                    self._passing[site.name].remove()
                source = call.argument(0, "input")
                if source.requires_grad:
                    self._passing[site.name] = Passing(site, passed, partner, source)

    def forget(self) -> None:
        """Graphs are gone whose backward pass never came, or never reached a parameter."""
        for meeting in self._meetings.values():
            meeting.handle.remove()
        self._meetings.clear()


class Meeting:
    """Where the errors' energy and the gradient that they go into come together."""

    def __init__(self, meetings: dict[int, Meeting], partner: Tensor) -> None:
        self.meetings, self.key, self.partner = meetings, id(partner), weakref.ref(partner)
        self.units: list[tuple[Site, float]] = []
        self.handle = partner.register_hook(self)  # type: ignore[no-untyped-call]
        meetings[self.key] = self

    def __call__(self, grad: Tensor) -> None:
        """Called by autograd with the gradient, after those of all outputs that it follows from."""
        self.handle.remove()
        if self.meetings.get(self.key) is self:
            self.meetings.pop(self.key)
        norm = math.sqrt(squares(grad.detach()))
        total = sum(unit for _, unit in self.units)
        for site, unit in self.units:
            site.learn(unit, norm, total)


class Passing:
    """Brings together the gradients of a normalisation's scale and of its input.

    Args:
        site: Which learns.
        relative: See :func:`scadl_core.memory.sensitivity.passing`.
        scale: The parameter.
        x: The input.
    """

    def __init__(self, site: Site, relative: Passed, scale: Tensor, x: Tensor) -> None:
        self.site, self.relative = site, relative
        self.scale: Tensor | None = None
        self.norm: float | None = None
        self.handles = [scale.register_hook(self._take_scale), x.register_hook(self._take_input)]  # type: ignore[no-untyped-call]

    def _take_scale(self, grad: Tensor) -> None:
        self.scale = grad.detach()
        self._learn()

    def _take_input(self, grad: Tensor) -> None:
        self.norm = math.sqrt(squares(grad.detach()))
        self._learn()

    def _learn(self) -> None:
        """Either may come first."""
        if self.scale is not None and self.norm:
            self.site.learn_passed(self.relative(self.scale, self.norm))
            self.remove()

    def remove(self) -> None:
        """Asks for no more."""
        for handle in self.handles:
            handle.remove()


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
        saved: All that the running call has saved, and what is needed of it.
        lineage: Where the tensors of this forward pass come from.
    """

    def __init__(self, packer: Packer, gradients: Gradients) -> None:
        super().__init__()
        self.packer, self.gradients, self.call = packer, gradients, NOWHERE
        self.counts: dict[str, int] = {}
        self.pending: list[tuple[Site, Tensor]] = []
        self.saved: list[tuple[Need, Box]] = []
        self.lineage = Lineage()

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
            self.lineage.passed(self.call, output, self.saved)
            return output
        finally:
            self.call = outer
            self.pending.clear()
            self.saved.clear()
