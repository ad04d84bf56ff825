"""Whole runs: the verbs, the networks, and the three powers, on few small scenes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import rasterio
import torch
from matplotlib import image

from scadl_core.record.runfolder import RunFolder

TINY = (
    "data.sample.train_scenes=2",
    "data.sample.test_scenes=1",
    "data.sample.pixels=96",
    "data.crop=12",
    "model.width=4",
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=3",
    "trainer.accelerator=cpu",
)
EDSR = (*TINY, "model.blocks=1")


def done(outcome: Any) -> Any:
    assert (outcome.status, outcome.err) == (0, "")
    return outcome


@pytest.fixture(scope="module")
def run(run_of: Callable[[str, Sequence[str]], Path]) -> Path:
    return run_of("remote_sensing", EDSR)


def scene_of(sample_data: Path) -> Path:
    return next((sample_data / "remote_sensing").glob("sample-2-1-96-*/test/*.tif"))


def test_a_run_is_evaluated_checked_exported(
    run: Path, scadl: Callable[..., Any], workplace: Path, sample_data: Path
) -> None:
    metrics = RunFolder(run).load_metrics()
    assert metrics["test/bicubic_psnr"] == pytest.approx(metrics["baseline/psnr"], rel=1e-9)
    done(scadl("evaluate", "remote_sensing", f"run.dir={run}", "output=again.json"))
    again = json.loads((workplace / "again.json").read_text())
    assert again["psnr"] == pytest.approx(metrics["test/psnr"], rel=1e-6)
    scene = scene_of(sample_data)
    said = done(scadl("check", "remote_sensing", "data=raster", f"data.path={scene}"))
    assert "[blue, green, red, nir]" in Path("scadl_configs/data/scene_000.yaml").read_text()
    assert "x 0.0001 + -0.1 (file)" in said.out
    done(scadl("export", "remote_sensing", f"run.dir={run}", "format=onnx", "output=m.onnx"))
    about = json.loads((workplace / "m.json").read_text())
    assert about["inputs"] == {"image": {"shape": ["samples", 4, 64, 64], "dtype": "float32"}}
    given = np.random.default_rng(0).random((1, 4, 64, 64), np.float32)
    (fine,) = onnxruntime.InferenceSession("m.onnx").run(None, {"image": given})
    assert fine.shape == (1, 4, 256, 256)


def test_predictions_and_figures_of_a_run_can_be_looked_at(run: Path) -> None:
    (written,) = (run / "predictions").glob("*.tif")
    with rasterio.open(written) as file:
        assert file.shape == (384, 384)
        assert file.descriptions == ("blue", "green", "red", "nir")
        assert file.transform.a == 0.625
    page = (run / "report.html").read_text(encoding="utf-8")
    for name in ("sample_0", "spectra", "detail", "seams", "map"):
        pixels = image.imread(run / "figures" / f"{name}.png")[..., :3]
        assert pixels.std() > 0.05, name
    assert "Mean spectra of kinds of ground" in page


@pytest.mark.parametrize(
    "words",
    [
        ("model=rcan", "model.groups=1", "model.blocks=1", "task.loss=charbonnier+0.1*ssim"),
        ("model=swinir", "model.depths=[2]", "model.heads=2", "model.window=4", "data.scale=3"),
        ("model.blocks=2", "memory=adaptive", "task.loss=l1+0.1*sam+consistency"),
        ("model.blocks=2", "optimizer=kfac", "optimizer.lr=0.01", "data.scale=2"),
        ("experiment=deep", "model.blocks=6", "model.width=4", "solver.blocks=3"),
    ],
    ids=["rcan", "swinir", "memory", "kfac", "admm"],
)
def test_networks_and_powers_train(
    words: Sequence[str], run_of: Callable[[str, Sequence[str]], Path]
) -> None:
    folder = RunFolder(run_of("remote_sensing", (*TINY, "figures.num_samples=0", *words)))
    metrics = folder.load_metrics()
    assert np.isfinite(metrics["test/psnr"])
    weights = folder.load_checkpoint("best", "remote_sensing")["state_dict"]
    last = [it for name, it in weights.items() if name.startswith("network.up") and it.ndim > 1][-1]
    assert bool(torch.any(last != 0)), "it was 0 at first"
    if "memory=adaptive" in words:
        assert metrics["memory/saved_bytes"] < metrics["memory/saved_bytes_uncompressed"]
