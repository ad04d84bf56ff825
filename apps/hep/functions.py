"""What an expression may call: by one name each, over values of rows and of their constituents.

Reductions (``sum``, ``max``, ``num`` ...) run over the constituents of a row. Angles in radians.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import awkward as ak
import numpy as np

from apps.hep.jagged import Jagged, by_awkward, elementwise
from scadl_core.errors import DataError

_PLAIN = (
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt",
    "ceil", "cos", "cosh", "exp", "expm1", "fabs", "floor", "fmod", "hypot", "isfinite",
    "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "mod", "power", "rint", "sign",
    "sin", "sinh", "sqrt", "square", "tan", "tanh",
)  # fmt: skip


def _over(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def over_constituents(values: Any, axis: int = 1) -> Any:
        values = jagged(values, "a value a constituent")
        if axis not in (1, -1):
            raise DataError(f"axis={axis}: one reduces over the constituents of a row, axis=1")
        return by_awkward(reduce)(values, axis=1)

    return over_constituents


def jagged(values: Any, what: str) -> Any:
    """The values themselves, if they are a list a row; else a DataError."""
    if getattr(values, "ndim", 0) < 2:
        raise DataError(f"{what} is needed, there is one a row")
    return values


def _number(values: Any, axis: int = 1) -> Any:
    values = jagged(values, "a value a constituent")
    return values.number_R if isinstance(values, Jagged) else by_awkward(ak.num)(values, axis=1)


def _extreme(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return _over(lambda values, axis: ak.fill_none(reduce(values, axis=axis), np.nan))


def _clip(values: Any, low: float, high: float) -> Any:
    return np.minimum(np.maximum(values, low), high)  # np.clip takes no jagged array


def _where(condition: Any, then: Any, other: Any) -> Any:
    is_nested = any(isinstance(it, ak.Array) for it in (condition, then, other))
    return (ak if is_nested else np).where(condition, then, other)


def _nan_to_num(values: Any, nan: float = 0.0) -> Any:
    return _where(np.isfinite(values), values, nan)


def deltaphi(first: Any, second: Any) -> Any:
    """The difference of two azimuths, in [-pi, pi)."""
    return (first - second + np.pi) % (2 * np.pi) - np.pi


def _deltar(eta_1: Any, phi_1: Any, eta_2: Any, phi_2: Any) -> Any:
    return np.hypot(eta_1 - eta_2, deltaphi(phi_1, phi_2))


def _mass(px: Any, py: Any, pz: Any, energy: Any) -> Any:
    squared = energy * energy - px * px - py * py - pz * pz
    return np.sqrt(np.maximum(squared, 0))  # below zero by rounding


def _eta(px: Any, py: Any, pz: Any) -> Any:
    return np.arcsinh(pz / np.hypot(px, py))


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _PLAIN},
    "absolute": np.abs,
    "round": np.rint,
    "clip": _clip,
    "where": _where,
    "nan_to_num": _nan_to_num,
    "ones_like": np.ones_like,
    "zeros_like": np.zeros_like,
    # of vectors
    "pt": lambda px, py: np.hypot(px, py),
    "phi": lambda px, py: np.arctan2(py, px),
    "eta": _eta,
    "mass": _mass,
    "rapidity": lambda pz, energy: np.arctanh(pz / energy),
    "deltaphi": deltaphi,
    "deltar": _deltar,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: elementwise(function) for name, function in _ELEMENTWISE.items()},
    # over the constituents of a row
    "num": _number,
    "count": _number,
    "sum": _over(ak.sum),
    "prod": _over(ak.prod),
    "any": _over(ak.any),
    "all": _over(ak.all),
    "min": _extreme(ak.min),
    "max": _extreme(ak.max),
    "mean": _extreme(ak.mean),
    "std": _extreme(ak.std),
}
CONSTANTS = {"pi": np.pi, "e": np.e, "inf": np.inf, "nan": np.nan}
