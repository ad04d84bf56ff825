"""Errors a person can act on.

Every message names the file, the variable or the key, what was expected, and what to do next. The
command line prints the message alone and exits with status 2; a library user catches
:class:`ScadlError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ScadlError(Exception):
    """A mistake its reader can mend.

    The message is complete: it is shown without a traceback.

    Attributes:
        local: Whether one rank of several met it alone, so that it has to be shown by that rank.
        exit_status: What the command line ends with.
    """

    local = False
    exit_status = 2


class ConfigError(ScadlError):
    """A configuration key, value or choice that does not exist or does not fit."""


class DataError(ScadlError):
    """A file or variable that is missing, broken, or not what the configuration says it is."""


class RunError(ScadlError):
    """A run folder or checkpoint that cannot be used as asked."""


class PlaceError(ScadlError):
    """A file or folder that cannot be written: it is not allowed, or the disk is full."""

    local = True


class ExhaustedError(ScadlError):
    """More memory is needed than the machine has."""

    local = True


class LaunchError(ScadlError):
    """Processes that were started in a way that cannot work."""


class ActivationError(ScadlError):
    """Memory settings that cannot be used, or a place where saved tensors cannot be compressed."""


class CodecError(ScadlError):
    """An array or a bound that the codec does not take."""


class StreamError(CodecError):
    """Compressed bytes that are damaged, cut off, or no stream of ours."""


class NewerStreamError(StreamError):
    """Compressed bytes of a later version of the format."""


def check_whole(key: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raises ConfigError for what is no whole number within these limits.

    Args:
        key: In the configuration.
        value: What was asked for.
        least: That it may be.
        most: That it may be; None: whatever fits into memory.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        limits = f"from {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{key}: expected a whole number {limits}, got {value!r}")


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known names, else the whole list.

    Args:
        word: What was asked for; what is no text is close to nothing.
        known: What there is.

    Returns:
        For example ``"; did you mean 'TMQ'?"`` or ``"; there is: PSL, TMQ"``.
    """
    names = sorted(set(known))
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(str(word).casefold(), folded, n=3, cutoff=0.6)
    if close:
        return "; did you mean " + " or ".join(repr(folded[name]) for name in close) + "?"
    if len(names) > 12:
        return f"; there are {len(names)}, such as {', '.join(names[:6])}"
    return "; there is: " + ", ".join(names) if names else "; there is none"
