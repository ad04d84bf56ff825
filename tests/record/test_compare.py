"""Runs side by side: means, intervals and differences by seed, against a table of t."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scadl_core.errors import RunError
from scadl_core.record.compare import groups_of, read_runs, scores_table, settings_table
from scadl_core.record.intervals import interval

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A folder with what a finished run leaves behind."""

    def make(seed: int, iou: float, lr: float = 0.1, app: str = "climate", **more: Any) -> Path:
        folder = tmp_path / "runs" / f"{app}-{lr}-{seed}"
        folder.mkdir(parents=True)
        sections = ("data", "loader", "model", "paths", "run", "task", "trainer")
        config = {"app": app, "seed": seed, "optimizer": {"lr": lr, "name": "<b>"}}
        (folder / "config.yaml").write_text(yaml.safe_dump(config | {it: {} for it in sections}))
        metrics = {"test/iou": iou, "test/loss": 1 - iou, "baseline/iou": 0.5,
                   "train/seconds": 100 * lr, "memory/saved_bytes": 2048}  # fmt: skip
        (folder / "metrics.json").write_text(json.dumps(metrics | more))
        (folder / "provenance.json").write_text(json.dumps({"data": {"x.nc": "11"}}))
        return folder

    return make


def test_an_interval_is_students() -> None:
    # t(0.975, 2) = 4.302653, the standard deviation of 1, 2, 3 is 1
    mean, low, high = interval([1.0, 2.0, 3.0])
    assert (mean, low) == (2.0, pytest.approx(2 - 4.302653 / 3**0.5))
    assert high == pytest.approx(2 + 4.302653 / 3**0.5)
    assert interval([5.0]) == (5.0, -float("inf"), float("inf"))
    assert interval([5.0, 5.0]) == (5.0, 5.0, 5.0)


def test_groups_differ_in_more_than_the_seed(write: Write, tmp_path: Path) -> None:
    for seed, iou in ((0, 0.7), (1, 0.8), (2, 0.75)):
        write(seed, iou)
        write(seed, iou + 0.1 + 0.01 * (seed - 1), lr=0.2)
    groups = groups_of(read_runs([tmp_path / "runs"]))
    assert [(it.name, sorted(it.runs)) for it in groups] == [("A", [0, 1, 2]), ("B", [0, 1, 2])]
    assert settings_table(groups).rows == [("optimizer.lr", "0.1", "0.2")]
    table = scores_table(groups)
    # differences .09, .10, .11: standard deviation .01, half an interval .01 * 4.302653 / sqrt(3)
    assert table.rows[0] == (
        "iou", "0.7500 [0.6258, 0.8742]", "0.8500 [0.7117, 0.9883]", "+0.1000 [+0.0752, +0.1248]",
    )  # fmt: skip
    assert table.rows[1][0] == "loss (lower is better)"
    assert table.rows[2] == ("iou of the simple rule", *["0.5000 [0.5000, 0.5000]"] * 2, "")


def test_a_difference_that_may_be_chance_is_said_to_be(write: Write, tmp_path: Path) -> None:
    for seed, iou, other in ((0, 0.7, 0.8), (1, 0.8, 0.7), (2, 0.7, 0.75)):
        write(seed, iou)
        write(seed, other, lr=0.2)
    rows = scores_table(groups_of(read_runs([tmp_path / "runs"]))).rows
    assert rows[0][-1].endswith(" inconclusive")


def test_the_page_and_the_table_of_the_command(
    write: Write, scadl: Callable[..., Any], workplace: Path
) -> None:
    for seed in (0, 1):
        write(seed, 0.7 + 0.1 * seed)
    done = scadl("compare", str(write(0, 0.9, lr=0.3)), str(workplace / "runs"), "--out", "c.html")
    assert (done.status, done.err) == (0, "")
    page = (workplace / "c.html").read_text(encoding="utf-8")
    for shown in (
        "0.7500 [",
        "optimizer.lr",
        "one seed alone says nothing of chance: A",
        "2.0 KiB",
    ):
        assert shown in page
        assert shown.split(":")[0] in done.out
    assert "<b>" not in page
    assert "http" not in page
    assert page.count("<img ") == 1
    assert 'src="data:image/png;base64,' in page


def test_what_cannot_be_compared_is_named(
    write: Write, scadl: Callable[..., Any], workplace: Path
) -> None:
    one, other = write(0, 0.7), write(0, 0.7, app="hep")
    with pytest.raises(RunError, match="runs of climate and hep have no scores in common"):
        read_runs([one, other])
    (one / "metrics.json").unlink()
    no_run = "no finished run; give run folders, or a folder of them such as runs/hep"
    for words, message in (
        ((), "which runs? scadl compare DIR ...; or a folder of runs: runs/climate"),
        ((str(one),), f"{one}: {no_run}"),
        (("--out",), "--out needs a value: --out FILE.html"),
        (("--x",), "unknown flag '--x'; there is: --out FILE.html"),
    ):  # fmt: skip
        done = scadl("compare", *words)
        assert (done.status, done.err) == (2, f"scadl: {message}\n")
