"""Are the keys and values that a person typed the right ones? If not, which were meant?"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from scadl_core.config.build import allowed, check_targets
from scadl_core.errors import ConfigError, nearest

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping",
}
_CHOICES = {"resume": ("never", "auto"), "split": ("train", "val", "test", "all")}


def check_values(overrides: Sequence[Override], base: DictConfig, config: DictConfig) -> None:
    """Checks what the overrides did: types as before, and every ``_target_`` takes what it is
    given.

    Args:
        overrides: The parsed overrides that set values.
        base: The configuration without them.
        config: The configuration with them.

    Raises:
        ConfigError: The first mistake, by its full key.
    """
    with one_message():
        OmegaConf.resolve(resolved := config.copy())
        for override in overrides:
            key = override.key_or_group
            if key and not override.is_delete() and not is_hydras(override):
                _check_type(key, OmegaConf.select(base, key), OmegaConf.select(resolved, key))
                _check_home(override, base, config)
        for key, known in _CHOICES.items():
            if (value := OmegaConf.select(resolved, key)) not in known:
                raise ConfigError(f"{key}={value}: no such choice{nearest(str(value), known)}")
        for name in resolved:
            if not OmegaConf.is_missing(resolved, name):
                check_targets(resolved[name], str(name), allowed(config))


def check_key(override: Override, config: DictConfig) -> None:
    """Refuses a key that does not exist, naming the closest one.

    Args:
        override: A parsed override that sets or deletes a value.
        config: Where the key has to exist, unless it is added with ``+``.

    Raises:
        ConfigError: There is no such key.
    """
    if override.is_add() or override.is_force_add():
        return
    if override.is_delete() and override.key_or_group in {*config} - {"schedule"}:
        raise ConfigError(f"~{override.key_or_group}: a run cannot do without this part")
    keys = [key for key in leaves(config) if not key.rpartition(".")[2].startswith("_")]
    wanted = [override.key_or_group]
    value, whole = override.value(), OmegaConf.select(config, override.key_or_group)
    if isinstance(value, dict) and isinstance(whole, DictConfig):
        wanted += leaves(DictConfig(value), override.key_or_group + ".")
    for key in wanted:
        if key not in leaves(config):
            raise ConfigError(f"unknown key {key!r}{_closest(key, keys)}")


def leaves(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """The full keys of a configuration, inner nodes included."""
    for name in config:
        key = f"{prefix}{name!s}"
        yield key
        node = config._get_node(name)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
            yield from leaves(node, key + ".")


def is_hydras(override: Override) -> bool:
    """Whether an override is for Hydra itself (``hydra.sweep.dir=...``)."""
    return override.key_or_group.split(".")[0].split("/")[0] == "hydra"


def _closest(key: str, keys: Sequence[str]) -> str:
    """The end of a message about an unknown key: looks among its siblings, then over all by last
    word, then by all.
    """
    parent, _, last = key.rpartition(".")
    siblings = [k for k in keys if k.rpartition(".")[0] == parent]
    for known in (siblings, keys):
        full = {k.rpartition(".")[2]: k for k in reversed(known)}
        close = difflib.get_close_matches(last, full, n=1, cutoff=0.6)
        if close:
            return f"; did you mean {full[close[0]]!r}?"
    return nearest(last, [k.rpartition(".")[2] for k in siblings] or keys)


_PATHS = ("data.path", "input")  # one, or a list of them


def _check_type(key: str, default: Any, value: Any) -> None:
    if default is None:
        return
    kind = next(k for k in (bool, int, float, dict, list, str) if isinstance(_plain(default), k))
    value = _plain(value)
    right = {
        bool: isinstance(value, bool),
        int: isinstance(value, int) and not isinstance(value, bool),
        float: isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value),
        dict: isinstance(value, dict) or value is None,
        list: isinstance(value, list) or (key in _PATHS and isinstance(value, str)),
        str: not isinstance(value, dict),
    }[kind]
    if not right:
        raise ConfigError(
            f"{key}: expected {_WORDS[kind]} (such as {_plain(default)!r}), got {value!r}"
        )


def _check_home(override: Override, base: DictConfig, config: DictConfig) -> None:
    """A key added with ``+`` needs somebody who reads it: an argument of a ``_target_``, or an
    object of its own.
    """
    key = override.key_or_group
    if not (override.is_add() or override.is_force_add()) or key in leaves(base):
        return
    parts = key.split(".")
    homes = [OmegaConf.select(config, ".".join(parts[:n])) for n in range(1, len(parts) + 1)]
    if not any(isinstance(home, DictConfig) and "_target_" in home for home in homes):
        raise ConfigError(
            f"unknown key '+{key}': nothing reads it{_closest(key, list(leaves(base)))}"
        )


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


@contextmanager
def one_message() -> Iterator[None]:
    """What Hydra and OmegaConf refuse becomes one ConfigError of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
