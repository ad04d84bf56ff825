"""A run that is killed or told to stop goes on exactly: every test score is the undisturbed run's.

These start real processes, since a signal's effect on launchers, collectives and half-written files
is the point.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
RUN = [
    "loader.batch_size=4",
    "trainer.max_epochs=6",
    "trainer.log_every_n_steps=1",
]
TIMEOUT_S = 600

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, small: Sequence[str]) -> Iterator[Start]:
    """Starts `scadl` on some ranks, in a process group of its own, with one thread a rank."""
    root = tmp_path_factory.mktemp("resume")
    environ = {
        **os.environ,
        "SCADL_DATA": str(root / "data"),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }

    def run(*words: str, ranks: int = 1, launcher: str = "mpirun") -> subprocess.Popen[str]:
        scadl = [sys.executable, "-m", "scadl_core.cli"]
        prefix = {
            "none": scadl,
            "mpirun": [str(BIN / "mpirun"), "-n", str(ranks), *scadl],
            "torchrun": [
                str(BIN / "torchrun"),
                "--nproc-per-node",
                str(ranks),
                "-m",
                "scadl_core.cli",
            ],
        }["none" if ranks == 1 else launcher]
        started = subprocess.Popen(
            [*prefix, "train", "climate", *small, *RUN, *words],
            cwd=root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(started)
        return started

    processes: list[subprocess.Popen[str]] = []
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    yield run
    signal.signal(signal.SIGINT, before)
    for process in processes:
        if process.poll() is None:  # a test failed before it had ended what it started
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(scope="module")
def uninterrupted(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], dict[str, float]]:
    """The test scores of a run that nothing disturbed, by number of ranks."""
    known: dict[int, dict[str, float]] = {}

    def scores(ranks: int) -> dict[str, float]:
        if ranks not in known:
            folder = tmp_path_factory.mktemp("reference") / "run"
            finish(start(f"run.dir={folder}", ranks=ranks))
            known[ranks] = test_scores(folder)
        return known[ranks]

    return scores


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Waits for the end; what was written to standard error."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == status, (
        f"exit {process.returncode}, expected {status}\n{out}\n{err}"
    )
    return err


def test_scores(folder: Path) -> dict[str, float]:
    metrics = json.loads((folder / "metrics.json").read_text())
    scores = {name: value for name, value in metrics.items() if name.startswith("test/")}
    assert "test/iou_mean" in scores
    return scores


test_scores.__test__ = False  # type: ignore[attr-defined]


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Reads standard output up to a line that holds the text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(
        f"the process ended without printing {text!r}: "
        f"{process.stderr.read() if process.stderr else ''}"
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    # mpirun starts its ranks in groups of their own, which end when it does.
    process.communicate(timeout=TIMEOUT_S)


def kill_and_resume(
    start: Start, folder: Path, ranks: int, kills: int, rng: random.Random
) -> dict[str, float]:
    for _ in range(kills):
        process = start(f"run.dir={folder}", "resume=auto", ranks=ranks)
        wait_for(process, "run folder")
        time.sleep(rng.uniform(0.0, 6.0))
        kill(process)
    finish(start(f"run.dir={folder}", "resume=auto", ranks=ranks))
    return test_scores(folder)


@pytest.mark.parametrize(("ranks", "kills"), [(1, 3), (2, 1)])
def test_kill_at_random_moments(
    start: Start,
    uninterrupted: Callable[[int], dict[str, float]],
    tmp_path: Path,
    ranks: int,
    kills: int,
) -> None:
    seed = random.randrange(10**6)
    scores = kill_and_resume(start, tmp_path / "run", ranks, kills, random.Random(seed))
    assert scores == uninterrupted(ranks), f"moments drawn with seed {seed}"


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [1, 2])
def test_ten_kills(
    start: Start, uninterrupted: Callable[[int], dict[str, float]], tmp_path: Path, ranks: int
) -> None:
    for round_ in range(10):
        scores = kill_and_resume(start, tmp_path / str(round_), ranks, 1, random.Random(round_))
        assert scores == uninterrupted(ranks), f"round {round_}"


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """The process ids of the ranks that a launcher started."""
    children = subprocess.run(
        ["ps", "-ewwo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in children.splitlines()[1:]]
    family = {process.pid}
    for _ in range(4):
        family |= {int(pid) for pid, parent, _ in rows if int(parent) in family}
    return sorted(
        int(pid)
        for pid, _, args in rows
        if int(pid) in family
        and "scadl_core.cli train" in args
        and "mpirun" not in args
        and "torchrun" not in args
    )


@pytest.mark.parametrize(
    ("launcher", "number", "status"),
    [
        ("mpirun", signal.SIGTERM, 75),
        ("mpirun", signal.SIGUSR2, 75),
        ("torchrun", signal.SIGTERM, 1),
    ],
)
def test_signal_to_one_of_two_ranks(
    start: Start,
    uninterrupted: Callable[[int], dict[str, float]],
    tmp_path: Path,
    launcher: str,
    number: signal.Signals,
    status: int,
) -> None:
    folder = tmp_path / "run"
    process = start(f"run.dir={folder}", "trainer.max_epochs=400", ranks=2, launcher=launcher)
    wait_for(process, "step 8 ")
    pids = ranks_of(process)
    assert len(pids) == 2
    os.kill(pids[1], number)
    signalled = time.monotonic()
    errors = finish(process, status)
    assert time.monotonic() - signalled < 20
    assert f"stopped by {number.name}" in errors
    assert "everything is saved" in errors
    assert "scadl_core/" not in errors  # no traceback of ours
    assert (folder / "checkpoints" / "last.ckpt").is_file()


def test_sigterm_to_mpirun_and_on(
    start: Start, uninterrupted: Callable[[int], dict[str, float]], tmp_path: Path
) -> None:
    """A batch system signals everybody; the run then goes on inside the epoch where it was "
    "stopped."""
    folder = tmp_path / "run"
    process = start(f"run.dir={folder}", ranks=2)
    wait_for(process, "step 8 ")
    process.terminate()
    assert "stopped by SIGTERM" in finish(process, 75)
    resumed = start(f"run.dir={folder}", "resume=auto", ranks=2)
    wait_for(resumed, "going on from step")
    finish(resumed)
    assert test_scores(folder) == uninterrupted(2)


