"""A run again is the same run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Scadl = Callable[..., Any]


def test_the_scores_are_the_same_to_the_last_digit(
    scadl: Scadl, trained: Path, workplace: Path
) -> None:
    done = scadl("rerun", str(trained))
    assert (done.status, done.err) == (0, "")
    line = next(line for line in done.out.splitlines() if line.startswith("run folder: "))
    new = Path(line.removeprefix("run folder: "))
    assert new != trained
    before, after = (json.loads((f / "metrics.json").read_text()) for f in (trained, new))
    machine = {"train/seconds", "memory/peak_bytes"}
    assert before.keys() == after.keys()
    assert {n: v for n, v in before.items() if n not in machine} == {
        n: v for n, v in after.items() if n not in machine
    }
    rows = [line for line in done.out.splitlines() if "test/iou_mean" in line]
    assert len(rows) == 1
    assert rows[0].split("│")[-2].strip() == "+0"


@pytest.mark.parametrize("words", [[], ["a", "x=1"]])
def test_it_takes_one_folder(scadl: Scadl, words: list[str]) -> None:
    done = scadl("rerun", *words)
    assert (done.status, done.err) == (
        2,
        "scadl: scadl rerun takes the folder of a finished run, and packages that you trust: "
        "scadl rerun DIR [build.allow=[PACKAGE]]\n",
    )


def test_an_unfinished_run_is_refused(scadl: Scadl, workplace: Path, trained: Path) -> None:
    (workplace / "half").mkdir()
    shutil.copy(trained / "config.yaml", workplace / "half")
    done = scadl("rerun", "half")
    assert (done.status, done.err) == (
        2,
        f"scadl: run folder {workplace / 'half'}: the run is not complete; "
        "continue it with resume=auto\n",
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [("", "it has no data"), ("seed: ${oc.env:HOME}", "it holds a ${...}")],
)
def test_a_configuration_that_no_run_stored_is_refused(
    scadl: Scadl, workplace: Path, trained: Path, line: str, reason: str
) -> None:
    """Missing parts, and what would be looked up in the environment of whoever reads it."""
    (workplace / "odd").mkdir()
    stored = (trained / "config.yaml").read_text()
    text = stored.replace("seed: 0\n", line + "\n", 1) if line else "app: climate\n"
    (workplace / "odd" / "config.yaml").write_text(text)
    done = scadl("rerun", "odd")
    file = workplace / "odd" / "config.yaml"
    assert (done.status, done.err) == (
        2,
        f"scadl: {file}: not the configuration of a run ({reason})\n",
    )
