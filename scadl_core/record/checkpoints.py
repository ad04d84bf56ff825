"""Checkpoints on disk: exact, or with the optimizer's state compressed within a bound.

Exact ones are PyTorch's, read with ``weights_only``; compressed ones are those of
:mod:`scadl_core.compress.checkpoint`. A reader need not know which it has.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from scadl_core.compress import Bound, PointwiseRelative, Relative
from scadl_core.compress import checkpoint as compressed
from scadl_core.errors import ConfigError
from scadl_core.files import written_aside

_ZIP = b"PK"  # how PyTorch's files begin


def check_bound(bound: float | None) -> float | None:
    """The bound of ``trainer.checkpoint_bound``; a ConfigError unless it is null or in (0, 1)."""
    if bound is None:
        return None
    number = isinstance(bound, int | float) and not isinstance(bound, bool)
    if not number or not math.isfinite(bound) or not 0 < bound < 1:
        raise ConfigError(
            f"trainer.checkpoint_bound: expected null, or a relative error between 0 and 1 such as "
            f"1e-3, got {bound!r}"
        )
    return float(bound)


def write_checkpoint(checkpoint: dict[str, Any], path: Path, bound: float | None) -> None:
    """Writes a checkpoint, whole or not at all.

    Args:
        checkpoint: What Lightning collects.
        path: Where to; its folder must exist.
        bound: None is exact. Else each tensor of the optimizer's state is within it: relative to
            its range, or to the element for second moments, by whose root a step is divided.
            Weights are always exact.
    """
    if bound is None:
        with written_aside(path) as aside:
            torch.save(checkpoint, aside)
    else:
        compressed.save(checkpoint, path, _bounds(checkpoint, bound))


def read_checkpoint(path: Path) -> Any:
    """What was written, on the CPU; nothing in the file is executed."""
    with path.open("rb") as file:
        is_exact = file.read(len(_ZIP)) == _ZIP
    if is_exact:
        return torch.load(path, map_location="cpu", weights_only=True)
    return compressed.load(path)


def _bounds(checkpoint: dict[str, Any], bound: float) -> dict[str, Bound]:
    states = [state for it in checkpoint["optimizer_states"] for state in it["state"].values()]
    moments = {
        name
        for state in states
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.is_floating_point()
    }
    return {
        f"optimizer_states.*.{name}": (PointwiseRelative if name.endswith("_sq") else Relative)(
            bound
        )
        for name in sorted(moments)
    }
