"""The one door through which a configuration becomes objects."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from scadl_core.config.apps import find_app
from scadl_core.errors import ConfigError, ScadlError, nearest

_TRUSTED = (
    "torch",
    "lightning",
    "torch_geometric",
    "torchmetrics",
    "pytorch_optimizer",
    "scadl_core",
)
# What may be made of other packages' classes.
_PARTS = {
    "torch.Module",
    "torch.Optimizer",
    "torch.LRScheduler",
    "lightning.Trainer",
    "lightning.Callback",
    "lightning.Logger",
    "torchmetrics.Metric",
}
_FUNCTIONS = "scadl_core.workflow.schedules"
# Keys beside a _target_ that are not its arguments: Hydra's, and data.sample, which
# pipeline.make_source takes out.
_CONTROLS = {"_target_", "_partial_", "_recursive_", "_convert_", "_args_", "sample"}


def build(config: DictConfig, key: str, **arguments: Any) -> Any:
    """Makes the object, or calls the function, that a part of the configuration describes.

    Args:
        config: The whole configuration.
        key: Which part, such as ``"model"`` or ``"data.sample"``; it has a ``_target_``.
        arguments: What only the running program knows.

    Returns:
        The object; with ``_partial_: true`` a callable that still takes arguments.

    Raises:
        ConfigError: A target that is not allowed or not found, an argument it does not take or
            refuses.
    """
    node = OmegaConf.select(config, key)
    if node is None:
        raise ConfigError(f"missing: {key}; a run cannot do without it")
    check_targets(node, key, allowed(config))
    with _mistakes(key, node["_target_"]):
        # Hydra fills in what the configuration says; what only the program knows is handed over as
        # it is.
        factory = Factory(key, node["_target_"], instantiate(node, _convert_="all", _partial_=True))
    return factory if node.get("_partial_") else factory(**arguments)


def takes(config: DictConfig, key: str, argument: str) -> bool:
    """Whether what a part of the configuration names has an argument of that name."""
    target = locate(str(config[key]["_target_"]), key, allowed(config))
    return argument in inspect.signature(target).parameters


@dataclass(frozen=True)
class Factory:
    """Makes what a part of the configuration describes.

    Attributes:
        key: Which part.
        target: Its ``_target_``.
        partial: The class or function with the configured arguments.
    """

    key: str
    target: str
    partial: Any

    @property
    def keywords(self) -> dict[str, Any]:
        """The configured arguments."""
        return dict(self.partial.keywords)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Makes it with further arguments; raises ConfigError where its class refuses them."""
        with _mistakes(self.key, self.target):
            return self.partial(*arguments, **named)


def _is_of_a_library(error: BaseException | None) -> bool:
    """Lightning's are told by the solver, whose arguments they are about."""
    own = type(error).__module__.partition(".")[0]
    return own not in ("builtins", "torch", "scadl_core", "lightning")


@contextmanager
def _mistakes(key: str, target: str) -> Iterator[None]:
    """What a constructor refuses, also with an error of its library's own, is the configuration's
    mistake; an error inside a called function is a defect.
    """
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, HydraException) else error
        if isinstance(cause, ScadlError):
            raise cause from None
        refused = isinstance(cause, (TypeError, ValueError)) or _is_of_a_library(cause)
        if refused and inspect.isclass(pydoc.locate(target)):
            reason = " ".join(str(cause).split())
            raise ConfigError(f"{key}: {target} refused its arguments: {reason}") from error
        raise


def allowed(config: DictConfig) -> list[str]:
    """The packages beyond the trusted ones that this configuration may name: the chosen app and
    ``build.allow``.
    """
    return [find_app(config.app).module, *config.build.allow]


def check_targets(node: Any, key: str, allow: list[str]) -> None:
    """Checks every ``_target_`` below a node: allowed, found, and taking the arguments it is given.

    Args:
        node: A node of the configuration.
        key: Its full key.
        allow: Packages beyond the trusted ones.

    Raises:
        ConfigError: The first that is not as it should be, by its full key.
    """
    for path, target in targets(node, key):
        _check_arguments(path, target, locate(str(target["_target_"]), path, allow))


def targets(node: Any, key: str) -> Iterator[tuple[str, DictConfig]]:
    """All nodes with a ``_target_`` at or below a node, with their full keys."""
    if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
        if "_target_" in node and not OmegaConf.is_missing(node, "_target_"):
            yield key, node
        for name in node:
            if not OmegaConf.is_missing(node, name):
                yield from targets(node[name], f"{key}.{name!s}")
    elif OmegaConf.is_list(node) and not node._is_none() and not node._is_missing():
        for number, item in enumerate(node):
            yield from targets(item, f"{key}[{number}]")


def locate(target: str, key: str, allow: list[str]) -> Any:
    """Imports what a ``_target_`` names, if its package may be named.

    A name can lead out of its package (``torch.os.system``), so the module in which the found
    object was defined counts, not the path to it. Of foreign packages only the parts of a training
    are taken: among their other classes are some that start a process when they are made, and
    their functions load and run files. Of the core, functions other than schedules are not taken.

    Args:
        target: A dotted name.
        key: Where it stands, for the message.
        allow: Packages beyond the trusted ones.
    """
    packages = (*_TRUSTED, *allow)
    if not _within(target, packages):
        raise ConfigError(_refusal(target, key, packages))
    try:
        found = pydoc.locate(target)
    except pydoc.ErrorDuringImport as error:
        raise ConfigError(f"{key}._target_: {target!r} fails on import ({error.value})") from error
    if found is None:
        raise ConfigError(f"{key}._target_: there is no {target!r}")
    home = str(getattr(found, "__module__", ""))
    if not inspect.isclass(found) and not _within(home, (_FUNCTIONS, *allow)):
        raise ConfigError(
            f"{key}._target_: {target!r} is not a class; "
            + _refusal(target, key, (_FUNCTIONS, *allow))
        )
    if not _within(home, packages):
        raise ConfigError(_refusal(f"{home}.{target.rpartition('.')[2]}", key, packages))
    if not _within(home, ("scadl_core", *allow)) and not (
        inspect.isclass(found) and _kinds(found) & _PARTS
    ):
        raise ConfigError(
            f"{key}._target_: {target!r} is no part of a training (network, optimizer, scheduler, "
            "trainer, callback, logger, metric) and is not made from a configuration"
        )
    return found


def _kinds(found: type) -> set[str]:
    """The names of a class and of all it inherits from, with their top-level packages."""
    return {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in found.__mro__}


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _refusal(target: str, key: str, packages: tuple[str, ...]) -> str:
    return (
        f"{key}._target_: {target!r} is outside the packages that a configuration may name "
        f"({', '.join(packages)}); if you trust it add build.allow=[{target.split('.')[0]}]"
    )


def _check_arguments(key: str, node: Mapping[str, Any], target: Any) -> None:
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):  # some classes written in C tell nothing
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in node:
        if name not in parameters and name not in _CONTROLS:
            known = [n for n in parameters if n != "self"]
            raise ConfigError(
                f"unknown key '{key}.{name}'{nearest(str(name), known)} ({node['_target_']})"
            )
