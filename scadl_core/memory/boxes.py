"""What is kept in the place of a saved tensor, and how it becomes a tensor again."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from scadl_core.compress import Bound, Compressed, decode, encode
from scadl_core.compress.packers import Packed, pack_bits, pack_integers, unpack
from scadl_core.errors import CodecError


class Payload(Protocol):
    """What a box holds."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes; 0 for memory that is held anyway."""

    def restore(self) -> Tensor:
        """The tensor, in the order of memory that the saved one had."""


class Box:
    """One saved tensor; autograd holds it as long as a backward pass may come.

    Args:
        tensor: What is saved.
        payload: What is kept of it.
        released: Called with the box when it is no longer held.

    Attributes:
        readers: Boxes that are read from this one's values, and how.
    """

    __slots__ = ("__weakref__", "_device", "_dtype", "_probe", "_released", "_shape", "_version",
                 "entry", "number", "payload", "readers", "site")  # fmt: skip

    def __init__(
        self, tensor: Tensor, payload: Payload, released: Callable[[Box], None] | None
    ) -> None:
        self.payload, self._released = payload, released
        self._probe, self._version = _version_probe(tensor), tensor._version
        self._shape, self._dtype, self._device = tensor.shape, tensor.dtype, tensor.device
        self.readers: list[tuple[weakref.ref[Box], Nonzero]] = []
        self.entry: Any = None
        self.site: Any = None
        self.number = 0

    def restore(self) -> Tensor:
        """The tensor; may be asked for any number of times.

        Raises:
            RuntimeError: The tensor was changed in place after it was saved, as without hooks.
            CodecError: A codec gave another type, shape or device, which autograd would not notice.
        """
        if self._probe._version != self._version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a tensor of shape {list(self._shape)} is at version "
                f"{self._probe._version}; expected version {self._version} instead"
            )
        tensor = self.payload.restore()
        if (tensor.shape, tensor.dtype, tensor.device) != (self._shape, self._dtype, self._device):
            raise CodecError(
                f"a saved tensor came back as {tensor.dtype} {list(tensor.shape)} on "
                f"{tensor.device}, expected {self._dtype} {list(self._shape)} on {self._device}"
            )
        return tensor

    def __del__(self) -> None:
        if self._released is not None:
            self._released(self)


def _version_probe(tensor: Tensor) -> Tensor:
    """An empty tensor that counts the changes of another without holding its memory; a sparse one
    is held anyway.
    """
    probe = tensor.detach()
    if tensor.layout is not torch.strided:
        return probe
    probe.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return probe


@dataclass(frozen=True)
class Kept:
    """The tensor itself, or a copy of what is used of it.

    Attributes:
        tensor: Detached: an operation's own output would keep its node alive in a cycle.
        nbytes: Of the storage; 0 where something else holds it anyway.
    """

    tensor: Tensor
    nbytes: int

    def restore(self) -> Tensor:
        """The tensor."""
        return self.tensor


@dataclass(frozen=True)
class Form:
    """Type, shape and order in memory of a tensor; alone a payload, where no value is read, as of
    the input of a pooling layer.
    """

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    nbytes: int = 0

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        """That of a tensor."""
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)

    def empty(self) -> Tensor:
        """Memory to write to."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)

    def restore(self) -> Tensor:
        """Zeros that take no memory, or where the order of axes matters, memory not written to."""
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        plain = zero.expand(self.shape)
        is_contiguous = torch.empty(self.shape, device="meta").stride() == self.strides
        return plain if is_contiguous else self.empty()


@dataclass(frozen=True)
class Coded:
    """Values within a bound.

    Attributes:
        stream: What the codec made; axes come back in the order that they had in memory.
        decoder: The codec's inverse.
        device: Where it was.
        keeps_zeros: Whether exactly the zeros come back as zeros.
    """

    stream: Any
    decoder: Callable[[Any], Tensor]
    device: torch.device
    keeps_zeros: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the stream."""
        return int(self.stream.nbytes)

    def restore(self) -> Tensor:
        """The decoded values."""
        return self.decoder(self.stream).to(self.device)


@dataclass(frozen=True)
class Nonzero:
    """Where other values are not zero, as one and zero; they are kept already.

    Attributes:
        box: What holds values that keep their zeros.
        form: Of the tensor.
        path: Indices that lead from these values to the tensor's, applied one after another.
    """

    box: Box
    form: Form
    path: tuple[tuple[slice, ...], ...] = ()
    nbytes: int = 0

    def restore(self) -> Tensor:
        """One or zero."""
        return self.form.empty().copy_(self._of(self.box.payload.restore()))

    def bits(self, values: Tensor) -> Bits:
        """The same on its own, once the values are at hand."""
        form = self.form
        is_one = torch.empty_strided(form.shape, form.strides, dtype=torch.bool, device=form.device)
        return _bits(is_one.copy_(self._of(values)), 1.0, form)

    def _of(self, values: Tensor) -> Tensor:
        for index in self.path:
            values = values[index]
        return values != 0


