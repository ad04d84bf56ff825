"""Probabilities of a map, whole and in tiles; what a finished run says of events."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from apps.climate.model import UNet
from apps.climate.task import Segmentation
from scadl_core.comm import World
from scadl_core.workflow.tiles import Tiles

FACTS = {
    "classes": ["calm", "storm"],
    "class_fraction_K": [0.9, 0.1],
    "mean_C": [100.0, -3.0],
    "std_C": [5.0, 2.0],
}


@pytest.mark.parametrize("periodic", [True, False])
def test_tiles_of_a_map_in_physical_units_equal_the_whole(periodic: bool) -> None:
    torch.manual_seed(0)
    network = UNet(2, 2, width=4, depth=1)
    task = Segmentation("jaccard", "none", 2.0, network=network, facts=FACTS, world=World()).eval()
    image_CHW = np.random.default_rng(0).normal(size=(2, 55, 61)).astype(np.float32)
    image_CHW = image_CHW * [[[5]], [[2]]] + [[[100]], [[-3]]]
    image_CHW[1, 20:25, 30:50] = np.nan
    image_CHW = image_CHW.astype(np.float32)
    whole_KHW = task.probabilities(image_CHW, periodic)
    network.periodic = periodic
    with torch.no_grad():
        expected_KHW = task(torch.from_numpy(image_CHW)[None])[0].softmax(0).numpy()
    np.testing.assert_array_equal(whole_KHW, expected_KHW)
    network.periodic = not periodic
    tiled_KHW = task.probabilities(image_CHW, periodic, Tiles(network, 2, tile=8))
    assert network.periodic is not periodic
    np.testing.assert_allclose(tiled_KHW, whole_KHW, rtol=0, atol=1e-5)


def test_keys_of_prediction(
    scadl: Callable[..., object], trained: Path, sample_folder: Path, workplace: Path
) -> None:
    """A map so wide that the margins leave room for tiles."""
    with xr.open_dataset(next((sample_folder / "test").glob("*.nc"))) as narrow:
        lon = next(name for name in narrow.sizes if name.startswith("lon"))
        wide = xr.concat([narrow] * 6, lon, data_vars="minimal")
        wide = wide.assign_coords({lon: np.arange(288) * 1.25}).load()
    wide[lon].attrs = {"units": "degrees_east"}
    wide.to_netcdf("wide.nc")
    words = ("predict", "climate", f"run.dir={trained}", "input=wide.nc")
    for name, more in {"whole": (), "tiled": ("predict.tile=48",)}.items():
        done = scadl(*words, f"output={name}.nc", *more)
        assert (done.status, done.err) == (0, "")
    with xr.open_dataset("whole.nc") as whole, xr.open_dataset("tiled.nc") as tiled:
        for name in ("probability_background", "probability_atmospheric_river"):
            assert not np.array_equal(tiled[name], whole[name])  # sums of norms round otherwise
            np.testing.assert_allclose(tiled[name], whole[name], rtol=0, atol=1e-5)
    for key, expected in (
        ("tile", "null or a whole number of pixels, at least 1"),
        ("memory_GiB", "more than 0"),
    ):
        refused = scadl(*words, "output=no.nc", f"predict.{key}=0")
        assert refused.status == 2
        assert refused.err.startswith(f"scadl: predict.{key}: expected {expected}, got 0")
    assert not Path("no.nc").exists()


def test_scores_by_objects_agree_with_the_tables(trained: Path) -> None:
    metrics = json.loads((trained / "metrics.json").read_text())
    assert 0 <= metrics["test/ece"] <= 1
    tables = {}
    for name in ("labelled", "predicted"):
        text = (trained / "figures" / f"events_{name}.csv").read_text()
        tables[name] = [row["class"] for row in csv.DictReader(text.splitlines())]
    checked = 0
    for event in ("tropical_cyclone", "atmospheric_river"):
        truth, said = (tables[name].count(event) for name in ("labelled", "predicted"))
        assert truth > 0
        hits = metrics[f"test/pod_{event}"] * truth
        assert hits == pytest.approx(round(hits), abs=1e-9)
        if said:
            assert (1 - metrics[f"test/far_{event}"]) * said == pytest.approx(hits, abs=1e-9)
        checked += said
    assert checked == len(tables["predicted"])
    assert not [name for name in metrics if "pod" in name and not name.startswith("test/")]


def test_the_report_links_the_tables(trained: Path) -> None:
    page = (trained / "report.html").read_text(encoding="utf-8")
    for name in ("figures/events_labelled.csv", "figures/events_predicted.csv"):
        assert f'<a href="{name}">' in page
        assert (trained / name).is_file()
