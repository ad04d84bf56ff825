"""Several chunks at once: kernels leave the interpreter's lock, so plain threads do.

Not numba's own: its default layer ends the process when two threads call it, as autograd's do, and
another refuses to work behind a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from scadl_core.errors import CodecError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Pool:
    """The threads of this process, started at their first use."""

    def __init__(self) -> None:
        self.size = _default()
        self.executor: ThreadPoolExecutor | None = None
        self.lock = threading.Lock()

    def resize(self, size: int) -> None:
        with self.lock:
            if self.executor is not None and size != self.size:
                self.executor.shutdown(wait=True)
                self.executor = None
            self.size = size

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        with self.lock:
            if self.executor is None:
                self.executor = ThreadPoolExecutor(self.size, "scadl-codec")
            executor = self.executor
        return list(executor.map(function, items))


def _default() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else len(os.sched_getaffinity(0))


_pool = _Pool()


def _after_fork() -> None:
    global _pool
    size = _pool.size
    _pool = _Pool()
    _pool.size = size


os.register_at_fork(after_in_child=_after_fork)


def get_num_threads() -> int:
    """How many threads the codec uses: ``OMP_NUM_THREADS``, else the processors of this process."""
    return _pool.size


def set_num_threads(count: int) -> None:
    """Sets how many threads the codec uses.

    Args:
        count: At least 1.

    Raises:
        CodecError: It is less.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise CodecError(f"set_num_threads: expected a whole number of at least 1, got {count!r}")
    _pool.resize(count)


def run(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Calls a function that leaves the interpreter's lock for every item.

    Args:
        function: What to do.
        items: For what; a single one is done by the calling thread.

    Returns:
        The results in order.
    """
    listed = list(items)
    if len(listed) <= 1 or _pool.size == 1:
        return [function(item) for item in listed]
    return _pool.map(function, listed)
