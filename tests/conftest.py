"""What several tests need: the command in process, a run of seconds, ranks."""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from scadl_core.cli import main
from scadl_core.comm import World

# A first call compiles or loads, on machines that others use as well: time is no test.
settings.register_profile("scadl", deadline=None)
settings.load_profile("scadl")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TINY = (
    "data.sample.train_maps=12",
    "data.sample.test_maps=4",
    "data.sample.latitudes=32",
    "data.sample.longitudes=48",
    "model.width=4",
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "loader.batch_size=4",
    "figures.num_samples=0",
)


# For processes of their own: more maps, so that there are steps to stop at and to compare.
SMALL = (
    "data.sample.train_maps=24",
    "data.sample.test_maps=5",
    "data.sample.latitudes=32",
    "data.sample.longitudes=48",
    "model.width=4",
)


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real files in the domains' formats, kept beside the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"the real files are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def sample_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sample data sets are written, once for all tests."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_data: Path) -> Path:
    """An empty working directory, with runs/ in it as the place of run folders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCADL_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("SCADL_DATA", str(sample_data))
    return tmp_path


@pytest.fixture
def scadl(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """The command in this process, in an empty working directory: ``scadl("train", "climate")``."""

    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["scadl", *words])
        capsys.readouterr()
        status = main(words)
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Overrides that make a training of the climate pipeline one of seconds."""
    return TINY


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    """Overrides of a small climate training that has steps enough to be stopped at."""
    return SMALL


@pytest.fixture(scope="session")
def run_of(
    tmp_path_factory: pytest.TempPathFactory, sample_data: Path
) -> Callable[[str, Sequence[str]], Path]:
    """Trains a pipeline with some words; the folder of the finished run."""

    def run(app: str, words: Sequence[str]) -> Path:
        folder = tmp_path_factory.mktemp(app) / "run"
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
            patch.setenv("SCADL_DATA", str(sample_data))
            patch.setenv("SCADL_RUNS", str(folder.parent / "runs"))
            patch.setattr(sys, "argv", ["scadl", "train", app, *words, f"run.dir={folder}"])
            assert main(sys.argv[1:]) == 0
        gc.collect()  # the lock on the folder is given back
        return folder

    return run


@pytest.fixture(scope="session")
def trained(run_of: Callable[[str, Sequence[str]], Path]) -> Path:
    """The folder of a finished tiny run. Tests may add files to it, and change none."""
    return run_of("climate", TINY)


@pytest.fixture(scope="session")
def sample_folder(trained: Path, sample_data: Path) -> Path:
    """The sample of the finished tiny run: train/ and test/ with a map a file."""
    return next((sample_data / "climate").glob("sample-12-4-32x48-*"))


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., list[Any]]:
    """Calls a function in N processes that see the environment which torchrun makes.

    ``run_ranks(2, function)`` gives the two results in the order of ranks. Variables given as
    ``environment`` are set besides, those that are None removed. Every process must come to an end
    within ``timeout`` seconds.
    """
    return _run_ranks


def _run_ranks(
    count: int,
    function: Callable[[], Any],
    environment: dict[str, str | None] | None = None,
    timeout: float = 90,
) -> list[Any]:
    context = multiprocessing.get_context("fork")  # the function may be a closure, torch is there
    launched = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}
    launched |= {"MASTER_PORT": _free_port(), "TORCHELASTIC_RUN_ID": "test"}
    pipes, processes = [], []
    for rank in range(count):
        ours, theirs = context.Pipe(duplex=False)
        own = launched | {"RANK": rank, "LOCAL_RANK": rank} | (environment or {})
        process = context.Process(target=_be_rank, args=(own, function, theirs))
        with warnings.catch_warnings():  # Python 3.12 warns of threads; ranks use none of them
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    answers = _answers(pipes, time.monotonic() + timeout)
    for process in processes:
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
    trouble = [text for _, text in filter(lambda answer: not answer[0], answers)]
    assert not trouble, "\n".join(trouble)
    assert [process.exitcode for process in processes] == [0] * count
    return [value for _, value in answers]


def _be_rank(environment: dict[str, Any], function: Callable[[], Any], pipe: Any) -> None:
    for name, value in environment.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: str(value)})
    World.leave()  # the world of the tests' own process
    try:
        pipe.send((True, function()))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    World.leave()


def _answers(pipes: list[Any], deadline: float) -> list[tuple[bool, Any]]:
    answers: list[tuple[bool, Any]] = []
    for rank, pipe in enumerate(pipes):
        try:
            there = pipe.poll(max(0.0, deadline - time.monotonic()))
            answers.append(pipe.recv() if there else (False, f"rank {rank} did not answer"))
        except EOFError:
            answers.append((False, f"rank {rank} died"))
    return answers


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def mpirun(workplace: Path) -> Iterator[Callable[..., Outcome]]:
    """``mpirun -n N python`` as a subprocess; by default ``-m scadl_core.cli``, then the words."""
    launcher = Path(sys.executable).parent / "mpirun"

    def run(
        count: int,
        *words: str,
        program: tuple[str, ...] = ("-m", "scadl_core.cli"),
        environment: dict[str, str] | None = None,
        timeout: float = 240,
    ) -> Outcome:
        done = subprocess.run(
            [launcher, "-n", str(count), sys.executable, *program, *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    yield run
