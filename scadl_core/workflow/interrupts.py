"""Stopping on a signal: everything saved, every rank out, exit status 75.

A handler only sets a flag. Ranks agree on it between steps, so one signalled rank stops all of them
at the same step and none is left waiting in a collective. SIGTERM comes from batch systems and
``kill``, SIGUSR2 from Slurm's ``--signal=USR2@120`` (not SIGUSR1, which MPICH and NCCL take for
themselves).
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from scadl_core.comm import World
from scadl_core.errors import ScadlError


class Stopped(ScadlError):
    """The run was asked to stop and has saved its state."""

    exit_status = 75  # EX_TEMPFAIL of sysexits.h: try again later


class Interrupts:
    """A context in which SIGTERM and SIGUSR2 are remembered instead of obeyed.

    Args:
        world: The ranks that stop together.
    """

    signals = (signal.SIGTERM, signal.SIGUSR2)

    def __init__(self, world: World) -> None:
        self.world = world
        self.received: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._remember) for number in self.signals}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pending(self) -> bool:
        """Whether any rank was signalled; all ranks have to ask at the same point."""
        return self.world.any(self.received is not None)

    def check(self, where: str) -> None:
        """Raises on all ranks if any was signalled.

        Args:
            where: How far the run came, for the message.

        Raises:
            Stopped: A signal came.
        """
        if self.pending():
            names = self.world.gather(self.received)
            name = next(n for n in names if n is not None)
            raise Stopped(f"stopped by {name} {where}; everything is saved")

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
