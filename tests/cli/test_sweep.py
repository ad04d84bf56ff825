"""Many runs from one line: each in its folder, one table, their mean."""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from scadl_core.cli.sweep import summarise
from scadl_core.files import write_json, write_text
from scadl_core.record.runfolder import RunFolder

Scadl = Callable[..., Any]


def cells(text: str) -> dict[str, list[str]]:
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text.splitlines()
        if "│" in line
    ]
    return {row[0]: row[1:] for row in rows if row[0]}


def test_two_seeds_one_after_the_other(scadl: Scadl, tiny: Sequence[str], workplace: Path) -> None:
    words = [*tiny, "trainer.max_epochs=1", "logger=none"]
    done = scadl("train", "climate", "-m", *words, "seed=0,1", r"run.dir='it\'s two'")
    assert (done.status, done.err) == (0, "")
    folder = workplace / "it's two"
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["0", "1"]
    for number in (0, 1):
        run = RunFolder(folder / str(number))
        assert run.load_config().seed == number
        assert run.report.is_file()
    assert {"0", "1", "mean", "standard"} <= cells(done.out).keys()

    again = scadl("train", "climate", "-m", *words, "seed=0,1", r"run.dir='it\'s two'")
    assert (again.status, again.err) == (
        2,
        f"scadl: {folder} already holds runs; choose another run.dir for this sweep\n",
    )


def test_side_by_side_with_joblib(scadl: Scadl, tiny: Sequence[str], workplace: Path) -> None:
    done = scadl(
        "train", "climate", "-m", *tiny, "trainer.max_epochs=1", "logger=none", "seed=0,1",
        "run.dir=side", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    seeds = [RunFolder(workplace / "side" / str(n)).load_config().seed for n in (0, 1)]
    assert seeds == [0, 1]
    assert cells(done.out)["1"][0] == "1"


def test_a_mistake_in_any_choice_is_found_before_the_first_run(
    scadl: Scadl, tiny: Sequence[str], workplace: Path
) -> None:
    done = scadl("train", "climate", "-m", *tiny, "optimizer=adamw,sdg")
    assert (done.status, done.err) == (
        2,
        "scadl: optimizer=sdg: no such choice; did you mean 'sgd'?\n",
    )
    assert not list(workplace.iterdir())


def write_run(folder: Path, config: dict[str, Any], metrics: dict[str, float]) -> None:
    folder.mkdir(parents=True)
    parts = ("data", "loader", "model", "optimizer", "paths", "run", "seed", "task", "trainer")
    whole = {"app": "x", **{part: {} for part in parts}, **config}
    write_text(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(whole)))
    if metrics:
        write_json(folder / "metrics.json", metrics)


def table(folder: Path) -> dict[str, list[str]]:
    console = Console(file=io.StringIO(), width=200)
    summarise(folder, console)
    return cells(console.file.getvalue())  # type: ignore[attr-defined]


def test_mean_and_spread_over_seeds(tmp_path: Path) -> None:
    scores = [0.25, 0.5, 0.625]
    for seed, score in enumerate(scores):
        write_run(tmp_path / str(seed), {"seed": seed}, {"test/iou_x": score, "train/seconds": 2.0})
    write_run(tmp_path / "3", {"seed": 3}, {})  # was stopped
    found = table(tmp_path)
    assert [found[str(n)] for n in range(3)] == [
        [str(n), f"{s:.4f}", "2.0000"] for n, s in enumerate(scores)
    ]
    assert found["mean"] == ["", f"{statistics.mean(scores):.4f}", "2.0000"]
    assert found["standard deviation"] == ["", f"{statistics.stdev(scores):.4f}", "0.0000"]
    assert "3" not in found


def test_columns_are_what_differs(tmp_path: Path) -> None:
    one = {"optimizer": {"lr": 1, "momentum": 0.9}, "inputs": ["u", "v"], "same": 1}
    other = {"optimizer": {"lr": 2}, "inputs": ["w"], "same": 1}
    for name, config in (("0", one), ("10", other), ("9", one)):
        write_run(tmp_path / name, config, json.loads('{"test/psnr": 30.0, "train/seconds": 1}'))
    found = table(tmp_path)
    assert list(found) == ["0", "9", "10"]
    assert found["10"] == ["['w']", "2", "-", "30.0000", "1.0000"]
    assert found["0"] == ["['u', 'v']", "1", "0.9", "30.0000", "1.0000"]
    assert "mean" not in found
