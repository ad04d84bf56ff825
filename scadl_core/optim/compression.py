"""Statistics as bytes, with an error that the damping hides.

Let M = A + lambda I be a damped factor and E the error of A. Where ||E||_2 <= eps lambda with
eps < 1, M + E is positive definite whatever A is, and (M + E)^-1 differs from M^-1 by at most
eps/(1 - eps) of its norm, since (M + E)^-1 - M^-1 = -(M + E)^-1 E M^-1. Independent errors of
at most b an element have ||E||_2 near 2 b sqrt(n/3), so

    b = eps lambda sqrt(3) / (2 sqrt(n)).

The codec's dither makes errors independent (rounding to nearest does not: a factor has many equal
elements). What is sent is decoded again before, and ||E||_2 estimated by power iteration; where it
is too large the bound is halved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scadl_core.compress import Absolute, decode, encode, from_bytes, to_bytes
from scadl_core.errors import ConfigError
from scadl_core.optim.layers import Side
from scadl_core.optim.packing import packed_size, unpack

_ITERATIONS = 12
_ATTEMPTS = 4
_ZSTD = 3
_SAFETY = 0.99  # for the rounding to float32 before


@dataclass(frozen=True)
class Part:
    """One factor within a flat tensor.

    Attributes:
        side: Its shape.
        limit: The damping that it will get, in units of its elements.
    """

    side: Side
    limit: float


class FactorCodec:
    """Codes packed factors.

    Args:
        eps: The largest error in the spectral norm, as a share of the damping; in (0, 1).

    Attributes:
        tightened: How often a bound had to be halved.
        worst: The largest ||E||_2 / lambda that was sent.

    Raises:
        ConfigError: Another eps.
    """

    def __init__(self, eps: float) -> None:
        if not 0 < eps < 1:
            raise ConfigError(f"compression: expected null or a number in (0, 1), got {eps!r}")
        self.eps, self.tightened, self.worst = eps, 0, 0.0

    def bound(self, part: Part) -> float:
        """The error of an element."""
        # A diagonal's error has the norm of its largest element.
        spread = 1.0 if part.side.size == 1 else math.sqrt(3) / (2 * math.sqrt(part.side.size))
        return _SAFETY * self.eps * part.limit * spread if part.limit > 0 else 1.0

    def encode(self, flat: Tensor, parts: Sequence[Part], seed: int) -> bytes:
        """The bytes of packed factors.

        Args:
            flat: All of them in a row.
            parts: What they are.
            seed: Of the dither; another one for each message.
        """
        bounds = [self.bound(part) for part in parts]
        pieces = flat.split([packed_size(part.side) for part in parts])
        for attempt in range(_ATTEMPTS):
            body = self._body(pieces, bounds, seed + attempt)
            errors = self._errors(body, pieces, bounds, parts)
            over = [error > self.eps for error in errors]
            if not any(over):
                break
            self.tightened += sum(over)
            bounds = [b / 2 if bad else b for b, bad in zip(bounds, over, strict=True)]
        self.worst = max(self.worst, *errors)
        return np.array(bounds).tobytes() + body

    def _body(self, pieces: Sequence[Tensor], bounds: Sequence[float], seed: int) -> bytes:
        scaled = torch.cat([p / b for p, b in zip(pieces, bounds, strict=True)]).float()
        return to_bytes(encode(scaled, Absolute(1.0), dither=seed % 2**32), zstd=_ZSTD)

    def _errors(
        self, body: bytes, pieces: Sequence[Tensor], bounds: Sequence[float], parts: Sequence[Part]
    ) -> list[float]:
        """Of each factor the spectral norm of its error over its damping."""
        again = _decoded(body, bounds, pieces)
        return [
            spectral_norm(unpack(there - here, part.side)) / part.limit if part.limit > 0 else 0.0
            for there, here, part in zip(again, pieces, parts, strict=True)
        ]


def decode_factors(data: bytes, sides: Sequence[Side], like: Tensor) -> Tensor:
    """What :meth:`FactorCodec.encode` was given, within its error.

    Args:
        data: Its bytes.
        sides: Of the factors.
        like: A tensor of the dtype and device that the result has.
    """
    bounds = np.frombuffer(data[: 8 * len(sides)]).tolist()
    pieces = like.new_empty(sum(map(packed_size, sides))).split([packed_size(s) for s in sides])
    return torch.cat(_decoded(data[8 * len(sides) :], bounds, pieces))


def _decoded(body: bytes, bounds: Sequence[float], pieces: Sequence[Tensor]) -> list[Tensor]:
    scaled: Tensor = decode(from_bytes(body))
    split = scaled.to(pieces[0]).split([len(piece) for piece in pieces])
    return [s * b for s, b in zip(split, bounds, strict=True)]


def spectral_norm(stack: Tensor) -> float:
    """The largest of the 2-norms of symmetric matrices (K, n, n), from below, by power iteration on
    several vectors.
    """
    if stack.shape[1] == 1:
        return float(stack.abs().max())
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(*stack.shape[:2], 4, generator=generator, dtype=torch.float32)
    vectors = start.to(stack)
    norm = vectors.new_zeros(())
    for _ in range(_ITERATIONS):
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        vectors = stack @ (
            vectors / lengths.clamp_min(1e-300 if stack.dtype == torch.float64 else 1e-38)
        )
        norm = torch.linalg.vector_norm(vectors, dim=1).max()
    return float(norm)
