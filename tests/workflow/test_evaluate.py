"""A finished run on data: its own scores again, scores of other data, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

Scadl = Callable[..., Any]


def test_the_test_scores_come_out_again(scadl: Scadl, trained: Path) -> None:
    done = scadl("evaluate", "climate", f"run.dir={trained}")
    assert (done.status, done.err) == (0, "")
    written = Path(done.out.splitlines()[0].removeprefix("written: "))
    assert written.parent == trained / "evaluations"
    got = json.loads(written.read_text())
    provenance = got.pop("provenance")
    assert provenance["command"].startswith("scadl evaluate climate")
    stored = json.loads((trained / "metrics.json").read_text())
    assert got == pytest.approx(
        {n.removeprefix("test/"): v for n, v in stored.items() if n.startswith("test/")}
    )
    for name, value in got.items():
        assert f"{value:.4f}" in next(line for line in done.out.splitlines() if f" {name} " in line)


def test_another_split_checkpoint_and_place(
    scadl: Scadl, trained: Path, sample_folder: Path, workplace: Path
) -> None:
    done = scadl(
        "evaluate", "climate", f"run.dir={trained}", "split=val", "checkpoint=last",
        "output=deep/scores.json", f"data.path={sample_folder}",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    got = json.loads((workplace / "deep" / "scores.json").read_text())
    history = (trained / "metrics.csv").read_text().splitlines()
    last = dict(zip(history[0].split(","), history[-1].split(","), strict=True))
    assert got["iou_mean"] == pytest.approx(float(last["val/score"]), rel=1e-5)


def test_predictions_are_the_networks_most_probable_class(
    scadl: Scadl, trained: Path, sample_folder: Path, workplace: Path
) -> None:
    file = sorted((sample_folder / "test").iterdir())[0]
    done = scadl("predict", "climate", f"run.dir={trained}", f"input={file}", "output=p.nc")
    assert (done.status, done.out, done.err) == (0, f"written: {workplace / 'p.nc'}\n", "")
    with xr.open_dataset(workplace / "p.nc") as found:
        names = [
            f"probability_{n}" for n in ("background", "tropical_cyclone", "atmospheric_river")
        ]
        probability_KHW = np.stack([found[name].squeeze().values for name in names])
        np.testing.assert_allclose(probability_KHW.sum(0), 1, rtol=1e-5)
        np.testing.assert_array_equal(found["event_class"].squeeze(), probability_KHW.argmax(0))
    # The run predicted the first test sample itself.
    [example] = (trained / "predictions").glob("*.nc")
    with xr.open_dataset(example) as theirs, xr.open_dataset(workplace / "p.nc") as found:
        np.testing.assert_array_equal(theirs["event_class"], found["event_class"])


@pytest.mark.parametrize(
    ("verb", "words", "message"),
    [
        ("evaluate", [], "missing: run.dir; add run.dir=<the folder of a finished run>"),
        (
            "predict",
            ["run.dir={run}"],
            "missing: input; add input=<file or pattern>, or input=[<file>,<file>]",
        ),
        (
            "evaluate",
            ["run.dir=nowhere"],
            "run.dir={here}/nowhere: not a run folder (it has no config.yaml)",
        ),
        (
            "evaluate",
            ["run.dir={run}", "split=tset"],
            "split=tset: no such choice; did you mean 'test'?",
        ),
        (
            "evaluate",
            ["run.dir={run}", "checkpoint=fist"],
            "no checkpoint fist; train to the end, or choose checkpoint=best, "
            "checkpoint=last or a path",
        ),
        (
            "evaluate",
            ["run.dir={run}", "data.inputs=[TMQ]"],
            "the run in {run} was trained with {{'in_channels': 4, 'num_classes': 3}}, "
            "the data have {{'in_channels': 1, 'num_classes': 3}}; "
            "give data.inputs and data.target of the same number and order",
        ),
        (
            "evaluate",
            ["run.dir={run}", "data=netcdf"],
            "missing: data.classes, data.inputs, data.path, data.target; "
            "add data.classes=... data.inputs=... data.path=... data.target=...",
        ),
        (
            "predict",
            ["run.dir={run}", "input=x.nc", "data.inputs=[TMQ]"],
            "data.inputs=[TMQ]: predict reads input=, with the channels that the model was trained "
            "on; leave it out",
        ),
        (
            "evaluate",
            ["run.dir={run}", "seed=1,2"],
            "seed=1,2: a comma parts the choices of a sweep (scadl train -m); "
            "quote the value twice, or write a list in [ ]",
        ),
    ],
)
def test_refusals(
    scadl: Scadl, trained: Path, workplace: Path, verb: str, words: list[str], message: str
) -> None:
    names = {"run": trained, "here": workplace}
    done = scadl(verb, "climate", *(word.format(**names) for word in words))
    assert (done.status, done.out, done.err) == (2, "", f"scadl: {message.format(**names)}\n")


def test_another_network_does_not_fit(scadl: Scadl, trained: Path) -> None:
    done = scadl("evaluate", "climate", f"run.dir={trained}", "model.width=8")
    assert done.status == 2
    expected = f"the run in {trained} has another model; leave out overrides of model"
    assert done.err == f"scadl: {expected}\n"


def test_trust_is_not_taken_from_the_folder(scadl: Scadl, trained: Path, workplace: Path) -> None:
    """A run folder from somebody else must not decide what is executed."""
    shutil.copytree(trained, workplace / "theirs")
    config = workplace / "theirs" / "config.yaml"
    text = config.read_text().replace("allow: []", "allow: [os]")
    config.write_text(text.replace("torch.optim.AdamW", "os.system"))
    done = scadl("evaluate", "climate", "run.dir=theirs")
    assert done.status == 2
    assert done.err.startswith("scadl: optimizer._target_: 'os.system' is outside the packages")


def test_a_checkpoint_of_another_pipeline_is_refused(
    scadl: Scadl, trained: Path, workplace: Path
) -> None:
    path = workplace / "other.ckpt"
    identity = {"app": "hep", "facts": {}, "provenance": {}, "step": 0}
    torch.save({"scadl": identity, "state_dict": {}}, path)
    done = scadl("evaluate", "climate", f"run.dir={trained}", f"checkpoint={path}")
    assert (done.status, done.err) == (
        2,
        f"scadl: checkpoint {path} is of the pipeline 'hep', not of 'climate'\n",
    )
