"""Training in less memory: what autograd saves is kept compressed.

compressed = CompressedActivations(model)
for batch in loader:
    with compressed:
        loss = loss_of(model(batch))
    loss.backward()
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from scadl_core.compress import Bound
from scadl_core.errors import ActivationError
from scadl_core.memory import boxes
from scadl_core.memory.arguments import (
    check_bits,
    check_blocks,
    check_bound,
    check_count,
    check_encoder,
    check_fraction,
    check_module,
)  # fmt: skip
from scadl_core.memory.blocks import find_blocks
from scadl_core.memory.bounds import Bounds
from scadl_core.memory.boxes import Bits, Box, Coded, Form, Kept, Payload
from scadl_core.memory.budget import device_of, parse_budget
from scadl_core.memory.compiled import inlined_hooks, is_compiled
from scadl_core.memory.control import Control
from scadl_core.memory.held import Held
from scadl_core.memory.ledger import Ledger, is_gone, weak
from scadl_core.memory.lineage import Lineage, key_of
from scadl_core.memory.offload import Mover
from scadl_core.memory.operations import NOWHERE, Call, Need, in_checkpoint, need_of
from scadl_core.memory.places import places_of
from scadl_core.memory.watch import Block, Gradients

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
Encoder = Callable[[Tensor, Bound, int | None], Payload]


class CompressedActivations:
    """Keeps saved tensors compressed; wraps any module's forward pass, and if you like its backward
    pass, in a ``with`` block. The module is not changed.

    Each tensor is kept as what saved it needs: where a ReLU was on as bits, indices narrowed,
    inputs of convolutions and matrix products within a bound, statistics exactly. The bounds follow
    from the gradients: the error of a gradient stays below a fraction of it.

    With ``fraction=0`` everything is kept without loss and gradients are those of a training
    without hooks, to the bit. Parameters, buffers, their views and casts are left alone, and so are
    small tensors. Not seen are tensors that a custom function hangs on its context instead of
    saving them. In other threads than the one that entered nothing is compressed: enter in each.
    In a module that ``torch.compile`` made, values are quantised to ``bits`` by a codec that it can
    trace; the account sees nothing there, and neither fraction nor budget counts.

    Args:
        module: Whose parameters and buffers are held anyway.
        fraction: Of a gradient's norm that its error may reach, at least 0.
        bound: Instead: the same bound for all values.
        budget: Bytes that all saved tensors may take, as in
            :func:`scadl_core.memory.budget.parse_budget`: with what the steps before told, tensors
            are kept, compressed or computed again at the least cost of time, and if that is not
            enough all bounds are loosened, also within a step, rather than run out of memory.
        blocks: Modules that may be computed again, see
            :func:`scadl_core.memory.blocks.find_blocks`.
        encoder: Keeps values within a bound; by default ``scadl_core.compress``.
        bits: Of a value in a compiled module: 2, 4 or 8.
        every: Steps from one look at the gradients to the next; the first ``every`` all look.
        smallest: Elements; smaller tensors are kept as they are.
        seed: Of the dither.

    Attributes:
        ledger: Bytes of this step with and without.
        sites: What is known of each place where tensors are saved.
        step: How many times it was entered.
        control: What keeps a budget; None without one.

    Raises:
        ActivationError: An argument out of range.
    """

    def __init__(
        self,
        module: nn.Module,
        fraction: float = 0.01,
        *,
        bound: Bound | None = None,
        budget: str | float | None = None,
        blocks: Sequence[str] = (),
        encoder: Encoder = boxes.coded,
        bits: int = 8,
        every: int = 10,
        smallest: int = 1024,
        seed: int = 0,
    ) -> None:
        check_module(module)
        check_fraction(fraction)
        check_bound(bound)
        check_blocks(blocks)
        check_encoder(encoder)
        check_bits(bits)
        for name, value in (("every", every), ("smallest", smallest)):
            check_count(name, value)
        check_count("seed", seed, -(2**63))
        self.module, self.encoder = module, encoder
        self.every, self.smallest, self.seed = every, smallest, seed
        self.bits, self.is_compiled = bits, is_compiled(module)
        self.ledger = Ledger()
        self.bounds = Bounds(fraction, bound, seed)
        self.sites = self.bounds.sites
        self.step = 0
        self.is_watching = self.is_asked = False
        limit = parse_budget(budget, device_of(module))
        found = find_blocks(module, blocks)
        self.control = (
            Control(limit, self.bounds, found, self.ledger, device_of(module))
            if limit is not None else None
        )  # fmt: skip
        self._held = Held(module)
        self._table: dict[tuple[Any, ...], tuple[StorageWeakRef, dict[str, weakref.ref[Box]]]] = {}
        self._alive: weakref.WeakSet[Box] = weakref.WeakSet()
        self._gradients = Gradients()
        self._local = threading.local()

    def __enter__(self) -> CompressedActivations:
        with self.ledger.lock:
            if self.control is not None:
                self.control.between_steps(self.is_watching)
            if not self.ledger.waiting:
                self._gradients.forget()
            self.ledger.begin()
            self._held.refresh()
            self._table = {key: it for key, it in self._table.items() if not is_gone(it[0])}
            first, due = self.step < self.every, self.step % self.every == 0
            self.is_watching = self.is_asked or first or due
            self.step += 1
            self.bounds.step = self.step
        with ExitStack() as stack:
            try:
                stack.enter_context(self._hooks())
            except RuntimeError as error:
                raise ActivationError(_NO_TRANSFORMS) from error
            if self.control is not None:
                stack.enter_context(self.control.blocks.watched())
            self._stack.append(stack.pop_all())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._stack:
            raise ActivationError("left without having been entered: use it in a with statement")
        self._stack.pop().close()
        if isinstance(error, RuntimeError) and "saved tensor hooks" in str(error):
            raise ActivationError(_NO_TRANSFORMS) from error

    def _hooks(self) -> AbstractContextManager[Any]:
        if self.is_compiled:
            return inlined_hooks(self.bits, self.smallest, self.seed)
        return Block(self, self._gradients).opened()

    @property
    def _stack(self) -> list[ExitStack]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[ExitStack] = self._local.stack
        return stack

    def pack(self, tensor: Tensor, block: Block) -> Box:
        """Called by autograd for every tensor that it saves."""
        with torch.no_grad(), self.ledger.lock:
            need, box = self._packed(tensor, block)
            block.saved.append((need, box))
            return box

    def _packed(self, tensor: Tensor, block: Block) -> tuple[Need, Box]:
        call = block.call
        if tensor.layout is not torch.strided:
            return Need.EXACT, Box(tensor, Kept(tensor.detach(), 0), None)
        if self._held.made(tensor):
            if self._held.owns(tensor):
                return Need.SHAPE, Box(tensor, Kept(tensor.detach(), 0), None)
            return Need.SHAPE, self._kept(tensor, "parameters", Need.EXACT)
        need = need_of(call, tensor)
        if call is NOWHERE and need is not Need.INTEGER and in_checkpoint(sys._getframe(2)):
            need = Need.EXACT
        place = self._place(call, block)
        is_kept = self.control is not None and self.control.keeps(place)
        if is_kept or not self._is_coded(tensor, need):
            box = self._kept(tensor, place, need)
        else:
            with self.ledger.clock(place):
                if self.control is not None and self.control.moves(place):
                    box = self._moved(tensor, place, self.control.mover)
                else:
                    box = self._coded(tensor, need, place, call, block)
        self._tell(tensor, box, block.lineage)
        return need, box

    def unpack(self, box: Box) -> Tensor:
        """Called by autograd for every tensor that a backward pass reads, any number of times."""
        with torch.no_grad(), self.ledger.clock(box.site or ""):
            values = box.restore()
            if box.readers:
                self._tell_readers(box, values)
            return values

    def _tell_readers(self, box: Box, values: Tensor) -> None:
        """Signs that are wanted soon are taken while the values are at hand: no second decoding."""
        with self.ledger.lock:
            for reference, nonzero in box.readers:
                signs = reference()
                if signs is not None and signs.payload is nonzero:
                    self.exchange(signs, nonzero.bits(values))
            box.readers.clear()

    def _place(self, call: Call, block: Block) -> str:
        # Blocks that are computed again save nothing: counted over all, names would move on.
        where = self._held.name_of(call.weight) or self._running or ""
        name = f"{call.name or 'other'} {where}".strip()
        number = block.counts[name] = block.counts.get(name, 0) + 1
        return name if number == 1 else f"{name} #{number}"

    def _is_coded(self, tensor: Tensor, need: Need) -> bool:
        if tensor.numel() < self.smallest or tensor.is_neg() or tensor.is_conj():
            return False
        if boxes.own_bytes(tensor) > tensor.untyped_storage().nbytes():  # windows that overlap
            return False
        if need is Need.INTEGER:
            return not tensor.is_complex()
        return tensor.dtype in _FLOATS and need is not Need.EXACT

    def _kept(self, tensor: Tensor, place: str, need: Need) -> Box:
        """The tensor itself; of a small part of a large storage a copy."""
        entry = self.ledger.save(tensor, place, "exact", self._running)
        own = boxes.own_bytes(tensor)
        if not entry.held:
            self._make_room(min(own, entry.nbytes))
        box = Box(tensor, Kept(tensor.detach(), entry.nbytes), self._released)
        box.entry, box.site, box.number = entry, place, self.ledger.number
        if entry.nbytes > 2 * own and not entry.held:
            box.payload = Kept(boxes.compact(tensor), own)
            self.ledger.add(own, place)
        else:
            self.ledger.hold(entry, place)
        return self._remember(tensor, box, "exact")

    def _moved(self, tensor: Tensor, place: str, mover: Mover) -> Box:
        if (exact := self._known(tensor, "exact")) is not None:
            return exact
        return self._remember(
            tensor, self._boxed(tensor, mover.away(tensor), place, "host"), "exact"
        )

    def _released(self, box: Box) -> None:
        with self.ledger.lock:
            held = isinstance(box.payload, Kept) and box.payload.nbytes == box.entry.nbytes
            self.ledger.drop(box.entry, held, 0 if held else box.payload.nbytes, box.number)

    @property
    def _running(self) -> str | None:
        return self.control.blocks.running if self.control is not None else None

    def _remember(self, tensor: Tensor, box: Box, what: str) -> Box:
        _, known = self._table.setdefault(key_of(tensor), (weak(tensor), {}))
        known[what] = weakref.ref(box)
        return box

    def _known(self, tensor: Tensor, what: str) -> Box | None:
        found = self._table.get(key_of(tensor))
        if found is None or is_gone(found[0]) or what not in found[1]:
            return None
        return found[1][what]()

    def _make_room(self, nbytes: int) -> None:
        if self.control is not None:
            self.control.make_room(nbytes, self._alive, self.exchange, self.encoder)

    def _boxed(self, tensor: Tensor, payload: Payload, place: str, kind: str) -> Box:
        self._make_room(payload.nbytes)
        box = Box(tensor, payload, self._released)
        box.entry, box.site = self.ledger.save(tensor, place, kind, self._running), place
        box.number = self.ledger.number
        self.ledger.add(payload.nbytes, place)
        self._alive.add(box)
        return box

    def _coded(self, tensor: Tensor, need: Need, place: str, call: Call, block: Block) -> Box:
        if (exact := self._known(tensor, "exact")) is not None:
            return exact
        if need is Need.SHAPE:
            return self._boxed(tensor, Form.of(tensor), place, "shape")
        if need is Need.INTEGER:
            payload = _pack_integers(tensor, call)
            return self._remember(tensor, self._boxed(tensor, payload, place, "integer"), "exact")
        if need is Need.SIGN and boxes.is_dense(tensor):
            return self._signs(tensor, place, call)
        if need is Need.MASK and (mask := boxes.mask_of(tensor)) is not None:
            return self._remember(tensor, self._boxed(tensor, mask, place, "mask"), "exact")
        return self._values(tensor, need, place, call, block)

    def _signs(self, tensor: Tensor, place: str, call: Call) -> Box:
        if (known := self._known(tensor, call.name)) is not None:
            return known
        # As threshold_backward and leaky_relu_backward compare, NaN included.
        is_relu = call.name.startswith("relu")
        is_one = (tensor <= 0).logical_not_() if is_relu else tensor > 0
        box = self._boxed(tensor, boxes.bits_of(tensor, is_one), place, "sign")
        return self._remember(tensor, box, call.name)

    def _values(self, tensor: Tensor, need: Need, place: str, call: Call, block: Block) -> Box:
        site = self.bounds.site(place, need)
        if self.is_watching or site.scale is None:
            site.measure(tensor)
        if self.is_watching:
            block.pending.append((site, tensor))
        known = self._known(tensor, "values")
        if known is not None:
            other = self.sites[known.site]
            site.partners.add(other.name)
            other.partners.add(site.name)
        bound, dither = self.bounds.choose(site, call, tensor)
        if known is not None and boxes.serves(known.payload, bound):
            return known
        if known is not None and known.readers and dither is None:
            dither = self.bounds.dither(site)  # which tells zeros from what is not
        payload = self.encoder(tensor, bound, dither)
        if known is not None:
            if not getattr(payload, "keeps_zeros", False):
                self._tell_readers(known, tensor)
            self._make_room(payload.nbytes - known.payload.nbytes)
            self.exchange(known, payload)
            return known
        if payload.nbytes >= boxes.own_bytes(tensor):  # as noise without a bound
            return self._kept(tensor, place, need)
        return self._remember(
            tensor, self._boxed(tensor, payload, place, site.need.value), "values"
        )

    def _tell(self, tensor: Tensor, box: Box, lineage: Lineage) -> None:
        """Signs that can be read from a tensor's values need not be kept themselves."""
        if isinstance(box.payload, Coded) and box.payload.keeps_zeros:
            for signs, nonzero in lineage.readers(tensor, box):
                if isinstance(signs.payload, Bits):
                    self.exchange(signs, nonzero)
                    box.readers.append((weakref.ref(signs), nonzero))

    def exchange(self, box: Box, payload: Payload) -> None:
        """Puts another payload into a box."""
        self.ledger.add(payload.nbytes - box.payload.nbytes, box.site)
        box.payload = payload

    def state_dict(self) -> dict[str, Any]:
        """Statistics and the step, in plain values."""
        return {"step": self.step, "sites": self.bounds.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from stored statistics; an ActivationError where it is not they."""
        if not {"step", "sites"} <= set(state):
            raise ActivationError(f"state: expected step and sites, got {sorted(state)}")
        self.step = state["step"]
        self.bounds.load(state["sites"])


_NO_TRANSFORMS = (
    "torch.func (grad, vjp, jacrev, hessian) does not work with saved tensors that are compressed: "
    "leave the block of CompressedActivations around it"
)


def _pack_integers(tensor: Tensor, call: Call) -> Payload:
    is_plain = tensor.dtype is torch.int64 and tensor.is_contiguous()
    if is_plain and "max_pool2d" in call.name:
        places = places_of(tensor, call.argument(0, "input").shape[-1])
        if places is not None:
            return places
    return boxes.integers_of(tensor)
