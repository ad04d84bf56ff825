"""What machines and people do to a run, in every pipeline: it is done, or one message and exit 2.

Nothing is left half written, nothing is run that a file names, and what was there stays as it was.
Kills at random moments: test_resume.py. Damaged data: test_hostile.py.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from scadl_core.cli import main
from scadl_core.cli.contract import TINY, Outcome, apps_in, call, done
from scadl_core.comm import World
from scadl_core.record.runfolder import RunFolder
from scadl_core.workflow.pipeline import make_source, restore_task
from scadl_core.workflow.task import Task
from tests.hostile import Fate, aside, damaged, fault, in_child

APPS = apps_in(Path(__file__).resolve().parents[1])
FLIPS, MANY_FLIPS = 10, 200
# Bytes that a file may have: too few for the configuration, the checkpoint, the report.
LIMITS = (200, 20_000, 100_000)


# What the core does is the same in all; the others are part of the long tests.
@pytest.fixture(
    scope="module",
    params=[it if it == "climate" else pytest.param(it, marks=pytest.mark.soak) for it in APPS],
)
def app(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(app: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp(app)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SCADL_DATA", str(folder / "data"))
        patch.setenv("SCADL_RUNS", str(folder / "runs"))
        yield folder


@pytest.fixture(scope="module")
def run(app: str, place: Path) -> Path:
    """A finished training; what a test damages is a copy."""
    done("train", app, *TINY, "run.dir=run")
    return place / "run"


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def refused(outcome: Outcome | Fate, *named: str) -> None:
    status, out, err = outcome
    assert (status, "Traceback" in out + err) == (2, False), outcome
    assert err.startswith("scadl: "), err
    assert err.count("\n") == 1, err
    for word in named:
        assert word in err


def train_words(app: str, folder: Path) -> list[str]:
    return ["train", app, *TINY, f"run.dir={folder}"]


def limited(size: int, words: list[str]) -> int:
    """The command in a process whose files may have so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return main(words)


@pytest.mark.parametrize("size", [LIMITS[1], *(pytest.param(it, marks=pytest.mark.soak)
                                               for it in (LIMITS[0], LIMITS[2]))])  # fmt: skip
def test_a_file_that_can_grow_no_further(app: str, run: Path, tmp_path: Path, size: int) -> None:
    """The run is not there, or is taken up again when there is space."""
    folder = tmp_path / "new"
    fate = in_child(partial(limited, size, train_words(app, folder)))
    refused(fate, "free some space")
    assert not RunFolder(folder).is_complete
    assert not {it.name for it in aside(tmp_path)} - {".lock"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system in memory, with some options."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("kilobytes", [64, *(pytest.param(it, marks=pytest.mark.soak)
                                             for it in (8, 200, 400))])  # fmt: skip
def test_a_full_disk(
    app: str, run: Path, small_disk: Callable[[str], Path], kilobytes: int
) -> None:
    disk = small_disk(f"size={kilobytes}k")
    refused(in_child(partial(main, train_words(app, disk / "run"))), "No space left", "free some")
    assert not RunFolder(disk / "run").is_complete
    assert not {it.name for it in aside(disk)} - {".lock"}
    (disk / "filler").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 4096)))
    example = make_source(RunFolder(run).load_config(), World()).example()
    inputs = "[" + ", ".join(f"'{it}'" for it in example) + "]"
    words = ["predict", app, f"run.dir={run}", f"input={inputs}", f"output={disk / 'out'}"]
    refused(in_child(partial(main, words)), "No space left")
    words = ["export", app, f"run.dir={run}", "format=pt2", f"output={disk / 'model.pt2'}"]
    refused(in_child(partial(main, words)), "No space left")
    assert {it.name for it in disk.iterdir()} <= {"run", "filler"}


def test_a_read_only_folder(app: str, run: Path, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("ro")
    refused(call(*train_words(app, disk / "run")), str(disk), "Read-only file system")
    data = RunFolder(run).load_config().data.path
    words = ("check", app, "debug=tiny", f"data.path={data}", f"output={disk / 'page.yaml'}")
    refused(call(*words), str(disk), "Read-only file system")
    words = ("evaluate", app, f"run.dir={run}", f"output={disk / 'scores.json'}")
    refused(call(*words), str(disk), "Read-only file system")


def restored(copy: Path, app: str) -> int:
    """What predict, evaluate and export begin with."""
    folder = RunFolder(copy)
    return call_of(lambda: restore_task(
        folder.load_config(), folder.load_checkpoint("best", app), World()))  # fmt: skip


def call_of(function: Callable[[], Any]) -> int:
    """A function in the place of a verb: what leaves it becomes messages and a status."""
    from scadl_core.cli import verbs

    def verb(words: list[str]) -> int:
        function()
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verbs, "list_", verb)
        return main(["list"])


def flip_checkpoint(app: str, copy: Path, numbers: range) -> list[str]:
    path = copy / "checkpoints" / "best.ckpt"
    content, faults = path.read_bytes(), []
    for number in numbers:
        how, data = damaged(content, np.random.default_rng(number))
        path.write_bytes(data)
        wrong = fault(in_child(partial(restored, copy, app)), copy, aside(copy))
        faults += [f"{number} ({how}): {wrong}"] if wrong else []
    return faults


def test_a_corrupt_checkpoint(app: str, copy: Path) -> None:
    assert flip_checkpoint(app, copy, range(FLIPS)) == []
    path = copy / "checkpoints" / "best.ckpt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(call("evaluate", app, f"run.dir={copy}"), "best.ckpt", "broken")
    (copy / "metrics.json").unlink()
    last = copy / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])
    refused(call("train", app, *TINY, f"run.dir={copy}", "resume=auto"), "last.ckpt", "broken")


