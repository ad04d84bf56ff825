"""The cases of the memory study: a compressor, its bound and what it is applied to, and the peers.

A case is a word such as ``adaptive_0.01``, ``scadl_relative_0.01``, ``sz3_absolute_0.1_gradients``,
``quantise_4``, ``checkpoint``, ``save_on_cpu`` or ``none``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from scadl_core.bench.codecs import METHODS, Codec
from scadl_core.comm import World
from scadl_core.compress import Absolute, Bound, PointwiseRelative, Relative
from scadl_core.compress.blockscaled import dequantise_blocks, quantise_blocks
from scadl_core.errors import ConfigError
from scadl_core.memory import CompressedActivations, SavedBytes
from scadl_core.memory.blocks import Blocks, find_blocks
from scadl_core.memory.boxes import Payload, coded
from scadl_core.memory.ledger import Ledger

BOUNDS: dict[str, Callable[[float], Bound]] = {
    "absolute": Absolute, "relative": Relative, "pointwise": PointwiseRelative,
}  # fmt: skip
PEERS = {"sz3": "SZ3 interpolation", "zfp": "zfp"}
TARGETS = ("activations", "gradients", "weights")
Encoder = Callable[[Tensor, Bound, int | None], Payload]


@dataclass(frozen=True)
class Quantised:
    """Blocks of 2, 4 or 8 bits, as ActNN keeps them."""

    data: Tensor
    like: tuple[list[int], torch.dtype, int]

    @property
    def nbytes(self) -> int:
        """Of codes and scales."""
        return self.data.nbytes

    def restore(self) -> Tensor:
        """The values."""
        values: Tensor = dequantise_blocks(self.data, *self.like)
        return values


@dataclass(frozen=True)
class OfPeer:
    """What another compressor made; with a pointwise bound of the magnitudes' logarithms, beside
    signs and zeros (Liang et al. 2018, doi:10.1109/CLUSTER.2018.00036).
    """

    codec: Codec
    stream: Any
    shape: torch.Size
    signs: tuple[np.ndarray[Any, Any], ...] = ()

    @property
    def nbytes(self) -> int:
        """Of the stream, and a bit for each sign and zero."""
        return self.codec.size(self.stream) + sum(bits.nbytes for bits in self.signs)

    def restore(self) -> Tensor:
        """The values, float32."""
        values = np.array(self.codec.decompress(self.stream), np.float32).reshape(-1)
        if self.signs:
            negative, zero = (np.unpackbits(b, count=values.size).view(bool) for b in self.signs)
            values = np.where(zero, 0, np.exp2(values) * np.where(negative, -1, 1))
        return torch.from_numpy(values.astype(np.float32)).reshape(self.shape)


def peer(name: str) -> Encoder:
    """Keeps float32 values with SZ3 or zfp; others, and constants, as this package does."""
    make = next(m.make for m in METHODS if m.name == PEERS[name])

    def encode(tensor: Tensor, bound: Bound, dither: int | None) -> Payload:
        values = np.ascontiguousarray(tensor.detach().numpy()) if tensor.is_contiguous() else None
        if values is None or values.dtype != np.float32 or not np.isfinite(values).all():
            return coded(tensor, bound, dither)
        span = float(values.max() - values.min())
        if span == 0 or bound.eps == 0:
            return coded(tensor, bound, dither)
        if isinstance(bound, PointwiseRelative):
            zero, signs = values == 0, (np.packbits(values < 0), np.packbits(values == 0))
            magnitude = np.log2(np.where(zero, 1, np.abs(values))).astype(np.float32)
            codec = make(magnitude, math.log2(1 + bound.eps), 1)
            return OfPeer(codec, codec.compress(), tensor.shape, signs)
        codec = make(values, bound.eps * (span if isinstance(bound, Relative) else 1), 1)
        return OfPeer(codec, codec.compress(), tensor.shape)

    return encode


def quantiser(bits: int) -> Encoder:
    """Keeps values in blocks with stochastic rounding."""

    def encode(tensor: Tensor, bound: Bound, dither: int | None) -> Payload:
        if tensor.dtype is torch.float64:
            return coded(tensor, bound, dither)
        how = (list(tensor.shape), tensor.dtype, bits)
        return Quantised(quantise_blocks(tensor, bits, dither or 0), how)

    return encode


def parse_case(case: str) -> tuple[str, dict[str, Any], str]:
    """Takes a case apart.

    Args:
        case: A word as above.

    Returns:
        Its kind, arguments of :class:`CompressedActivations`, and what is compressed.

    Raises:
        ConfigError: It is none.
    """
    kind, *rest = case.split("_") if case != "save_on_cpu" else [case]
    target = rest.pop() if rest and rest[-1] in TARGETS else "activations"
    try:
        if kind in ("none", "checkpoint", "save_on_cpu") and not rest:
            return kind, {}, target
        if kind == "adaptive" and len(rest) == 1:
            return kind, {"fraction": float(rest[0])}, target
        if kind == "quantise" and len(rest) == 1:
            # The bound is not read; below all values it makes each tensor one with values.
            return kind, {"bound": Absolute(1e-9), "encoder": quantiser(int(rest[0]))}, target
        if kind in ("scadl", *PEERS) and len(rest) == 2:
            encoder = {} if kind == "scadl" else {"encoder": peer(kind)}
            return kind, {"bound": BOUNDS[rest[0]](float(rest[1])), **encoder}, target
    except (ValueError, KeyError):
        pass
    raise ConfigError(f"case {case!r}: expected such as adaptive_0.01, scadl_relative_0.01, none")


class Case:
    """A case, set to a network: opened around each forward pass.

    Args:
        module: The network.
        case: Its word.

    Attributes:
        stored: Bytes that the last step kept at most.
        raw: Bytes without.
    """

    def __init__(self, module: nn.Module, case: str) -> None:
        self.kind, arguments, self.target = parse_case(case)
        self.module, self.stored, self.raw = module, 0, 0
        self.compressed = CompressedActivations(module, **arguments) if arguments else None
        self._opened = ExitStack()
        if self.target != "activations":
            self._round_gradients(arguments)

    def _round_gradients(self, arguments: dict[str, Any]) -> None:
        """Gradients come back as a compressor would leave them; nothing is saved by that."""
        encoder, bound = arguments.get("encoder", coded), arguments["bound"]

        def rounded(grad: Tensor) -> Tensor:
            if grad.numel() < 64:
                return grad
            restored: Tensor = encoder(grad.contiguous(), bound, None).restore()
            return restored

        self.compressed = None
        if self.target == "weights":
            for parameter in self.module.parameters():
                parameter.register_hook(rounded)  # type: ignore[no-untyped-call]
            return

        def follow(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(rounded)  # type: ignore[no-untyped-call]

        for layer in self.module.modules():
            if next(layer.children(), None) is None and next(layer.parameters(), None) is not None:
                layer.register_forward_hook(follow)

    def open(self) -> None:
        """Before the forward pass."""
        hooks: AbstractContextManager[Any] = ExitStack()
        if self.compressed is not None:
            hooks = self.compressed
        elif self.kind == "save_on_cpu":
            hooks = torch.autograd.graph.save_on_cpu()
        elif self.kind == "checkpoint":
            blocks = Blocks(find_blocks(self.module, []), Ledger())
            blocks.recompute = frozenset(blocks.modules)
            hooks = blocks.watched()
        self._opened.enter_context(hooks)

    def close(self) -> None:
        """After it."""
        self._opened.close()
        if self.compressed is not None:
            self.stored = self.compressed.ledger.peak
            self.raw = self.compressed.ledger.peak_raw


def measured(case: Case, forward: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that a forward pass keeps: as it says, or with an independent counter.

    A block that is computed again holds all that it would have saved for a while; the largest one
    is added.
    """
    if case.compressed is not None:
        case.open()
        forward()
        case.close()
        return case.stored, case.raw
    with SavedBytes(case.module) as plain:
        forward()
    if case.kind != "checkpoint":
        return plain.bytes, plain.bytes
    inside = []
    for block in find_blocks(case.module, []).values():
        counter = SavedBytes(case.module)
        first = block.register_forward_pre_hook(lambda *_, c=counter: (c.__enter__(), None)[1])
        last = block.register_forward_hook(lambda *_, c=counter: c.__exit__(None, None, None))
        forward()
        first.remove()
        last.remove()
        inside.append(counter.bytes)
    with SavedBytes(case.module) as boundaries:
        case.open()
        forward()
        case.close()
    return boundaries.bytes + max(inside, default=0), plain.bytes


class StudyMemory(Callback):
    """A case in a training.

    Args:
        world: The processes of the run.
        case: Its word.
    """

    def __init__(self, world: World, case: str = "none") -> None:
        parse_case(case)
        self.word, self.bytes = case, (0.0, 0.0)
        self.case: Case | None = None
        self._peaks: list[tuple[int, int]] = []

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """The network is on its device."""
        self.case = Case(module, self.word)

    def on_train_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Before the forward pass."""
        assert self.case is not None
        self.case.open()

    def on_before_backward(self, *_: Any) -> None:
        """After it."""
        assert self.case is not None
        self.case.close()
        self._peaks.append((self.case.stored, self.case.raw))

    @property
    def saved(self) -> tuple[float, float]:
        """Mean bytes kept with and without; zeros where this case does not count."""
        kept = [sum(column) / max(1, len(self._peaks)) for column in zip(*self._peaks, strict=True)]
        return (kept[0], kept[1]) if kept else (0.0, 0.0)
