"""Mistakes a person makes: one line on standard error, status 2, and no half of anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

Scadl = Callable[..., Any]
INPUTS = "[TMQ, U850, V850, PSL]"


def assert_refused(done: Any, message: str, workplace: Path) -> None:
    assert done.status == 2
    assert done.err == f"scadl: {message}\n"
    assert message.count("\n") == 0
    left = {p.name for p in workplace.rglob("*") if p.is_file() and "data" not in p.parts}
    left -= {"config.yaml", ".lock", "provenance.json"}  # of a run that was begun
    assert not [name for name in left if not name.startswith("events.out.tfevents")]


@pytest.fixture
def maps(workplace: Path, sample_folder: Path) -> Path:
    """A copy of the sample that may be spoiled."""
    shutil.copytree(sample_folder, workplace / "data" / "maps")
    return workplace / "data" / "maps"


@pytest.fixture
def train(scadl: Scadl, tiny: Sequence[str], maps: Path) -> Scadl:
    own = [word for word in tiny if not word.startswith("data.sample")]

    def run(*words: str) -> Any:
        return scadl("train", "climate", "data=climatenet", f"data.path={maps}", *own, *words)

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian", "climate"], "no verb is called 'trian'; did you mean 'train'?"),
        (
            ["train"],
            "which pipeline? scadl train APP ...; there is: climate, graphs, hep, remote_sensing",
        ),
        (
            ["train", "seed=1"],
            "which pipeline? scadl train APP ...; there is: climate, graphs, hep, remote_sensing",
        ),
        (["train", "climat"], "no pipeline is called 'climat'; did you mean 'climate'?"),
        (["list", "climate"], "scadl list takes nothing more, got 'climate'"),
        (["doctor", "-v"], "scadl doctor takes nothing more, got '-v'"),
        (
            ["train", "climate", "--multi"],
            "unknown flag '--multi'; there is: -m, --config-dir DIR, --help, -h, --hydra-help, "
            "--info, -i, --cfg, -c, --resolve, --package, -p",
        ),
        (["train", "climate", "--config-dir"], "--config-dir needs a folder: --config-dir DIR"),
        (
            ["train", "climate", "--config-dir=nowhere"],
            "--config-dir nowhere: no such folder",
        ),
        (
            ["train", "climate", "seed=1,2"],
            "seed=1,2: a comma parts the choices of a sweep (scadl train -m); "
            "quote the value twice, or write a list in [ ]",
        ),
        (
            ["train", "climate", "optimizer.lrr=1"],
            "unknown key 'optimizer.lrr'; did you mean 'optimizer.lr'?",
        ),
        (
            ["train", "climate", "+optimizer.lrr=1"],
            "unknown key 'optimizer.lrr'; did you mean 'lr'? (torch.optim.AdamW)",
        ),
        (
            ["train", "climate", "optimizer=sgd", "optimizer.momentum=abc"],
            "optimizer.momentum: expected a number (such as 0.9), got 'abc'",
        ),
        (
            ["train", "climate", "data=netcdf", "data.path=x"],
            "missing: data.classes, data.inputs, data.target; "
            "add data.classes=... data.inputs=... data.target=...",
        ),
        (["train", "climate", "experiment=jet_stream"], "missing: data.path; add data.path=..."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_on_the_command_line(
    scadl: Scadl, workplace: Path, words: list[str], message: str
) -> None:
    assert_refused(scadl(*words), message, workplace)
    assert not list(workplace.iterdir())


def test_no_file_is_matched(train: Scadl, maps: Path, workplace: Path) -> None:
    done = train(f"data.path={maps}/train/*.grib")
    assert done.err.startswith(
        f"scadl: data.path: no file matches {maps}/train/*.grib; "
        f"the folder {maps}/train holds data-"
    )
    assert_refused(done, done.err.removeprefix("scadl: ").rstrip("\n"), workplace)


def first(maps: Path) -> Path:
    """The file that is named when it is about all of them."""
    return sorted((maps / "test").iterdir())[0]


def test_a_missing_variable_is_answered_with_the_closest(
    train: Scadl, maps: Path, workplace: Path
) -> None:
    message = f"variable 'TQM' is not in any of 16 files such as {first(maps)}; did you mean 'TMQ'?"
    assert_refused(train("data.inputs=[TQM]"), f"data.inputs: {message}", workplace)


def test_a_missing_label_variable_is_told_from_an_input(
    train: Scadl, maps: Path, workplace: Path
) -> None:
    message = (
        f"variable 'LABLES' is not in any of 16 files such as {first(maps)}; did you mean 'LABELS'?"
    )
    assert_refused(train("data.target=LABLES"), f"data.target: {message}", workplace)


def spoil(file: Path, variable: str, change: Callable[[Any], Any]) -> None:
    with netCDF4.Dataset(file, "a") as dataset:
        dataset[variable][:] = change(dataset[variable][:])


def training(maps: Path) -> list[Path]:
    return sorted((maps / "train").iterdir())


def test_labels_out_of_range(train: Scadl, maps: Path, workplace: Path) -> None:
    file = training(maps)[0]
    spoil(file, "LABELS", lambda label: np.where(label == 0, 7, label))
    assert_refused(
        train(),
        f"{file}: LABELS has the values 7; the classes are 0..2 (background, tropical_cyclone, "
        "atmospheric_river): mend data.classes, set data.thresholds, "
        "or declare missing as _FillValue",
        workplace,
    )


def test_a_channel_that_is_missing_everywhere(train: Scadl, maps: Path, workplace: Path) -> None:
    for file in training(maps):
        spoil(file, "PSL", lambda field: np.full_like(field, np.nan))
    assert_refused(
        train(),
        f"{training(maps)[0]}: PSL is missing everywhere in train; drop it from data.inputs",
        workplace,
    )


def test_files_on_differing_grids(train: Scadl, maps: Path, workplace: Path) -> None:
    from apps.climate.sample import write_sample

    write_sample(maps / "more", train_maps=1, test_maps=1, latitudes=16, longitudes=24)
    for file in (maps / "more" / "train").iterdir():
        file.rename(maps / "train" / "data-1999-01-01-00-1.nc")
    shutil.rmtree(maps / "more")
    done = train()
    assert f" and {maps / 'train' / 'data-1999-01-01-00-1.nc'} are on differing grids: " in done.err
    assert done.err.endswith("; make them alike, or leave one out of data.path\n")
    assert_refused(done, done.err.removeprefix("scadl: ").rstrip("\n"), workplace)


@pytest.mark.parametrize("kept", [0, 100, 5000])
def test_a_truncated_file_is_named(train: Scadl, maps: Path, workplace: Path, kept: int) -> None:
    file = training(maps)[2]
    file.write_bytes(file.read_bytes()[:kept])
    done = train()
    assert done.err.startswith(f"scadl: {file}: ")
    assert_refused(done, done.err.removeprefix("scadl: ").rstrip("\n"), workplace)


def test_an_empty_split(train: Scadl, maps: Path, workplace: Path) -> None:
    shutil.rmtree(maps / "test")
    assert_refused(
        train(),
        "data.split: 'test' has no sample (by folder: train 10, val 2, test 0); "
        "put files into a folder test/ below data.path, or set data.split.by=time",
        workplace,
    )


@pytest.mark.parametrize("key", ["run.dir=file/run", "paths.runs=file"])
def test_a_run_folder_that_cannot_be_written(train: Scadl, workplace: Path, key: str) -> None:
    (workplace / "file").touch()
    done = train(key)
    assert done.status == 2
    assert done.err.startswith(f"scadl: run folder {workplace / 'file'}/")
    assert done.err.endswith(
        ": cannot be written (Not a directory); "
        "set run.dir or paths.runs to a folder that you can write to\n"
    )
    assert [p.name for p in workplace.iterdir() if p.name != "data"] == ["file"]


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_an_unreadable_checkpoint(
    scadl: Scadl, trained: Path, workplace: Path, content: bytes | None
) -> None:
    broken = workplace / "broken.ckpt"
    whole = (trained / "checkpoints" / "best.ckpt").read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] if content is None else content)
    done = scadl("predict", "climate", f"run.dir={trained}", f"checkpoint={broken}", "input=x")
    assert done.status == 2
    assert done.err.startswith(
        f"scadl: checkpoint {broken}: cannot be read, it is broken or not a ScaDL checkpoint ("
    )
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed=-1"], "seed: expected 0 or more, got -1"),
        (
            ["optimizer.lr=-1"],
            "optimizer: torch.optim.AdamW refused its arguments: Invalid learning rate: -1",
        ),
        (
            ["optimizer=soap", "optimizer.lr=-1"],
            "optimizer: pytorch_optimizer.SOAP refused its arguments: learning rate must be "
            "positive. (-1 > 0)",
        ),
        (
            ["optimizer=kfac", "optimizer.damping=-1"],
            "optimizer.damping: expected a number above 0, got -1",
        ),
        (
            ["loader.batch_size=0"],
            "loader.batch_size: expected at least one sample a rank (1 ranks), got 0",
        ),
        (["schedule.warmup=2"], "schedule.warmup: expected a share of the steps in [0, 1), got 2"),
        (
            ["trainer.limit_val_batches=2.5"],
            "trainer: You have passed invalid value 2.5 "
            "for limit_val_batches, it has to be in [0.0, 1.0] or an int.",
        ),
    ],
)
def test_values_that_only_their_users_can_judge(
    train: Scadl, workplace: Path, words: list[str], message: str
) -> None:
    assert_refused(train(*words), message, workplace)


def test_an_output_that_cannot_be_written(scadl: Scadl, trained: Path, sample_folder: Path) -> None:
    file = next((sample_folder / "test").glob("*.nc"))
    Path("blocked").touch()
    predict = ("predict", "climate", f"run.dir={trained}", f"input={file}")
    done = scadl(*predict, "output=blocked/o.nc")
    assert (done.status, done.err) == (
        2,
        f"scadl: {Path.cwd() / 'blocked'}: File exists; choose a place that can be written\n",
    )
    done = scadl(*predict, f"output={trained}/config.yaml")
    assert (done.status, done.err) == (
        2,
        f"scadl: output={trained}/config.yaml is inside the run folder; choose another place\n",
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("predict.extreme=[PSL]", "predict.extreme: expected a channel and min or max, such as"),
        ("figures.most_maps=-1", "figures.most_maps: expected a whole number from 0, got -1"),
        ("figures.coastline=nowhere.shp", "figures.coastline: [Errno 2] No such file"),
    ],
)
def test_a_mistake_in_what_comes_last_costs_no_training(
    scadl: Scadl, tiny: Sequence[str], workplace: Path, word: str, message: str
) -> None:
    done = scadl("train", "climate", *tiny, "trainer.max_epochs=1", word, "run.dir=run")
    assert done.status == 2
    assert done.err.startswith(f"scadl: {message}")
    assert done.err.endswith(f"(all else of the run is done: {workplace}/run/report.html)\n")
    assert (workplace / "run" / "metrics.json").is_file()
    assert (workplace / "run" / "report.html").is_file()
