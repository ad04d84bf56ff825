"""``scadl check`` writes a page that says what is in the files, and that trains on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from scadl_core.cli.check import data_yaml

Scadl = Callable[..., Any]


def test_the_page_for_unknown_files_trains(
    scadl: Scadl, tiny: Sequence[str], sample_folder: Path, workplace: Path
) -> None:
    done = scadl("check", "climate", "data=netcdf", f"data.path={sample_folder}")
    assert (done.status, done.err) == (0, "")
    assert (
        "with the present settings these data cannot be used: not yet configured: data.classes"
        in (" ".join(done.out.split()))
    )
    name = sample_folder.name.replace("-", "_").replace(".", "_")
    page = workplace / "scadl_configs" / "data" / f"{name}.yaml"
    line = f"train on it: scadl train climate --config-dir scadl_configs data={name}"
    assert line in done.out.splitlines()
    written = yaml.safe_load(page.read_text())
    assert written["path"] == str(sample_folder)
    assert set(written["inputs"]) == {"TMQ", "U850", "V850", "PSL", "T500"}
    assert (written["target"], written["split"]["by"]) == ("LABELS", "folder")
    assert written["classes"] == ["background", "tropical_cyclone", "atmospheric_river"]
    assert "# grid: 32 x 48" in page.read_text()

    overrides = [word for word in tiny if not word.startswith("data.sample")]
    words = line.removeprefix("train on it: scadl ").split()
    done = scadl(*words, *overrides, "trainer.max_epochs=1", "run.dir=run")
    assert (done.status, done.err) == (0, "")
    assert (workplace / "run" / "metrics.json").is_file()


def test_data_that_fit_are_reported_and_written_as_they_are(
    scadl: Scadl, tiny: Sequence[str], workplace: Path
) -> None:
    data = [word for word in tiny if word.startswith("data.")]
    done = scadl("check", "climate", *data, "output=here/mine.yaml")
    assert (done.status, done.err) == (0, "")
    assert "cannot be used" not in done.out
    assert "samples: 10 train, 2 val, 4 test (by folder)" in done.out
    assert "written: here/mine.yaml" in done.out
    written = yaml.safe_load((workplace / "here" / "mine.yaml").read_text())
    assert "sample" not in written
    assert written["inputs"] == ["TMQ", "U850", "V850", "PSL"]


def test_data_that_do_not_fit_are_answered_with_a_proposal(
    scadl: Scadl, sample_folder: Path, workplace: Path
) -> None:
    done = scadl(
        "check", "climate", "data=climatenet", f"data.path={sample_folder}", "data.target=LABLES"
    )
    assert done.status == 2  # what was asked for is not there
    assert "did you mean 'LABELS'?" in " ".join(done.out.split())
    [page] = (workplace / "scadl_configs" / "data").iterdir()
    assert yaml.safe_load(page.read_text())["target"] == "LABELS"
    assert "look over inputs, target and classes before training" in page.read_text()


def test_only_the_path_is_asked_for(scadl: Scadl, workplace: Path) -> None:
    done = scadl("check", "climate", "data=netcdf")
    assert (done.status, done.err) == (
        2,
        "scadl: missing: data.path; add data.path=<your files>\n",
    )
    assert not list(workplace.iterdir())


def test_a_page_holds_values_that_yaml_reads_back() -> None:
    values = {"path": "a: b #c", "classes": ["no", "[x]"], "target": None, "split": {"val": 0.1}}
    facts = {"files": "two\nlines: [x]"}
    text = data_yaml(values, "climate", facts, None)
    assert yaml.safe_load(text) == values
    assert "# files: two lines: [x]" in text
    assert "look over" not in text
    assert "look over" in data_yaml(values, "climate", facts, ValueError("x"))


def test_a_page_that_was_edited_is_kept(scadl: Scadl, sample_folder: Path, workplace: Path) -> None:
    words = ("check", "climate", "data=netcdf", f"data.path={sample_folder}")
    scadl(*words)
    (page,) = (workplace / "scadl_configs" / "data").glob("*.yaml")
    scadl(*words)
    assert list(page.parent.iterdir()) == [page]  # the same again
    page.write_text(page.read_text() + "# mine\n")
    done = scadl(*words)
    assert page.read_text().endswith("# mine\n")
    assert f"data={page.stem}_2" in done.out
