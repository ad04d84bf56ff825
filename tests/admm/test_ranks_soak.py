"""Memory of a rank, and what happens when one is killed; processes of their own, so long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scadl_core.comm.heartbeat import last_words
from scadl_core.record.checkpoints import read_checkpoint

MEMORY = str(Path(__file__).with_name("memory.py"))

pytestmark = pytest.mark.soak


def test_four_ranks_train_what_one_has_no_memory_for(mpirun: Callable[..., Any]) -> None:
    def run(count: int, cap_MB: int) -> Any:
        return mpirun(count, str(cap_MB), program=("-m", "mpi4py", MEMORY), timeout=600)

    one, four = run(1, 0), run(4, 0)
    assert (one.status, four.status) == (0, 0), one.err + four.err
    (single,), peaks = map(float, one.out.split()), [float(it) for it in four.out.split()]
    assert max(peaks) <= 1.2 * single / 4, (single, peaks)
    cap_MB = round(single / 2)
    assert run(1, cap_MB).status != 0
    assert run(4, cap_MB).status == 0


def test_a_killed_rank_ends_the_job_and_is_named(workplace: Path, small: tuple[str, ...]) -> None:
    """MPI gives survivors no chance to speak: the next run tells."""
    run = workplace / "run"
    command = [
        Path(sys.executable).parent / "mpirun", "-n", "2", sys.executable, "-m", "scadl_core.cli",
        "train", "climate", "solver=admm", "trainer.max_epochs=500", "trainer.accelerator=cpu",
        *small, f"run.dir={run}",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (workplace / "log").open("w") as log:
        job = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        last = run / "checkpoints" / "last.ckpt"
        deadline = time.monotonic() + 400
        while not last.exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(2)
        victim = _rank(job.pid, 1)
        os.kill(victim, signal.SIGKILL)
        began = time.monotonic()
        assert job.wait(60) != 0
    assert time.monotonic() - began < 30
    assert read_checkpoint(last)["scadl"]["step"] > 0
    words = last_words(run / "heartbeats")
    assert (
        words is not None
        and words.startswith("rank 1 on ")
        and "fell silent first, at step" in words
    )


def _rank(launcher: int, rank: int) -> int:
    """The process of a rank, among all that the launcher started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _descends(int(folder.name), launcher):
            environ = (folder / "environ").read_bytes().split(b"\0")
            if f"PMI_RANK={rank}".encode() in environ:
                return int(folder.name)
    raise AssertionError("no such rank")


def _descends(process: int, ancestor: int) -> bool:
    try:
        while process > 1:
            text = Path(f"/proc/{process}/stat").read_text()
            process = int(text.rpartition(")")[2].split()[1])
            if process == ancestor:
                return True
    except OSError:
        return False
    return False