def strike(
    start: Start,
    folder: Path,
    launcher: str,
    number: signal.Signals,
    rng: random.Random,
) -> tuple[int, str, float]:
    """Sends a signal to one of two ranks at some moment; status, errors, seconds to the end."""
    process = start(
        f"run.dir={folder}", "run.stalled_after=5", "resume=auto", ranks=2, launcher=launcher
    )
    wait_for(process, "step " if rng.random() < 0.7 else "run folder")
    time.sleep(rng.uniform(0.0, 4.0))
    pids = ranks_of(process)
    if len(pids) == 2:
        os.kill(rng.choice(pids), number)
    began = time.monotonic()
    _, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, errors, time.monotonic() - began


STRIKES = [
    ("mpirun", signal.SIGKILL),
    ("mpirun", signal.SIGSTOP),
    ("torchrun", signal.SIGSTOP),
    ("mpirun", signal.SIGTERM),
]


def survive(
    start: Start, folder: Path, launcher: str, number: signal.Signals, seed: int
) -> dict[str, float]:
    """One strike, and the run to its end."""
    status, errors, seconds = strike(start, folder, launcher, number, random.Random(seed))
    assert seconds < 30, f"the job went on for {seconds:.0f} s (seed {seed})\n{errors}"
    assert status != 0 or (folder / "metrics.json").is_file(), errors
    finish(start(f"run.dir={folder}", "resume=auto", ranks=2))
    return test_scores(folder)


