"""A budget of bytes as a person writes it, and the largest batch that stays within it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from scadl_core.errors import ActivationError

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def parse_budget(budget: str | float | None, device: torch.device) -> int | None:
    """Bytes of a budget.

    Args:
        budget: ``"6GiB"``, ``"500 MB"``, a number of bytes, a share of the device's memory below 1,
            or None for none.
        device: Whose memory a share is of.

    Raises:
        ActivationError: It is something else.
    """
    if budget is None:
        return None
    text = str(budget).strip()
    found = re.fullmatch(r"([0-9.eE+-]+)\s*([A-Za-z]*)", text)
    unit = found.group(2).upper() if found else ""
    try:
        value = float(found.group(1)) if found else float("nan")
    except ValueError:
        value = float("nan")
    if not value > 0 or value == float("inf") or (unit and unit not in _UNITS):
        raise ActivationError(
            f"budget: expected bytes such as 6GiB, or a share of the device's memory such as 0.25, "
            f"got {budget!r}"
        )
    found_bytes = int(value * (_UNITS.get(unit, 1) if unit or value >= 1 else device_bytes(device)))
    if found_bytes < 1:
        raise ActivationError(f"budget: expected a byte or more, got {budget!r}")
    return found_bytes


def device_of(module: nn.Module) -> torch.device:
    """Where a network is, by its first parameter."""
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def device_bytes(device: torch.device) -> int:
    """All memory of a device, or of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    line = Path("/proc/meminfo").read_text(encoding="ascii").split("\n", 1)[0]
    return 1024 * int(line.split()[1])


def largest_batch(measure: Callable[[int], int], budget: int, most: int) -> int:
    """The largest batch whose step stays within a budget: doubled while it does, then bisected.

    Args:
        measure: Runs a step with a batch of that size and returns its peak in bytes, such as
            :attr:`scadl_core.memory.ledger.Ledger.peak`.
        budget: Bytes.
        most: Not to be exceeded.

    Raises:
        ActivationError: Not even one sample fits.
    """
    fits, fails = 0, most + 1
    size = 1
    while fits < min(size, most) < fails:
        size = min(size, most)
        if measure(size) <= budget:
            fits, size = size, 2 * size
        else:
            fails = size
    while fails - fits > 1 and fits:
        middle = (fits + fails) // 2
        if measure(middle) <= budget:
            fits = middle
        else:
            fails = middle
    if fits == 0:
        raise ActivationError(f"budget: not even a batch of 1 stays within {budget} bytes")
    return fits
