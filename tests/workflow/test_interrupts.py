"""Signals are remembered, agreed upon, and put back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from scadl_core.comm import World
from scadl_core.workflow.interrupts import Interrupts, Stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_is_obeyed_at_the_next_check_only(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts(World()) as interrupts:
        interrupts.check("before")
        assert not interrupts.pending()
        os.kill(os.getpid(), number)
        assert interrupts.pending()
        with pytest.raises(Stopped) as caught:
            interrupts.check("after step 3")
        assert str(caught.value) == f"stopped by {number.name} after step 3; everything is saved"
    assert signal.getsignal(number) == before


def test_handlers_are_put_back_after_an_error() -> None:
    before = [signal.getsignal(number) for number in Interrupts.signals]
    with pytest.raises(RuntimeError), Interrupts(World()):
        raise RuntimeError
    assert [signal.getsignal(number) for number in Interrupts.signals] == before


def test_the_exit_status_is_ex_tempfail() -> None:
    assert Stopped.exit_status == os.EX_TEMPFAIL


def test_one_signalled_rank_stops_all(run_ranks: Callable[..., list[Any]]) -> None:
    def stop() -> str:
        world = World.start()
        with Interrupts(world) as interrupts:
            interrupts.check("before")
            if world.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(Stopped) as caught:
                interrupts.check("after step 9")
        return str(caught.value)

    assert run_ranks(2, stop) == ["stopped by SIGTERM after step 9; everything is saved"] * 2
