"""The same bytes from any number of threads, from several at once, and behind a fork."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from scadl_core.compress import (
    Absolute,
    decode,
    encode,
    get_num_threads,
    set_num_threads,
    to_bytes,
)
from scadl_core.errors import CodecError

X = np.cumsum(np.random.default_rng(0).standard_normal(700_000)).astype(np.float32)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = get_num_threads()
    yield
    set_num_threads(before)


def stream() -> bytes:
    return to_bytes(encode(X, Absolute(0.1)))


def test_any_number_of_threads() -> None:
    set_num_threads(1)
    alone = stream()
    set_num_threads(3)
    assert stream() == alone
    assert np.array_equal(decode(encode(X, Absolute(0.1))), decode(encode(X, Absolute(0.1))))


def test_several_callers_at_once() -> None:
    set_num_threads(2)
    expected, found = stream(), []
    callers = [threading.Thread(target=lambda: found.append(stream())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [expected] * 4


def _child(queue: multiprocessing.Queue[bytes]) -> None:
    queue.put(stream())


def test_behind_a_fork() -> None:
    set_num_threads(2)
    expected = stream()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_mistakes(count: object) -> None:
    with pytest.raises(CodecError, match="at least 1"):
        set_num_threads(count)  # type: ignore[arg-type]
