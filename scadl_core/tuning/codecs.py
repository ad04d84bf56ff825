"""What each exchange does to the gradients of a network, measured on one rank's gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import torch
from torch import Tensor

from scadl_core.compress import Absolute, decode, encode, from_bytes, to_bytes
from scadl_core.tuning.network import Codec

BOUNDS = (0.015, 0.1, 1.0)  # the first one keeps a gradient within 1 %
RANKS = (1, 2, 4)  # of PowerSGD
_FEWEST_LEVELS = 7  # as in scadl_core.comm.quantised


def measure_codecs(gradients: Sequence[Tensor], ranks: int) -> dict[str, Codec]:
    """Ratio and error of every exchange.

    Args:
        gradients: Of all parameters, float, any shape and device.
        ranks: That average; with more of them integers are coarser.
    """
    parts = [gradient.detach().float().cpu() for gradient in gradients]
    found = {"off": Codec(1.0, 0.0)}
    found["bf16"] = Codec(2.0, _error(parts, lambda part: part.bfloat16().float()))
    levels = 127 // ranks
    narrow = levels >= _FEWEST_LEVELS
    levels = levels if narrow else 32767 // ranks
    rounded = _error(parts, lambda part: _integers(part, levels))
    found["quantised"] = Codec(4.0 if narrow else 2.0, rounded)
    for bound in BOUNDS:
        found[f"compressed {bound:g}"] = _compressed(parts, bound)
    for rank in RANKS:
        found[f"powersgd {rank}"] = _powersgd(parts, rank)
    return found


def _compressed(parts: Sequence[Tensor], bound: float) -> Codec:
    limits = [max(1e-30, bound * float(part.square().mean().sqrt())) for part in parts]
    scaled = torch.cat([p.flatten() / limit for p, limit in zip(parts, limits, strict=True)])

    def compress() -> bytes:
        return to_bytes(encode(scaled, Absolute(1.0), predictor="none"), zstd=1)

    data = compress()
    rates = [scaled.nbytes / _fastest(it) for it in (compress, lambda: decode(from_bytes(data)))]
    restored = iter(decode(from_bytes(data)).split([part.numel() for part in parts]))
    scales = iter(limits)
    error = _error(parts, lambda part: next(restored).view_as(part) * next(scales))
    return Codec(scaled.nbytes / (len(data) + 8 * len(parts)), error, *rates)


def _powersgd(parts: Sequence[Tensor], rank: int) -> Codec:
    """With a random start and one step of power iteration, as the first exchange does."""
    sent = 0
    generator = torch.Generator().manual_seed(0)

    def restore(part: Tensor) -> Tensor:
        nonlocal sent
        matrix = part.reshape(part.shape[0], -1) if part.dim() else part.reshape(1, 1)
        rows, columns = matrix.shape
        least = min(rows, columns, rank)
        if 2 * (rows + columns) * least >= rows * columns:
            sent += part.numel()
            return part
        sent += (rows + columns) * least
        left: Tensor = torch.linalg.qr(matrix @ torch.randn(columns, least, generator=generator)).Q
        return (left @ (left.mT @ matrix)).view_as(part)

    error = _error(parts, restore)
    return Codec(sum(part.numel() for part in parts) / sent, error)


def _integers(part: Tensor, levels: int) -> Tensor:
    scale = part.abs().amax() / levels
    return (part / scale).nan_to_num(0).round() * scale


def _fastest(function: Callable[[], object]) -> float:
    """Seconds of the fastest of a few calls."""
    found = []
    for _ in range(5):
        began = perf_counter()
        function()
        found.append(perf_counter() - began)
    return min(found)


def _error(parts: Sequence[Tensor], restore: Callable[[Tensor], Tensor]) -> float:
    """Norm of the difference over the norm, over all parameters together."""
    wrong = sum(float((restore(part) - part).double().square().sum()) for part in parts)
    whole = sum(float(part.double().square().sum()) for part in parts)
    return (wrong / whole) ** 0.5 if whole else 0.0