@dataclass(frozen=True)
class Bits:
    """One bit an element: zero, or one number.

    Attributes:
        packed: Bits in memory order.
        one: The number.
        form: Of the tensor.
    """

    packed: Any
    one: float
    form: Form

    @property
    def nbytes(self) -> int:
        """Bytes of the bits."""
        return int(self.packed.nbytes)

    def restore(self) -> Tensor:
        """The tensor."""
        out = self.form.empty()
        flat = _flat(out)
        bits = _unpack_bits(self.packed, flat.numel(), flat.device)
        flat.copy_(bits)
        if self.one != 1:
            flat.mul_(self.one)  # in the tensor's own precision
        return out


def bits_of(tensor: Tensor, is_one: Tensor, one: float = 1.0) -> Bits:
    """Keeps where a tensor is one number.

    Args:
        tensor: Dense in some order of its axes.
        is_one: bool, of the same shape and order.
        one: The number; elsewhere is zero.
    """
    return _bits(is_one, one, Form.of(tensor))


def _bits(is_one: Tensor, one: float, form: Form) -> Bits:
    pack = pack_bits if form.device.type == "cpu" else pack_bits_on_device
    return Bits(pack(_flat(is_one)), one, form)


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements lie side by side, in any order of its axes."""
    expected = 1
    for size, stride in sorted(
        zip(tensor.shape, tensor.stride(), strict=True), key=lambda it: it[::-1]
    ):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _flat(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in memory order, a view."""
    return tensor.as_strided((tensor.numel(),), (1,))


def pack_bits_on_device(bits: Tensor) -> Tensor:
    """As :func:`scadl_core.compress.packers.pack_bits`, where the tensor is; uint8, 1-D."""
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.numel() % 8)).reshape(-1, 8)
    places = torch.arange(8, device=bits.device, dtype=torch.uint8)
    return (padded << places).sum(1, dtype=torch.uint8)


def _unpack_bits(packed: Any, count: int, device: torch.device) -> Tensor:
    if isinstance(packed, Packed):
        bits: Tensor = unpack(packed)
        return bits
    places = torch.arange(8, device=device, dtype=torch.uint8)
    wide: Tensor = (packed[:, None] >> places) & 1
    return wide.reshape(-1)[:count].bool()


@dataclass(frozen=True)
class Integers:
    """Indices in the narrowest type, or a mask in bits."""

    packed: Packed
    form: Form

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.packed.nbytes

    def restore(self) -> Tensor:
        """The tensor."""
        plain: Tensor = unpack(self.packed)
        if plain.stride() == self.form.strides and plain.device == self.form.device:
            return plain
        return self.form.empty().copy_(plain)


def integers_of(tensor: Tensor) -> Integers:
    """Keeps integers or booleans without loss."""
    pack = pack_bits if tensor.dtype is torch.bool else pack_integers
    return Integers(pack(tensor), Form.of(tensor))


def coded(tensor: Tensor, bound: Bound, dither: int | None) -> Coded:
    """Keeps values within a bound.

    Args:
        tensor: float16, bfloat16, float32 or float64, any strides.
        bound: Of the error.
        dither: Seed; None rounds to the nearest.
    """
    stream: Compressed = encode(tensor, bound, dither=dither)
    # A dithered value is a multiple of 2^-24 steps, which float16 may not tell from zero; and once
    # in 2^24 small elements it is zero.
    keeps_zeros = dither is not None and tensor.dtype is not torch.float16
    return Coded(stream, decode, tensor.device, keeps_zeros)


def serves(payload: Payload, bound: Bound) -> bool:
    """Whether values that are kept already are within a bound that is wanted now."""
    kept = getattr(getattr(payload, "stream", None), "bound", None)
    return kept is not None and (
        (type(kept) is type(bound) and kept.eps <= 1.001 * bound.eps) or kept.eps == 0
    )


def mask_of(tensor: Tensor) -> Bits | None:
    """Keeps a tensor of zeros and one number, such as what dropout multiplies with; None where it
    is something else.
    """
    if not is_dense(tensor):
        return None
    largest, is_one = float(tensor.max()), tensor != 0
    is_mask = largest != 0 and bool((~is_one | (tensor == largest)).all())
    return bits_of(tensor, is_one, largest) if is_mask else None


def compact(tensor: Tensor) -> Tensor:
    """A copy of the elements that a tensor has in memory, a repeated one once."""
    repeats = zip(tensor.shape, tensor.stride(), strict=True)
    once = tuple(slice(0, 1 if not stride else size) for size, stride in repeats)
    return tensor.detach()[once].clone().expand(tensor.shape)


def own_bytes(tensor: Tensor) -> int:
    """Bytes of the elements that a tensor has in memory, a repeated one once."""
    sizes = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.element_size()