@pytest.mark.parametrize(("launcher", "number"), STRIKES[:3])  # the fourth: below
def test_one_of_two_ranks_is_struck(
    start: Start,
    uninterrupted: Callable[[int], dict[str, float]],
    tmp_path: Path,
    launcher: str,
    number: signal.Signals,
) -> None:
    seed = random.randrange(10**6)
    scores = survive(start, tmp_path / "run", launcher, number, seed)
    assert scores == uninterrupted(2), f"moments drawn with seed {seed}"


@pytest.mark.soak
@pytest.mark.parametrize(("launcher", "number"), STRIKES)
def test_fifty_strikes(
    start: Start,
    uninterrupted: Callable[[int], dict[str, float]],
    tmp_path: Path,
    launcher: str,
    number: signal.Signals,
) -> None:
    for seed in range(50):
        scores = survive(start, tmp_path / str(seed), launcher, number, seed)
        assert scores == uninterrupted(2), f"seed {seed}"


def test_the_stalled_rank_and_the_dead_one_are_named(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [f"run.dir={folder}", "trainer.max_epochs=400", "run.stalled_after=3"]
    process = start(*words, ranks=2)
    wait_for(process, "step 8 ")
    stopped = ranks_of(process)[1]
    os.kill(stopped, signal.SIGSTOP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"(process {stopped} on " in errors and "no sign of life for 3 s, last at step" in errors
    log = next(it for it in (folder / "logs").iterdir() if "most recent call" in it.read_text())
    assert "threading.py" in log.read_text()  # the stack of who waited

    process = start(*words, "resume=auto", ranks=2)
    wait_for(process, "before this resumption, rank ")
    wait_for(process, "step 16 ")
    os.kill(ranks_of(process)[0], signal.SIGKILL)
    assert process.communicate(timeout=60) and process.returncode != 0
    process = start(*words, "resume=auto", ranks=2)
    wait_for(process, "before this resumption, ")  # MPI may end all within a beat
    kill(process)


@pytest.mark.soak
def test_bounded_checkpoints_cost_no_accuracy(start: Start, tmp_path: Path) -> None:
    """Exact weights and 1e-3 of the optimizer's state, resumed in the middle; paired by seed."""
    larger = ["data.sample.train_maps=96", "data.sample.test_maps=24", "data.sample.latitudes=64"]
    larger += ["data.sample.longitudes=96", "model.width=8", "trainer.max_epochs=8"]
    differences = []
    for seed in range(5):
        exact, bounded = tmp_path / f"exact{seed}", tmp_path / f"bounded{seed}"
        finish(start(*larger, f"seed={seed}", f"run.dir={exact}"))
        words = [*larger, f"seed={seed}", f"run.dir={bounded}", "trainer.checkpoint_bound=1e-3"]
        process = start(*words)
        wait_for(process, "epoch 4 step")
        process.terminate()
        finish(process, 75)
        resumed = start(*words, "resume=auto")
        wait_for(resumed, "going on from step")
        finish(resumed)
        scores = [test_scores(folder)["test/iou_mean"] for folder in (bounded, exact)]
        differences.append(scores[0] - scores[1])
        print(f"seed {seed}: bounded {scores[0]:.4f}, exact {scores[1]:.4f}")
        sizes = [(it / "checkpoints" / "last.ckpt").stat().st_size for it in (bounded, exact)]
        assert sizes[0] < sizes[1]
    spread = statistics.stdev(differences) / len(differences) ** 0.5
    lower = statistics.mean(differences) - 2.132 * spread  # 95 %, one-sided, 4 degrees of freedom
    assert lower > -0.02, f"differences {differences}, lower bound {lower}"


@pytest.mark.soak
def test_interrupted_by_the_keyboard(start: Start, tmp_path: Path) -> None:
    process = start(f"run.dir={tmp_path / 'run'}", "trainer.max_epochs=400")
    wait_for(process, "step 8 ")
    process.send_signal(signal.SIGINT)
    assert finish(process, 130).endswith(
        "scadl: interrupted; resume=auto goes on from the last checkpoint\n"
    )
