"""Signs of life: a rank that stalls ends the job, and the next run names the rank that died.

A rank that dies is ended by its launcher or missed by the next message; a stopped or hanging one
would let all others wait for hours. So each rank writes a small file again and again, and each
watches that of the next one, in a ring, by its own clock.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from scadl_core.comm.world import World

_INTERVAL_S = 0.25  # survivors are ended by MPI about a second after a rank died
_AT_WORK = 0.1  # of a processor, by which a silent process is told from a stopped one
_WRITES_A_SECOND = 400  # of all ranks together, so that a shared file system is not kept busy


class Sign(NamedTuple):
    """What a file says."""

    rank: int
    step: int
    time: float
    host: str
    process: int


class Heartbeat:
    """A context in which this rank writes how far it is, and misses the next one when that is
    silent.

    Args:
        folder: Of the files, one a rank; made if it is not there.
        world: The ranks. Those whose files cannot be seen from here are not watched.
        stalled_after: Seconds of silence after which a rank is taken for dead: the job ends, with a
            message that names it; None: never.
        log: Where this rank's stack goes when another one has stalled.

    Attributes:
        step: How far this rank is; whoever trains sets it.
    """

    def __init__(
        self,
        folder: Path,
        world: World,
        stalled_after: float | None = 20.0,
        log: IO[str] | None = None,
    ) -> None:
        self.folder, self.world, self.stalled_after, self.log = folder, world, stalled_after, log
        self.seconds = _interval(world.size)
        self.step = 0
        self._next = (world.rank + 1) % world.size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            _file(self.folder, self.world.rank).unlink(missing_ok=True)
            self.folder.rmdir()  # by the last one

    def _beat(self) -> None:
        seen, since, worked, before = None, 0.0, 0.0, time.monotonic()
        while not self._ended.wait(self.seconds):
            self._write()
            now, sign = time.monotonic(), _read(_file(self.folder, self._next))
            # Who was stopped itself, with all others or alone, has not seen what they wrote.
            if sign != seen or now - before > 1 + 4 * self.seconds:
                seen, since, worked = sign, now, _processor_seconds(sign)
            before = now
            if self.stalled_after is None or seen is None or seen.rank == self.world.rank:
                continue
            if now - since > self.stalled_after:
                # A long call of a library that lets no other thread run is no stall.
                if _processor_seconds(seen) - worked > _AT_WORK * (now - since):
                    since, worked = now, _processor_seconds(seen)
                else:
                    self._end(seen)

    def _write(self) -> None:
        own = Sign(self.world.rank, self.step, time.time(), socket.gethostname(), os.getpid())
        path = _file(self.folder, self.world.rank)
        with suppress(OSError):  # a full disk is told by who has something to lose there
            aside = path.with_suffix(".new")  # not synced to disk: a reader waits for no crash
            aside.write_text(json.dumps(own._asdict()))
            aside.replace(path)

    def _end(self, stalled: Sign) -> None:
        """Ends the job: this rank's own thread hangs in a message, where no exception reaches it.

        The stalled one is killed where that is possible, so that the others miss it at once.
        """
        print(
            f"scadl: rank {stalled.rank} (process {stalled.process} on {stalled.host}) has given "
            f"no sign of life for {self.stalled_after:g} s, last at step {stalled.step}; the job "
            "ends here, and resume=auto goes on from the last checkpoint",
            file=sys.stderr,
            flush=True,
        )
        if self.log is not None:
            faulthandler.dump_traceback(self.log)
        if stalled.host == socket.gethostname():
            with suppress(OSError):
                os.kill(stalled.process, signal.SIGKILL)
        os._exit(1)


def last_words(folder: Path) -> str | None:
    """Which rank fell silent first in a run that was not ended by itself.

    Args:
        folder: As of :class:`Heartbeat`.

    Returns:
        For example ``"rank 2 fell silent first, at step 118 (1.0 s before the others)"``; None if
        all ranks came to their end.
    """
    signs = [it for it in map(_read, sorted(folder.glob("rank-*.json"))) if it is not None]
    if not signs:
        return None
    first = min(signs, key=lambda it: it.time)
    gap = max(it.time for it in signs) - first.time
    if len(signs) == 1:
        return f"rank {first.rank} on {first.host} fell silent at step {first.step}"
    if gap < 1.2 * _interval(len(signs)):
        return f"all ranks fell silent at once, at step {first.step}"
    return (
        f"rank {first.rank} on {first.host} fell silent first, at step {first.step} "
        f"({gap:.1f} s before the others)"
    )


def forget(folder: Path) -> None:
    """Removes the files of a run that was not ended by itself."""
    for path in folder.glob("rank-*"):
        path.unlink(missing_ok=True)


def _processor_seconds(sign: Sign | None) -> float:
    """That the process has taken; 0 where that cannot be seen, as on another host."""
    if sign is None or sign.host != socket.gethostname():
        return 0.0
    try:
        fields = Path(f"/proc/{sign.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _interval(ranks: int) -> float:
    return max(_INTERVAL_S, ranks / _WRITES_A_SECOND)


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


def _read(path: Path) -> Sign | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return Sign(
            int(found["rank"]), int(found["step"]), float(found["time"]), str(found["host"]),
            int(found["process"]),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError):
        return None
