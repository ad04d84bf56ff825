"""``logs/rank-N.log``: what one rank of several says, where a terminal shows one line of all."""

from __future__ import annotations

import faulthandler
import logging
import os
import shlex
import socket
import sys
import traceback
import warnings
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from scadl_core.comm import World


class RankLog:
    """A context in which warnings, messages of libraries, an error with its traceback and the stack
    of a crash are also written to a file of this rank. A resumed run goes on in the same file.

    Args:
        folder: Of the files; made if it is not there.
        world: The ranks.

    Attributes:
        file: Open for writing within the context.
    """

    file: IO[str]

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world

    def __enter__(self) -> RankLog:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"rank-{self.world.rank}.log"
        self.file = path.open("a", buffering=1, encoding="utf-8")
        self._handler = logging.StreamHandler(self.file)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        root = logging.getLogger()
        # With a handler of its own the root no longer shows what would have been shown without.
        self._shown = [] if root.handlers or not logging.lastResort else [logging.lastResort]
        for handler in (self._handler, *self._shown):
            root.addHandler(handler)
        self._show: Any = warnings.showwarning
        warnings.showwarning = self._warn
        self._catches = not faulthandler.is_enabled()
        if self._catches:
            faulthandler.enable(self.file)
        self.say(
            f"rank {self.world.rank} of {self.world.size}, process {os.getpid()} on "
            f"{socket.gethostname()}: {shlex.join(sys.argv)}"
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.say("".join(traceback.format_exception(error)).rstrip())
        if self._catches:
            faulthandler.disable()
        warnings.showwarning = self._show
        for handler in (self._handler, *self._shown):
            logging.getLogger().removeHandler(handler)
        self.file.close()

    def say(self, text: str) -> None:
        """Writes a message with the time."""
        record = logging.LogRecord("scadl", logging.INFO, "", 0, text, None, None)
        self._handler.emit(record)

    def _warn(self, message: Any, category: Any, filename: str, lineno: int, *rest: Any,
              **named: Any) -> None:  # fmt: skip
        self.say(f"{category.__name__}: {message} ({filename}:{lineno})")
        self._show(message, category, filename, lineno, *rest, **named)
