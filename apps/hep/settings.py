"""What a person wrote below ``data``, checked before anything is read: each mistake is a message
that names its key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scadl_core.errors import ConfigError, nearest


def texts(given: Any, key: str) -> list[str]:
    """A list of names or formulas; a number is a formula, too."""
    is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    if given is None:
        return []
    if not is_list or not all(isinstance(it, str | int | float) for it in given):
        raise ConfigError(f"{key}: expected a list of names or formulas, got {given!r}")
    return [str(it) for it in given]


def numbers(given: Any, key: str) -> list[float]:
    """A list of numbers."""
    is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    if not is_list or not all(_is_number(it) for it in given):
        raise ConfigError(f"{key}: expected a list of numbers, got {given!r}")
    return [float(it) for it in given]


def number(given: Any, key: str, least: float, whole: bool = False) -> Any:
    """A number, not below another."""
    if not _is_number(given) or given < least or (whole and given != int(given)):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{key}: expected {kind}, {least:g} or more, got {given!r}")
    return int(given) if whole else given


def mapping(given: Any, key: str, known: Iterable[str] = ()) -> dict[str, Any]:
    """Values by name; ``known``: the names there are, any if none."""
    if not isinstance(given or {}, Mapping):
        raise ConfigError(f"{key}: expected values by name, got {given!r}")
    found = {str(name): value for name, value in (given or {}).items()}
    if known and (unknown := [it for it in found if it not in known]):
        raise ConfigError(f"{key}.{unknown[0]} is unknown{nearest(unknown[0], known)}")
    return found


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and not math.isnan(value)
