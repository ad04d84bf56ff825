"""A function called ahead of time: once for each number, in another thread; not after a fork."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import Future

import pytest

from apps.hep.ahead import Ahead


def test_what_was_begun_is_taken_once() -> None:
    called: list[tuple[int, str]] = []

    def square(number: int) -> int:
        called.append((number, threading.current_thread().name))
        return number**2

    ahead = Ahead(square)
    for number in range(4):
        ahead.begin(number + 1)
        ahead.begin(number + 1)
        assert ahead(number) == number**2
    assert ahead(4) == 16
    assert sorted(number for number, _ in called) == [0, 1, 2, 3, 4]
    assert {name.startswith("ahead") for number, name in called if number} == {True}
    assert ahead(3) == 9
    assert len(called) == 6, "what was taken is not kept"


def test_a_mistake_is_raised_where_it_is_asked_for() -> None:
    ahead = Ahead(lambda number: 1 // number)
    ahead.begin(0)
    ahead.begin(1)
    assert ahead(1) == 1
    with pytest.raises(ZeroDivisionError):
        ahead(0)


def test_another_process_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has the futures, and no thread that would finish them."""
    ahead = Ahead(abs)
    ahead._coming[-2] = Future()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert ahead(-2) == 2
    ahead.begin(-2)
    assert ahead(-2) == 2
    assert pickle.loads(pickle.dumps(ahead))(-3) == 3
