"""Every choice that is shipped composes to what its page says; those that train do, shortened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run, require
from scadl_core.record.runfolder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = sorted(ROOT.glob("apps/*/configs/experiment/*.yaml"))
SHARED_CHOICES = sorted(ROOT.glob("configs/*/*.yaml"))
SHORT = (
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=2",
    "trainer.limit_val_batches=1",
    "trainer.limit_test_batches=1",
    "trainer.accelerator=cpu",
    "loader.batch_size=2",
    "figures.num_samples=0",
    "model.width=2",
)


def name_of(path: Path) -> str:
    return (
        f"{path.parts[-4]}/{path.stem}" if "apps" in path.parts else f"{path.parts[-2]}={path.stem}"
    )


def said(page: DictConfig, prefix: str = "") -> dict[str, Any]:
    """The values that a page sets, by full key."""
    found = {}
    for name, value in page.items():
        if name == "defaults":
            continue
        key = f"{prefix}{name}"
        if isinstance(value, DictConfig):
            found |= said(value, key + ".")
        else:
            found[key] = value
    return found


@pytest.mark.parametrize("path", EXPERIMENTS, ids=name_of)
def test_an_experiment_sets_what_its_page_says(path: Path, workplace: Path) -> None:
    """Whatever order the pages are merged in."""
    config = compose_run(find_app(path.parts[-4]), [f"experiment={path.stem}", "data.path=/x"])
    require(config)
    for key, value in said(OmegaConf.load(path)).items():
        assert OmegaConf.select(config, key) == value, key


@pytest.mark.parametrize("path", SHARED_CHOICES, ids=name_of)
def test_a_shared_choice_sets_what_its_page_says(path: Path, workplace: Path) -> None:
    group, choice = path.parts[-2], path.stem
    config = compose_run(find_app("climate"), [f"{group}={choice}"])
    require(config)
    everywhere = "@package _global_" in path.read_text()
    # Of an ordinary choice the app's front page may set a value anew; a debugging run comes last.
    front = {} if everywhere else said(OmegaConf.load(ROOT / "apps/climate/configs/climate.yaml"))
    page = OmegaConf.load(path)
    OmegaConf.resolve(page)
    OmegaConf.resolve(config)
    for key, value in said(page, "" if everywhere else f"{group}.").items():
        assert OmegaConf.select(config, key) == front.get(key, value), key


def test_what_is_shipped_stays_small() -> None:
    pages = [*ROOT.glob("configs/**/*.yaml"), *ROOT.glob("apps/*/configs/**/*.yaml")]
    assert len(pages) <= 72
    # One commented page shows the whole architecture; every other is a leaf.
    too_long = [p.name for p in pages if len(p.read_text().splitlines()) > 40]
    assert too_long in ([], ["train.yaml"])


def train(scadl: Callable[..., Any], workplace: Path, *words: str) -> RunFolder:
    done = scadl("train", "climate", *words, "run.dir=run")
    assert (done.status, done.err) == (0, "")
    folder = RunFolder(workplace / "run")
    assert folder.report.is_file()
    return folder


def test_climatenet_runs_on_its_file_layout(
    scadl: Callable[..., Any], workplace: Path, sample_folder: Path
) -> None:
    folder = train(scadl, workplace, "experiment=climatenet", f"data.path={sample_folder}", *SHORT)
    assert "test/iou_tropical_cyclone" in folder.load_metrics()


def test_jet_stream_runs_on_reanalysis(
    scadl: Callable[..., Any], workplace: Path, shared_data: Path
) -> None:
    files = ", ".join(
        f"'{shared_data / 'climate' / name}'" for name in ("uwnd_mean.nc", "vwnd_mean.nc")
    )
    folder = train(scadl, workplace, "experiment=jet_stream", f"data.path=[{files}]", *SHORT)
    metrics = folder.load_metrics()
    # The label is the input wind above a threshold: the simple rule looks at it, and is right.
    assert metrics["baseline/iou_jet"] == pytest.approx(1, abs=0.02)


def test_sample128_is_of_its_size(scadl: Callable[..., Any], workplace: Path) -> None:
    few = ("data.sample.train_maps=6", "data.sample.test_maps=2")
    folder = train(scadl, workplace, "experiment=sample128", "model=tiramisu", *few, *SHORT)
    assert "test/iou_atmospheric_river" in folder.load_metrics()
    assert "128 x 192" in folder.report.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("model=cgnet", "model.blocks=[1, 1]"),
        ("model=deeplab", "model.norm=channel"),
        ("optimizer=sgd", "logger=none", "callbacks=early_stopping"),
        ("schedule.floor=0.1", "loader.workers=1", "trainer.accumulate_grad_batches=2"),
    ],
    ids=" ".join,
)
def test_choices_train(
    scadl: Callable[..., Any], workplace: Path, tiny: Sequence[str], words: tuple[str, ...]
) -> None:
    folder = train(scadl, workplace, *tiny, *words)
    assert folder.load_metrics()["train/epochs"] >= 1
    tensorboard = (folder.path / "tensorboard").exists()
    assert tensorboard == ("logger=none" not in words)


def test_labels_by_rules_train_and_are_scored_on_the_true_ones(
    scadl: Callable[..., Any], workplace: Path
) -> None:
    sample = ("data.sample.train_maps=8", "data.sample.test_maps=2")
    train(scadl, workplace, "experiment=heuristic", *SHORT, *sample)
    done = scadl("evaluate", "climate", "run.dir=run", "data.target=LABELS", "output=true.json")
    assert (done.status, done.err) == (0, "")
    assert "iou_tropical_cyclone" in (workplace / "true.json").read_text()
