"""Reads the words behind a verb: the app, Hydra overrides, and the few flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.types import Override

from scadl_core.config.apps import App, find_app, find_apps
from scadl_core.config.compose import parse
from scadl_core.errors import ConfigError

# Flags that Hydra answers itself, without running anything.
_HYDRA_FLAGS = (
    "--help",
    "-h",
    "--hydra-help",
    "--info",
    "-i",
    "--cfg",
    "-c",
    "--resolve",
    "--package",
    "-p",
)


@dataclass(frozen=True)
class Words:
    """What was typed behind a verb.

    Attributes:
        app: The pipeline.
        overrides: Hydra overrides.
        multirun: Whether ``-m`` was among the words.
        config_dir: The folder behind ``--config-dir``.
        hydra_flags: Flags for Hydra, each with its value.
    """

    app: App
    overrides: list[str]
    multirun: bool
    config_dir: Path | None
    hydra_flags: list[str]

    @property
    def parsed(self) -> list[Override]:
        """The overrides as Hydra understands them."""
        return parse(self.overrides)


def take_flags(
    words: Sequence[str], known: Mapping[str, str], others: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Takes a verb's own flags out of its words.

    Args:
        words: What was typed.
        known: By flag, what has to follow it (``--out DIR``, ``--out=DIR``); "" for nothing.
        others: Whether further flags stay among the words, for whoever reads them next.

    Returns:
        The other words in their order, and the flags that were there with what follows them.

    Raises:
        ConfigError: An unknown flag, or one without what it needs.
    """
    rest, found = [], {}
    queue = iter(words)
    for word in queue:
        flag, joined, value = word.partition("=")
        if flag in known and bool(known[flag]) >= bool(joined):
            found[flag] = value or (next(queue, "") if known[flag] and not joined else "")
            if known[flag] and not found[flag]:
                raise ConfigError(f"{flag} needs a value: {flag} {known[flag]}")
        elif word.startswith("-") and not others:
            names = ", ".join(f"{it} {what}".rstrip() for it, what in known.items())
            raise ConfigError(f"unknown flag {word!r}; there is: {names}")
        else:
            rest.append(word)
    return rest, found


def read_words(verb: str, words: Sequence[str]) -> Words:
    """Takes the words behind a verb apart.

    Args:
        verb: For messages.
        words: What was typed.

    Raises:
        ConfigError: No app, an unknown app or flag.
    """
    if not words or words[0].startswith("-") or "=" in words[0]:
        raise ConfigError(
            f"which pipeline? scadl {verb} APP ...; there is: {', '.join(find_apps())}"
        )
    overrides, flags = [], []
    multirun, config_dir = False, None
    rest = iter(
        [
            part
            for word in words[1:]
            for part in (word.split("=", 1) if word.startswith("--") else [word])
        ]
    )
    for word in rest:
        if word in ("-m", "--multirun"):
            multirun = True
        elif word in ("--config-dir", "-cd"):
            if not (folder := next(rest, "")):
                raise ConfigError(f"{word} needs a folder: {word} DIR")
            config_dir = Path(folder).expanduser()
        elif word in _HYDRA_FLAGS:
            flags += (
                [word]
                if word in ("--help", "-h", "--hydra-help", "--resolve")
                else [word, next(rest, "all")]
            )
        elif word.startswith("-"):
            raise ConfigError(
                f"unknown flag {word!r}; there is: -m, --config-dir DIR, {', '.join(_HYDRA_FLAGS)}"
            )
        else:
            overrides.append(word)
    return Words(find_app(words[0]), overrides, multirun, config_dir, flags)
