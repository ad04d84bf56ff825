"""Where the output of a ReLU can be read, when it is kept as a part of something else.

A ReLU needs to know where its output is not zero. A convolution's input tells that, and often it
is the same tensor, or holds it: padded, joined to another, or enlarged.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from scadl_core.memory.boxes import Box, Form, Nonzero
from scadl_core.memory.ledger import weak
from scadl_core.memory.operations import Call, Need

Key = tuple[Any, ...]
Index = tuple[slice, ...]
_JOINS = ("cat", "concat", "concatenate")


@dataclass(frozen=True)
class Part:
    """A ReLU's output in a larger tensor.

    Attributes:
        signs: Where it is kept what the ReLU needs.
        form: Of the output.
        path: Indices that lead from the larger tensor to it, applied one after another.
    """

    signs: weakref.ref[Box]
    form: Form
    path: tuple[Index, ...] = ()

    def inside(self, index: Index) -> Part:
        """The same in a tensor in which the present one is at an index."""
        return Part(self.signs, self.form, (index, *self.path))


@dataclass
class Lineage:
    """Of the tensors in one forward pass: which outputs of ReLUs are in them."""

    _parts: dict[Key, tuple[StorageWeakRef, list[Part]]] = field(default_factory=dict)

    def passed(self, call: Call, output: Any, saved: Sequence[tuple[Need, Box]]) -> None:
        """Takes note of a call that has returned.

        Args:
            call: The operation.
            output: What it returned.
            saved: What it saved.
        """
        if not isinstance(output, Tensor) or output.layout is not torch.strided:
            return
        if call.name in ("relu", "relu_"):
            signs = [box for need, box in saved if need is Need.SIGN]
            self._put(output, [Part(weakref.ref(box), Form.of(output)) for box in signs[:1]])
        elif call.name in _JOINS:
            self._put(output, list(self._joined(call, output)))
        elif call.name == "interpolate":
            self._put(output, list(self._enlarged(call, output)))

    def readers(self, tensor: Tensor, box: Box) -> Iterator[tuple[Box, Nonzero]]:
        """Boxes that need not hold anything now that a tensor's values are kept in another, and
        what to put there.
        """
        for part in self._in(key_of(tensor)):
            signs = part.signs()
            if signs is not None and signs is not box:
                yield signs, Nonzero(box, part.form, part.path)

    def _put(self, tensor: Tensor, parts: list[Part]) -> None:
        if parts:
            self._parts[key_of(tensor)] = weak(tensor), parts

    def _in(self, key: Key) -> list[Part]:
        return self._parts[key][1] if key in self._parts else []

    def _joined(self, call: Call, total: Tensor) -> Iterator[Part]:
        pieces, axis = call.argument(0, "tensors"), call.argument(1, "dim")
        axis = call.kwargs.get("axis", 0) if axis is None else axis  # as NumPy has it
        if all(isinstance(it, Tensor) and it.ndim == total.ndim for it in pieces):
            axis %= total.ndim
            for begin, end, key in _runs(pieces, axis):
                index = (*[slice(None)] * axis, slice(begin, end))
                yield from (part.inside(index) for part in self._in(key))

    def _enlarged(self, call: Call, wide: Tensor) -> Iterator[Part]:
        small = call.argument(0, "input")
        steps = [b // a if b % a == 0 else 0 for a, b in zip(small.shape, wide.shape, strict=True)]
        # A factor of 2.04 that makes 20 of 10 repeats other elements than one of 2.
        given = call.argument(2, "scale_factor")
        factors = given if isinstance(given, tuple | list) else [given] * (small.ndim - 2)
        is_whole = given is None or [float(f) for f in factors] == [float(s) for s in steps[2:]]
        if call.argument(3, "mode", "nearest") == "nearest" and all(steps) and is_whole:
            index = tuple(slice(None, None, step) for step in steps)
            yield from (part.inside(index) for part in self._in(key_of(small)))


def key_of(tensor: Tensor) -> Key:
    """A tensor, as long as its storage is weakly referenced: addresses are used again at once."""
    return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape),
            tensor.stride(), tensor._version, tensor.dtype)  # fmt: skip


def _runs(pieces: Sequence[Tensor], axis: int) -> Iterator[tuple[int, int, Key]]:
    """Pieces that follow one another in memory as well, as one: begin, end and key. Padding around
    a globe splits a tensor and joins it again.
    """
    at, first, size = 0, pieces[0], 0
    for piece in pieces:
        follows = piece.storage_offset() == first.storage_offset() + size * first.stride(axis)
        if size and not (follows and _alike(piece, first, axis)):
            yield at - size, at, _key_of_run(first, axis, size)
            first, size = piece, 0
        at, size = at + piece.shape[axis], size + piece.shape[axis]
    yield at - size, at, _key_of_run(first, axis, size)


def _alike(one: Tensor, other: Tensor, axis: int) -> bool:
    return _key_of_run(one, axis, 0)[2:] == _key_of_run(other, axis, 0)[2:] and (
        one.untyped_storage()._cdata == other.untyped_storage()._cdata
    )


def _key_of_run(first: Tensor, axis: int, size: int) -> Key:
    storage, offset, shape, *more = key_of(first)
    return storage, offset, (*shape[:axis], size, *shape[axis + 1 :]), *more
