"""What comes next is made in a thread, while the caller is busy with what it has."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class Ahead(Generic[Made]):
    """A function of a number, called ahead of time.

    Args:
        function: What to call, in one thread beside the caller's.
    """

    def __init__(self, function: Callable[[int], Made]) -> None:
        self._function = function
        self.forget()

    def begin(self, number: int) -> None:
        """Begins with what will be asked for later."""
        if self._process != os.getpid():  # a fork has no threads
            self.forget()
        if number not in self._coming:
            self._pool = self._pool or ThreadPoolExecutor(1, "ahead")
            self._coming[number] = self._pool.submit(self._function, number)

    def __call__(self, number: int) -> Made:
        """What the function gives."""
        known = self._coming.pop(number, None) if self._process == os.getpid() else None
        return self._function(number) if known is None else known.result()

    def forget(self) -> None:
        """Gives up what was never asked for."""
        for future in getattr(self, "_coming", {}).values():
            future.cancel()
        self._coming: dict[int, Future[Made]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def __reduce__(self) -> Any:
        """Another process begins anew."""
        return type(self), (self._function,)
