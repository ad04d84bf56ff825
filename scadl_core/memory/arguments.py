"""What people give to CompressedActivations, checked before anything depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from torch import nn

from scadl_core.compress import Bound
from scadl_core.compress.blockscaled import BITS
from scadl_core.errors import ActivationError


def check_module(module: Any) -> None:
    """Raises ActivationError for what is no network."""
    if not isinstance(module, nn.Module):
        raise ActivationError(f"module: expected a torch.nn.Module, got {module!r}")


def check_fraction(fraction: Any) -> None:
    """Raises ActivationError for what is no share of a gradient."""
    is_number = isinstance(fraction, Real) and not isinstance(fraction, bool)
    if not is_number or not 0 <= float(fraction) < 1:
        raise ActivationError(
            f"fraction: expected a number, 0 or more and less than 1, got {fraction!r}"
        )


def check_bound(bound: Any) -> None:
    """Raises ActivationError for what is neither None nor a bound."""
    if bound is not None and not isinstance(bound, Bound):
        raise ActivationError(f"bound: expected such as Absolute(1e-3), got {bound!r}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raises ActivationError for what is no whole number of at least so many."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ActivationError(f"{name}: expected a whole number of {least} or more, got {value!r}")


def check_bits(bits: Any) -> None:
    """Raises ActivationError for a width that there is no codec for."""
    if not isinstance(bits, Integral) or bits not in BITS:
        raise ActivationError(f"bits: expected one of {BITS}, got {bits!r}")


def check_blocks(blocks: Any) -> None:
    """Raises ActivationError for what is no list of names; a string alone is one by mistake."""
    is_list = isinstance(blocks, Sequence) and not isinstance(blocks, str)
    if not is_list or not all(isinstance(name, str) for name in blocks):
        raise ActivationError(f"blocks: expected a list of modules' names, got {blocks!r}")


def check_encoder(encoder: Any) -> None:
    """Raises ActivationError for what cannot be called."""
    if not callable(encoder):
        raise ActivationError(
            f"encoder: expected a function of tensor, bound, seed, got {encoder!r}"
        )
