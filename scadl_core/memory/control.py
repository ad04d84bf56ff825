"""Keeps a budget: learns what tensors cost, plans, and squeezes where the plan hoped too much."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from scadl_core.compress import Absolute, Bound
from scadl_core.memory.blocks import Blocks
from scadl_core.memory.bounds import Bounds
from scadl_core.memory.boxes import Box, Coded, Payload
from scadl_core.memory.ledger import Ledger, Line
from scadl_core.memory.offload import Mover
from scadl_core.memory.planner import LOOSEST, Item, Plan, make_plan
from scadl_core.memory.sites import NOISIEST

Encoder = Callable[[Tensor, Bound, int | None], Payload]
Exchange = Callable[[Box, Payload], None]


class Control:
    """Of one training.

    Args:
        budget: Bytes.
        bounds: What is loosened.
        modules: What may be computed again, by name.
        ledger: What is kept.
        device: Where the network is.

    Attributes:
        plan: What is done in this step.
        blocks: The network's, at work.
    """

    def __init__(
        self, budget: int, bounds: Bounds, modules: dict[str, nn.Module], ledger: Ledger,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.budget, self.bounds, self.ledger = budget, bounds, ledger
        self.blocks, self.plan = Blocks(modules, ledger), Plan()
        self.mover = Mover(device, lambda nbytes: ledger.add(nbytes, ""))
        self._steps = 0
        self.leaders: dict[str, str] = {}
        self._items: dict[str, Item] = {}
        self._was_squeezed = False
        self._deepest, self._grows, self._limit = 1, False, budget
        self._unmet, self._has_warned = 0, False

    def keeps(self, place: str) -> bool:
        """Whether the plan is to keep what is saved at a place as it is; not before it is known
        how many forward passes come before their backward passes.
        """
        return self.leaders.get(place) in self.plan.keep and not self._grows

    def moves(self, place: str) -> bool:
        """Whether the plan is to move what is saved at a place to the host."""
        return self.leaders.get(place) in self.plan.offload

    def between_steps(self, replan: bool) -> None:
        """Learns from the last step, and plans the next ones where it is time or was too tight.

        Two steps go before any plan: in the first, kernels are compiled.
        """
        self.blocks.release()
        self.mover.begin()
        self._warn()
        self.bounds.pressure, self._steps = 1.0, self._steps + 1
        depth = 1 + len(self.ledger.waiting)
        self._grows = depth > self._deepest
        self._deepest = max(depth, self._deepest)
        # Forward passes still to come before any backward pass want as much.
        self._limit = min(self.budget, self.ledger.live + self.budget // self._deepest)
        if replan or self._was_squeezed or self._grows:
            self._learn()
            if self._steps > 2:
                self._replan()

    def _learn(self) -> None:
        groups: dict[str, list[tuple[str, Line]]] = {}
        for place, line in self.ledger.lines.items():
            if line.leader:
                self.leaders[place] = line.leader
                groups.setdefault(line.leader, []).append((place, line))
        for leader, group in groups.items():
            if leader not in self.plan.keep | self.plan.offload:
                self._items[leader] = self._item(leader, group)
        for name in self.blocks.modules:
            self.blocks.raw[name] = sum(it.raw for it in self._items.values() if it.block == name)

    def _replan(self) -> None:
        known = self.blocks.known.values()
        share = self.budget // self._deepest
        self.plan = make_plan(list(self._items.values()), known, share, self.bounds.fraction)
        self.blocks.recompute, self._was_squeezed = self.plan.recompute, False
        for place, site in self.bounds.sites.items():
            site.loosened = self.plan.loosened.get(self.leaders.get(place, ""), 1.0)

    def _item(self, leader: str, group: list[tuple[str, Line]]) -> Item:
        known = self.bounds.sites
        sites = [known[place] for place, _ in group if place in known]
        before = self._items.get(leader)
        seconds = sum(line.seconds for _, line in group)
        raw = max(line.raw for _, line in group)
        return Item(
            leader,
            raw=raw,
            stored=sum(line.stored for _, line in group),
            seconds=min(seconds, before.seconds if before else seconds),
            block=group[0][1].block,
            values=max((site.values for site in sites), default=0.0),
            loosened=max((site.loosened for site in sites), default=1.0),
            moving=self.mover.seconds(raw),
        )

    def make_room(
        self, nbytes: int, alive: Iterable[Box], exchange: Exchange, encoder: Encoder
    ) -> None:
        """While there would be more than this step's part of the budget, codes values again, two
        bits shorter, the largest first; what cannot get shorter stays.

        Args:
            nbytes: What shall be kept besides.
            alive: What is kept.
            exchange: Puts another payload into a box.
            encoder: Keeps values within a bound.
        """
        if self.ledger.live + nbytes <= self._limit:
            return
        self._was_squeezed = True
        self.bounds.pressure = min(4 * self.bounds.pressure, LOOSEST)
        left = [box for box in alive if isinstance(box.payload, Coded)]
        while left and self.ledger.live + nbytes > self._limit:
            box = max(left, key=_nbytes)
            values, before = box.payload.restore(), box.payload.nbytes
            scale = float(values.float().std(correction=0))
            bound = getattr(getattr(box.payload, "stream", None), "bound", None)
            eps = 4 * bound.eps if isinstance(bound, Absolute) else scale / 64
            if eps > NOISIEST * scale:  # nothing else fits; what is read elsewhere are the zeros
                is_on = values != 0
                values = torch.where(is_on, values.sum() / is_on.sum().clamp(1), 0.0).to(values)
            payload = encoder(values, Absolute(eps), zlib.crc32(f"{box.site} {eps}".encode()))
            if payload.nbytes < before:
                exchange(box, payload)
            if payload.nbytes > 0.97 * before or eps > NOISIEST * scale:
                left.remove(box)
        self._unmet = max(self._unmet, self.ledger.live + nbytes)

    def _warn(self) -> None:
        if self._unmet > self.budget and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"budget: {self.budget} bytes are too few: {self._unmet} were held with all "
                "bounds at their loosest; give at least so many, a smaller batch, or blocks that "
                "may be computed again",
                stacklevel=4,
            )


def _nbytes(box: Box) -> int:
    return box.payload.nbytes
