"""Signs of life, by which the next run names the rank that died: MPI gives survivors no chance to
speak.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType

_GAP_SECONDS = 0.3  # survivors are ended by MPI about a second after a rank died


class Heartbeat:
    """A context in which this rank writes its iteration, again and again.

    Args:
        folder: Of the files, one a rank; made if it is not there.
        rank: This one.
        seconds: Between two signs.
    """

    def __init__(self, folder: Path, rank: int, seconds: float = 0.25) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.seconds = folder / f"rank-{rank}.json", seconds
        self.iteration = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
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
        self.path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(self.seconds):
            self._write()

    def _write(self) -> None:
        aside = self.path.with_suffix(".new")  # not synced to disk: a reader waits for no crash
        aside.write_text(json.dumps({"iteration": self.iteration, "time": time.time()}))
        aside.replace(self.path)


def last_words(folder: Path) -> str | None:
    """Which rank fell silent first in a run that was not ended by itself.

    Args:
        folder: As of :class:`Heartbeat`.

    Returns:
        For example ``"rank 2 fell silent first, at iteration 118 (1.0 s before the others)"``; None
        if all ranks came to their end.
    """
    beats = {}
    for path in sorted(folder.glob("rank-*.json")):
        try:
            found = json.loads(path.read_text())
            beats[int(path.stem.partition("-")[2])] = (float(found["time"]), found["iteration"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
    if not beats:
        return None
    rank, (silent, iteration) = min(beats.items(), key=lambda it: it[1])
    gap = max(at for at, _ in beats.values()) - silent
    if len(beats) > 1 and gap < _GAP_SECONDS:
        return f"all ranks fell silent at once, at iteration {iteration}"
    return (
        f"rank {rank} fell silent first, at iteration {iteration} ({gap:.1f} s before the others)"
    )
