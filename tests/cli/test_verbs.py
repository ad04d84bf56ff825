"""The verbs in process: what they print and with which status they leave."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

import scadl_core
from scadl_core import cli
from scadl_core.errors import DataError

Scadl = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--help"], 0), (["-h"], 0), (["help"], 0), (["train", "--help"], 0), ([], 2)],
)
def test_help_lists_every_verb(scadl: Scadl, words: list[str], status: int) -> None:
    done = scadl(*words)
    assert (done.status, done.err) == (status, "")
    from scadl_core.cli import verbs

    for verb in verbs.__all__:
        assert f"  scadl {verb.rstrip('_')} " in done.out


def test_version(scadl: Scadl) -> None:
    done = scadl("--version")
    assert (done.status, done.out) == (0, f"{scadl_core.__version__}\n")


def test_list_names_what_the_folders_hold(scadl: Scadl) -> None:
    done = scadl("list")
    assert (done.status, done.err) == (0, "")
    lines = [line.split("│")[1:-1] for line in done.out.splitlines() if "│" in line]
    first = next(number for number, cells in enumerate(lines) if "climate" in cells[0])
    more = takewhile(lambda cells: not cells[0].strip(), lines[first + 1 :])
    rows = [lines[first], *more]
    cells = [
        " ".join(part.strip() for part in column if part.strip())
        for column in zip(*rows, strict=True)
    ]
    configs = Path(__file__).resolve().parents[2] / "apps" / "climate" / "configs"
    for cell, group in zip(cells[1:], ("data", "model", "experiment"), strict=True):
        assert cell == ", ".join(sorted(p.stem for p in (configs / group).glob("*.yaml")))


def test_config_prints_what_would_run(scadl: Scadl, workplace: Path) -> None:
    done = scadl("config", "climate", "optimizer=sgd", "seed=3", "data.path=/x", "run.dir=r")
    assert (done.status, done.err) == (0, "")
    shown = yaml.safe_load(done.out)
    assert shown["optimizer"]["_target_"] == "torch.optim.SGD"
    assert (shown["seed"], shown["data"]["path"], shown["run"]["dir"]) == (3, "/x", "r")
    assert "${" not in done.out
    assert not list(workplace.iterdir())


def test_train_leaves_one_complete_folder(trained: Path, tiny: Sequence[str]) -> None:
    there = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    for name in (
        "config.yaml", "provenance.json", "metrics.json", "metrics.csv", "report.html",
        "checkpoints/last.ckpt", "checkpoints/best.ckpt", "figures/learning_curves.png",
    ):  # fmt: skip
        assert name in there
    assert any(name.startswith("predictions/") for name in there)
    assert any(name.startswith("tensorboard/") for name in there)
    left = {name for name in there if Path(name).name.startswith(".")}
    assert left == {".lock"}
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert config["trainer"]["max_epochs"] == 2
    assert Path(config["data"]["path"]).is_absolute()
    provenance = json.loads((trained / "provenance.json").read_text())
    assert provenance["command"].split()[:3] == ["scadl", "train", "climate"]
    assert len(provenance["data"]) == 16


def test_a_complete_run_is_not_repeated(scadl: Scadl, trained: Path, tiny: Sequence[str]) -> None:
    before = (trained / "metrics.json").read_bytes()
    done = scadl("train", "climate", *tiny, f"run.dir={trained}", "resume=auto")
    assert (done.status, done.err) == (0, "")
    assert done.out == f"the run in {trained} is complete: {trained / 'report.html'}\n"
    assert (trained / "metrics.json").read_bytes() == before


def test_flags_of_hydra_are_answered_by_hydra(run_ranks: Callable[..., list[Any]]) -> None:
    def info() -> tuple[int, str]:  # in a process of its own, since Hydra sets up logging
        with Path(os.devnull).open("w") as null:
            sys.stdout = null
            return cli.main(["train", "climate", "--cfg", "job", "optimizer=sgd"]), ""

    assert run_ranks(1, info) == [(0, "")]


def leave(monkeypatch: pytest.MonkeyPatch, function: Callable[[], int]) -> int:
    monkeypatch.setattr(cli, "_run", lambda words: function())
    with pytest.raises(SystemExit) as caught:
        cli.script()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from scadl_core.workflow.interrupts import Stopped

    def fail(error: BaseException) -> Callable[[], int]:
        def run() -> int:
            raise error

        return run

    assert leave(monkeypatch, lambda: 0) == 0
    assert leave(monkeypatch, fail(DataError("x.nc: broken"))) == 2
    assert capsys.readouterr().err == "scadl: x.nc: broken\n"
    assert leave(monkeypatch, fail(Stopped("stopped"))) == 75
    assert capsys.readouterr().err == "scadl: stopped\n"
    assert leave(monkeypatch, fail(KeyboardInterrupt())) == 128 + signal.SIGINT
    assert capsys.readouterr().err == (
        "scadl: interrupted; resume=auto goes on from the last checkpoint\n"
    )
    assert leave(monkeypatch, fail(ZeroDivisionError("a defect"))) == 1
    assert "Traceback" in capsys.readouterr().err


def test_of_several_ranks_the_first_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> int:
        raise DataError("x.nc: broken")

    def broken_here() -> int:
        error = DataError("y.nc: broken")
        error.local = True
        raise error

    monkeypatch.setenv("PMI_RANK", "1")
    assert leave(monkeypatch, broken) == 2
    assert capsys.readouterr().err == ""
    assert leave(monkeypatch, broken_here) == 2
    assert capsys.readouterr().err == "scadl: y.nc: broken\n"


def test_a_developer_may_ask_for_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> int:
        raise DataError("x.nc: broken")

    monkeypatch.setenv("SCADL_TRACEBACK", "1")
    assert leave(monkeypatch, broken) == 2
    assert "Traceback" in capsys.readouterr().err