@pytest.mark.soak
def test_many_corrupt_checkpoints(app: str, copy: Path) -> None:
    assert flip_checkpoint(app, copy, range(FLIPS, MANY_FLIPS)) == []


def test_corrupt_pages_of_a_run(app: str, run: Path, copy: Path) -> None:
    """Every file that is read again, cut off and with other bytes."""
    for name in ("config.yaml", "provenance.json", "metrics.json"):
        content = (run / name).read_bytes()
        for number, data in enumerate((b"", content[: len(content) // 2], b"\xff\x00" + content)):
            (copy / name).write_bytes(data)
            verb = ("rerun", str(copy)) if name != "config.yaml" else (
                "evaluate", app, f"run.dir={copy}")  # fmt: skip
            outcome = call(*verb)
            assert outcome.status == 2, (name, number, outcome)
            refused(outcome, name)
        (copy / name).write_bytes(content)


def test_a_corrupt_cache_is_computed_anew(app: str, place: Path, run: Path) -> None:
    """Statistics that are kept from run to run, cut off, emptied, altered: the same facts."""
    kept = sorted((place / "data").rglob("statistics/*.json"))
    assert kept or app == "graphs"  # which keeps none
    folder = RunFolder(run)
    facts = folder.load_checkpoint("best", app)["scadl"]["facts"]
    for way in range(3):
        for file in kept:
            content = file.read_bytes()
            at = next(n for n, it in enumerate(content) if it in b"123456789" and n > 48)
            altered = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            file.write_bytes((content[: len(content) // 2], b"{}", altered)[way])
        assert make_source(folder.load_config(), World()).facts() == facts


def test_a_second_run_in_one_folder(app: str, run: Path, tmp_path: Path) -> None:
    """While the first is at work, and when it is done."""
    first = RunFolder(tmp_path / "new")
    config = RunFolder(run).load_config()
    first.open(config, resume=False)
    try:
        refused(call(*train_words(app, first.path)), "in use by another process")
    finally:
        first.close()
    assert not first.path.exists()
    before = {it: it.stat().st_mtime_ns for it in run.rglob("*")}
    refused(call(*train_words(app, run)), "already holds a run")
    assert before == {it: it.stat().st_mtime_ns for it in run.rglob("*")}


@pytest.mark.soak
def test_two_runs_at_once(app: str, run: Path, place: Path, tmp_path: Path) -> None:
    """Of two that are started together one is done; they write the sample set together, too."""
    shutil.rmtree(place / "data")

    def both() -> int:
        child = os.fork()
        status = main(train_words(app, tmp_path / "new"))
        if child == 0:
            os._exit(status)
        other = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return 0 if sorted((status, other)) == [0, 2] else 1

    fate = in_child(both, 300)
    assert fate.status == 0, fate
    assert fate.err.count("scadl: ") == fate.err.count("\n") == 1
    assert RunFolder(tmp_path / "new").is_complete


@pytest.mark.parametrize("of", ["torch", "numpy"])
def test_out_of_memory(
    app: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """The allocators' own errors, in the first step."""

    def greedy(*_: Any) -> None:
        torch.empty(2**52) if of == "torch" else np.empty(2**52)

    monkeypatch.setattr(Task, "on_train_batch_start", greedy)
    refused(call(*train_words(app, tmp_path / "new")), "out of memory", "loader.batch_size")
    assert not RunFolder(tmp_path / "new").is_complete


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("model._target_", "os.system"),
        ("data._target_", "subprocess.Popen"),
        ("task.loss._target_", "torch.os.system"),
        ("predict._target_", "builtins.eval"),
        ("trainer.logger._target_", "shutil.rmtree"),
    ],
)
def test_a_stored_configuration_runs_nothing(
    app: str, copy: Path, tmp_path: Path, key: str, target: str
) -> None:
    """Not with an argument that would show, and not where the folder says that it is trusted."""
    config = OmegaConf.load(copy / "config.yaml")
    for name, value in {key: target, key.replace("_target_", "_args_"): [f"touch {tmp_path}/it"],
                        "build.allow": [target.partition(".")[0]]}.items():  # fmt: skip
        OmegaConf.update(config, name, value, force_add=True)
    (copy / "config.yaml").write_text(OmegaConf.to_yaml(config))
    refused(call("rerun", str(copy)), "_target_", target.rpartition(".")[2])
    if key.split(".")[0] != "trainer":
        outcome = call("predict", app, f"run.dir={copy}", f"input={tmp_path}", "checkpoint=best")
        refused(outcome)
    assert {it.name for it in tmp_path.iterdir()} == {"copy"}


@pytest.mark.parametrize("way", ["dots", "link", "predictions"])
def test_a_path_does_not_lead_into_or_out_of_a_run(
    app: str, copy: Path, tmp_path: Path, way: str
) -> None:
    whole = (copy / "config.yaml").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(copy)
    output = {"dots": tmp_path / "elsewhere" / ".." / "copy" / "config.yaml",
              "link": tmp_path / "link" / "config.yaml"}.get(way)  # fmt: skip
    if way == "predictions":
        shutil.rmtree(copy / "predictions")
        (copy / "predictions").symlink_to(tmp_path / "elsewhere")
    words = ("export", app, f"run.dir={copy}", "format=pt2")
    outcome = call(*words, *([f"output={output}"] if output else []))
    refused(outcome, "leads out of" if way == "predictions" else "inside the run folder")
    assert (copy / "config.yaml").read_bytes() == whole
    assert not list((tmp_path / "elsewhere").iterdir())
