"""The one contract of all pipelines. A new folder below apps/ is tested by this file as it is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from scadl_core.comm import World
from scadl_core.config.apps import App, find_apps
from scadl_core.config.compose import compose_run, require
from scadl_core.config.keys import leaves
from scadl_core.record.datareport import DataReport
from scadl_core.workflow.pipeline import make_source, make_task, resolve
from scadl_core.workflow.task import Task

SHIPPED = Path(__file__).resolve().parents[1] / "apps"
APPS = [app for app in find_apps().values() if (SHIPPED / app.name).is_dir()]
EACH_APP = pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)

# Overrides that make an app's own example small; one that is not here runs on the whole of it.
SMALL = {
    "climate": (
        "data.sample.train_maps=12",
        "data.sample.test_maps=4",
        "data.sample.latitudes=32",
        "data.sample.longitudes=48",
        "model.width=4",
        "figures.num_samples=1",
    ),
    "hep": ("data.sample.train_jets=400", "data.sample.test_jets=200", "baseline.max_iter=2"),
    "graphs": ("data.sample.nodes=600", "data.sample.features=8", "model.width=8"),
    "remote_sensing": (
        "data.sample.train_scenes=2",
        "data.sample.test_scenes=1",
        "data.sample.pixels=96",
        "model.width=4",
        "model.blocks=1",
        "figures.num_samples=1",
    ),
}
SHORT = ("debug=smoke", "trainer.accelerator=cpu", "loader.batch_size=4")
PROMISED = {
    "climate": ("iou_tropical_cyclone", "iou_atmospheric_river"),
    "hep": ("auc_macro", "accuracy"),
    "remote_sensing": ("psnr", "sam"),
    "graphs": ("accuracy",),
}
IN_ALL = (
    "train/seconds",
    "train/epochs",
    "memory/saved_bytes",
    "memory/saved_bytes_uncompressed",
    "comm/sent_bytes",
)


def compose(app: App) -> Any:
    return resolve(compose_run(app, [*SMALL.get(app.name, ()), *SHORT]))


@EACH_APP
def test_the_same_words_in_every_app(app: App, workplace: Path) -> None:
    config = compose_run(app, [])
    require(config)
    words = [f"data.{word}" for word in ("path", "inputs", "target", "split", "weight")]
    words += [
        "model",
        "optimizer",
        "memory",
        "comm",
        "solver",
        "trainer",
        "seed",
        "run.dir",
        "input",
        "output",
    ]
    assert set(words) <= set(leaves(config))
    assert config.app == app.name


@EACH_APP
def test_a_source_keeps_its_contract(app: App, workplace: Path) -> None:
    config = compose(app)
    source = make_source(config, World())
    facts = source.facts()
    assert json.loads(json.dumps(facts)) == facts, "plain numbers, texts and lists"
    assert facts["model"] == source.dimensions()
    report = source.report()
    assert isinstance(report, DataReport)
    assert all(len(row) == len(table.columns) for table in report.tables for row in table.rows)
    files = [Path(file) for file in source.files()]
    assert files
    assert all(file.exists() for file in files)
    assert {Path(file) for file in source.example()} <= set(files)
    assert source.example()
    for split in ("train", "val", "test"):
        samples = source.samples(split)
        assert len(samples) > 0
        first, again = samples.read(0, None), samples.read(0, None)
        assert first.keys() == again.keys()
        for name, value in first.items():
            np.testing.assert_array_equal(value, again[name])
        drawn = [samples.read(0, np.random.default_rng(3)) for _ in range(2)]
        for name, value in drawn[0].items():
            np.testing.assert_array_equal(value, drawn[1][name])
            assert np.shape(value) == np.shape(first[name])
            assert np.asarray(value).dtype == np.asarray(first[name]).dtype


@EACH_APP
def test_a_task_depends_on_the_seed_alone_and_comes_back_from_its_state(
    app: App, workplace: Path
) -> None:
    config = compose(app)
    facts = make_source(config, World()).facts()
    one, same = make_task(config, facts, World()), make_task(config, facts, World())
    config.seed = 1
    other = make_task(config, facts, World())
    assert isinstance(one, Task)

    def equal(task: Task) -> bool:
        pairs = zip(one.network.parameters(), task.network.parameters(), strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    assert equal(same)
    assert not equal(other)
    other.load_state_dict(one.state_dict())
    assert equal(other)


@EACH_APP
def test_the_example_runs_through_every_stage(
    app: App, scadl: Callable[..., Any], workplace: Path
) -> None:
    done = scadl("train", app.name, *SMALL.get(app.name, ()), *SHORT, "run.dir=run")
    assert (done.status, done.err) == (0, "")
    run = workplace / "run"
    metrics = json.loads((run / "metrics.json").read_text())
    assert all(isinstance(v, (int, float)) and math.isfinite(v) for v in metrics.values())
    scores: Sequence[str] = PROMISED.get(app.name, ())
    assert {f"{of}/{s}" for s in scores for of in ("test", "baseline")} <= metrics.keys()
    assert set(IN_ALL) <= metrics.keys()
    assert any(name.startswith("test/") for name in metrics)
    assert any(name.startswith("baseline/") for name in metrics)
    assert metrics["train/epochs"] == 1
    assert metrics["memory/saved_bytes"] > 0
    for part in ("figures", "predictions"):
        assert any((run / part).iterdir())
    pictures = [path for path in (run / "figures").iterdir() if path.suffix == ".png"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/png;base64,') == len(pictures)

    config = OmegaConf.load(run / "config.yaml")
    example = make_source(config, World()).example()
    inputs = "[" + ", ".join(f"'{path}'" for path in example) + "]"
    done = scadl("predict", app.name, "run.dir=run", f"input={inputs}", "output=out")
    assert (done.status, done.err) == (0, "")
    written = Path(done.out.splitlines()[-1].removeprefix("written: "))
    assert written.stat().st_size > 0
