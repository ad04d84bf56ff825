"""Gradients averaged in compressed form, each within an error bound of its own.

Compressed data cannot be added up on the way. So every rank averages a share of the elements:

    x_r = g_r + e_r                          this rank's gradient, and what it has not sent yet
    y_r = D(C(x_r)),  |x_r - y_r| <= b_r      to the owner of each share     (reduce-scatter)
    m = mean_r y_r,  z = D(C(m)),  |m - z| <= sqrt(sum_r b_r^2) / P          (all-gather)
    e_r <- x_r - y_r,  and at the owner of the share besides  + P (m - z)

Both messages together hold each element twice, whatever the number of ranks P. Since what either
rounding leaves is sent later, the sum of all z differs from the sum of all mean gradients by the
mean of the present e_r alone: by at most (1 + 1/sqrt(P)) times the bound. The second bound is the
standard deviation, up to a constant, that the first ones leave in the mean.

The bound of a parameter is a multiple of the root of a running mean of its squared gradient, so
that layers of small gradients move as well. Values below it in magnitude are mostly sent as
zeros, for which the codec has a bit or less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from scadl_core.comm.gradients import GradientExchange
from scadl_core.comm.lossy import Lossy
from scadl_core.comm.messages import Messages
from scadl_core.comm.shares import Piece, shares
from scadl_core.comm.world import World
from scadl_core.compress import Absolute, decode, encode, from_bytes, to_bytes
from scadl_core.errors import ConfigError

_SMALLEST = 1e-30  # a bound: zeros can be divided by it


class Compressed(Lossy):
    """Averages gradients that are compressed within a bound, with error feedback.

    Args:
        world: The processes of the run.
        bound: Of the error of an element, as a multiple of the root mean square of the
            parameter's gradient; 0 makes the exchange the exact one.
        momentum: Of the running mean of squared gradients; 0 looks at the present one alone.
        zstd: Level of the second, lossless stage; None leaves it out.

    Raises:
        ConfigError: A number outside of its range.
    """

    message_bound = 2**-9  # as in docs/results/admm.md

    def __init__(
        self, world: World, bound: float = 1.0, momentum: float = 0.9, zstd: int | None = 1
    ) -> None:
        super().__init__(world)
        if not (math.isfinite(bound) and bound >= 0):
            raise ConfigError(f"comm.bound: expected a number of at least 0, got {bound!r}")
        if not 0 <= momentum < 1:
            raise ConfigError(f"comm.momentum: expected a number in [0, 1), got {momentum!r}")
        if zstd is not None and not 1 <= zstd <= 19:
            raise ConfigError(f"comm.zstd: expected null or a level from 1 to 19, got {zstd!r}")
        self.bound, self.momentum, self.zstd = bound, momentum, zstd
        self.messages: Messages | None = None

    def start(self, bucket: GradBucket) -> Future[Tensor]:
        """Begins to average one bucket."""
        return super().start(bucket) if self.bound else GradientExchange.start(self, bucket)

    def average(self, bucket: GradBucket) -> Tensor:
        """The averaged flat tensor of a bucket, the same on every rank."""
        names, gradients = self.names_of(bucket), self.pieces_of(bucket)
        values = self.with_errors(names, gradients)
        bounds = self._bounds(names, gradients)
        owned = shares([len(v) for v in values], [self.numbers[n] for n in names], self.world.size)
        own, key = owned[self.world.rank], tuple(names)
        if self.messages is None:
            self.messages = Messages(self.group, bucket.buffer().device, self.count)
        guess = max(sum(piece.stop - piece.start for piece in share) for share in owned) // 4 + 64

        payloads = [self._pack(_cut(values, s), [bounds[p.place] for p in s]) for s in owned]
        sent = [_unpack(payload, share) for payload, share in zip(payloads, owned, strict=True)]
        for share, there in zip(owned, sent, strict=True):
            _each(torch.Tensor.sub_, _cut(values, share), there.values)
        received = self.messages.scatter(key, payloads, guess)
        rank = self.world.rank  # what is this one's own has been decoded
        mean = _mean([sent[rank] if r == rank else _unpack(payload, own)
                      for r, payload in enumerate(received)])  # fmt: skip
        payload = self._pack(mean.values, mean.bounds)
        mine = _unpack(payload, own)
        _each(torch.Tensor.sub_, mean.values, mine.values)
        _each(partial(torch.Tensor.add_, alpha=self.world.size), _cut(values, own), mean.values)
        for r, it in enumerate(self.messages.gather(key, payload, guess)):
            there = mine if r == rank else _unpack(it, owned[r])
            _each(torch.Tensor.copy_, _cut(gradients, owned[r]), there.values)
        self.remember(names, values, bucket)
        return bucket.buffer()

    def _bounds(self, names: Sequence[str], gradients: Sequence[Tensor]) -> list[float]:
        """Of each parameter's elements, on this rank."""
        found = []
        for name, gradient in zip(names, gradients, strict=True):
            square = _mean_square(gradient)
            before = self.memory.get("square", name, square)
            if before is not None:
                square = self.momentum * before + (1 - self.momentum) * square
            self.memory.put("square", name, square)
            found.append(max(self.bound * math.sqrt(float(square)), _SMALLEST))
        return found

    def _pack(self, pieces: Sequence[Tensor], bounds: Sequence[float]) -> bytes:
        """The pieces, within their bounds, and the bounds before them."""
        scaled = torch.cat([p / b for p, b in zip(pieces, bounds, strict=True)] or [torch.empty(0)])
        # Gradients have no order that a predictor could use.
        packed = encode(scaled, Absolute(1.0), predictor="none")
        return np.array(bounds, np.float64).tobytes() + to_bytes(packed, zstd=self.zstd)


class _Unpacked(NamedTuple):
    """Pieces of parameters as they were sent, and their bounds."""

    values: list[Tensor]
    bounds: list[float]


def _unpack(payload: bytes, share: Sequence[Piece]) -> _Unpacked:
    head = 8 * len(share)
    bounds = np.frombuffer(payload[:head]).tolist()
    scaled: Tensor = decode(from_bytes(payload[head:]))
    split = scaled.split([piece.stop - piece.start for piece in share]) if share else []
    return _Unpacked([s * b for s, b in zip(split, bounds, strict=True)], bounds)


def _mean(ranks: Sequence[_Unpacked]) -> _Unpacked:
    """Over ranks, in their order; with the bound of its own rounding."""
    pieces = zip(*(rank.values for rank in ranks), strict=True)
    bounds = zip(*(rank.bounds for rank in ranks), strict=True)
    return _Unpacked(
        [sum(piece[1:], piece[0]) / len(ranks) for piece in pieces],
        [math.hypot(*bound) / len(ranks) for bound in bounds],
    )


def _cut(flats: Sequence[Tensor], share: Sequence[Piece]) -> list[Tensor]:
    return [flats[piece.place][piece.start : piece.stop] for piece in share]


def _each(change: Callable[..., Any], targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        change(target, value.to(target.device))


def _mean_square(gradient: Tensor) -> Tensor:
    """Over the finite elements, in 64 bits: squares of small gradients are nothing in 32."""
    norm: Tensor = torch.linalg.vector_norm(gradient, dtype=torch.float64)
    if not torch.isfinite(norm):
        finite = gradient[torch.isfinite(gradient)]
        norm = torch.linalg.vector_norm(finite, dtype=torch.float64)
    return norm.square() / max(1, gradient.numel())
