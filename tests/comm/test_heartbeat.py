"""Whoever falls silent is named: the dead by the next run, the stalled by those who wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scadl_core.comm import World
from scadl_core.comm.heartbeat import Heartbeat, forget, last_words

RANK = """
import sys, time
from pathlib import Path
from scadl_core.comm import World
from scadl_core.comm.heartbeat import Heartbeat
rank, seconds = int(sys.argv[2]), float(sys.argv[3])
with Heartbeat(Path(sys.argv[1]), World(rank, 2), 2.0) as heart:
    heart.step = 7
    time.sleep(seconds)
    if len(sys.argv) > 4:
        began = time.monotonic()
        sum(range(2 * 10**8))  # lets no other thread run
        print(time.monotonic() - began)
print("ended")
"""


def start(folder: Path, rank: int, seconds: float, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", RANK, str(folder), str(rank), str(seconds), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def written(folder: Path, count: int, step: int = 7) -> None:
    """Waits until so many ranks have told that they are at the step."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        files = list(folder.glob("rank-*.json"))
        if len(files) == count and all(json.loads(f.read_text())["step"] == step for f in files):
            return
        time.sleep(0.05)
    pytest.fail("no signs of life")


def sign(rank: int, step: int, at: float) -> str:
    return json.dumps({"rank": rank, "step": step, "time": at, "host": "node7", "process": 1})


def test_the_rank_that_fell_silent_first_is_named(tmp_path: Path) -> None:
    assert last_words(tmp_path) is None
    (tmp_path / "rank-0.json").write_text(sign(0, 118, 101.4))
    assert last_words(tmp_path) == "rank 0 on node7 fell silent at step 118"
    (tmp_path / "rank-1.json").write_text(sign(1, 118, 101.3))
    assert last_words(tmp_path) == "all ranks fell silent at once, at step 118"
    (tmp_path / "rank-2.json").write_text(sign(2, 117, 100.2))
    expected = "rank 2 on node7 fell silent first, at step 117 (1.2 s before the others)"
    assert last_words(tmp_path) == expected
    (tmp_path / "rank-3.json").write_text("{cut")  # by a full disk
    assert last_words(tmp_path) == expected
    forget(tmp_path)
    assert last_words(tmp_path) is None


def test_a_run_that_ends_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "heartbeats"
    with pytest.raises(ValueError), Heartbeat(folder, World()) as heart:
        heart.step = 200
        written(folder, 1, 200)
        raise ValueError
    assert not folder.exists()


def test_a_stalled_rank_is_named_and_killed(tmp_path: Path) -> None:
    ranks = [start(tmp_path, rank, 60) for rank in range(2)]
    try:
        written(tmp_path, 2)
        os.kill(ranks[1].pid, signal.SIGSTOP)
        began = time.monotonic()
        _, errors = ranks[0].communicate(timeout=30)
        assert ranks[0].returncode == 1
        assert 1.5 < time.monotonic() - began < 20
        assert f"rank 1 (process {ranks[1].pid} on " in errors
        assert "no sign of life for 2 s, last at step 7" in errors
        assert ranks[1].wait(10) == -signal.SIGKILL
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_who_was_stopped_with_all_others_misses_nobody(tmp_path: Path) -> None:
    """As a laptop's lid does, or a batch system that suspends a job."""
    ranks = [start(tmp_path, rank, 6) for rank in range(2)]
    try:
        written(tmp_path, 2)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for rank in ranks:
                os.kill(rank.pid, number)
            time.sleep(3)
        assert [rank.communicate(timeout=30)[0] for rank in ranks] == ["ended\n"] * 2
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_who_has_ended_is_not_missed(tmp_path: Path) -> None:
    long, short = start(tmp_path, 0, 6), start(tmp_path, 1, 0.5)
    assert [it.communicate(timeout=30)[0] for it in (short, long)] == ["ended\n"] * 2


def test_who_works_without_a_word_is_not_missed(tmp_path: Path) -> None:
    """As in a partition of a large graph, which is one call of a library."""
    waiting, working = start(tmp_path, 0, 9), start(tmp_path, 1, 0.5, "works")
    found = [it.communicate(timeout=60)[0].split() for it in (working, waiting)]
    assert [it[-1] for it in found] == ["ended"] * 2
    assert float(found[0][0]) > 2.5  # longer than after what it would have been missed
