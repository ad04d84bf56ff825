"""What people give to KFAC, checked before anything depends on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from numbers import Integral, Real
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, SGD, Optimizer

from scadl_core.errors import ConfigError, nearest
from scadl_core.optim.reduction import REDUCTIONS

# Raises ConfigError for a value that the argument of that name cannot have.
Limit = Callable[[str, Any], None]


def above_zero(name: str, value: Any) -> None:
    """A finite number."""
    if not (_is_real(value) and 0 < value < math.inf):
        raise ConfigError(f"{name}: expected a number above 0, got {value!r}")


def zero_or_more(name: str, value: Any) -> None:
    """A finite number."""
    if not (_is_real(value) and 0 <= value < math.inf):
        raise ConfigError(f"{name}: expected a number of 0 or more, got {value!r}")


def below_one(name: str, value: Any) -> None:
    """Of an average."""
    if not (_is_real(value) and 0 <= value < 1):
        raise ConfigError(f"{name}: expected a number from 0 to below 1, got {value!r}")


def whole(least: int) -> Limit:
    """A whole number of at least so many."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ConfigError(f"{name}: expected a whole number of {least} or more, got {value!r}")

    return check


def one_of(*choices: str) -> Limit:
    """A choice."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise ConfigError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")

    return check


LIMITS: Mapping[str, Limit] = {
    "damping": above_zero,
    "decay": below_one,
    "factor_period": whole(1),
    "inverse_period": whole(1),
    "refresh_above": zero_or_more,
    "burn_in": whole(0),
    "kl_clip": above_zero,
    "approximation": one_of("auto", "expand", "reduce"),
    "positions": whole(1),
    "fisher": one_of("empirical", "sampled"),
    "loss_reduction": one_of(*REDUCTIONS),
    "max_size": whole(1),
    "seed": whole(-(2**63)),
}
SCHEDULED = {"damping", "kl_clip", "factor_period", "inverse_period"}
OPTIONAL = {"kl_clip", "positions"}


def check(arguments: Mapping[str, Any]) -> None:
    """Raises ConfigError for the first of them that is out of range; schedules are checked as they
    are asked.
    """
    for name, value in arguments.items():
        is_left = (value is None and name in OPTIONAL) or (callable(value) and name in SCHEDULED)
        if name in LIMITS and not is_left:
            LIMITS[name](name, value)


def at(name: str, schedule: Any, step: int) -> Any:
    """The value of an argument at a step, which may be given as a function of it."""
    if not callable(schedule):
        return schedule
    value = schedule(step)
    LIMITS[name](f"{name} at step {step}", value)
    return value


def check_model(model: Any) -> None:
    """Raises ConfigError for what cannot be trained, or not yet."""
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"model: expected the torch.nn.Module whose layers are preconditioned, got {model!r}"
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ConfigError("model: it has no parameter that is trained")
    if any(is_lazy(p) or p.is_meta for p in trained):
        raise ConfigError(
            "model: some parameters have no values yet (lazy modules, device 'meta'): run one "
            "batch through the model, or move it to a device, before KFAC is made from it"
        )


def check_skip(skip: Any, model: nn.Module) -> None:
    """Raises ConfigError for a pattern by which nothing is left out."""
    if isinstance(skip, str) or not isinstance(skip, Iterable):
        raise ConfigError(f"skip: expected a list of names or classes of modules, got {skip!r}")
    words = {
        word for name, it in model.named_modules() for word in (name, type(it).__name__) if word
    }
    for pattern in skip:
        if not any(fnmatch(word, str(pattern)) for word in words):
            raise ConfigError(f"skip: no module is called {pattern!r}{nearest(pattern, words)}")


def make_inner(
    inner: Optimizer | Callable[..., Optimizer] | None, model: nn.Module, lr: float
) -> Optimizer:
    """The inner optimizer.

    Raises:
        ConfigError: It cannot be one, or trains none of the model's parameters.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    if not isinstance(inner, Optimizer):
        zero_or_more("lr", lr)
        if inner is not None and not callable(inner):
            raise ConfigError(f"inner: expected an optimizer, or what makes one, got {inner!r}")
        made = SGD(trained, lr=lr, momentum=0.9, nesterov=True) if inner is None else None
        inner = made or inner(trained, lr=lr)  # type: ignore[misc]
    if isinstance(inner, LBFGS):
        raise ConfigError(
            "inner: LBFGS evaluates the loss several times a step; choose one that takes a single "
            "gradient, such as torch.optim.SGD"
        )
    theirs = {id(p) for group in inner.param_groups for p in group["params"]}
    if not theirs & {id(p) for p in trained}:
        raise ConfigError("inner: the optimizer trains none of the model's parameters")
    return inner


def _is_real(value: Any) -> bool:
    is_truth = value is True or value is False
    return isinstance(value, Real) and not is_truth and not math.isnan(value)
