"""Every real file is trained on and predicted, or refused with one clear message; nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from rio_cogeo.cogeo import cog_validate

from apps.remote_sensing.data import SceneData
from apps.remote_sensing.predict import predict_files
from apps.remote_sensing.raster import quiet
from apps.remote_sensing.scenes import Reading, find_scenes
from scadl_core.errors import DataError
from tests.apps.remote_sensing.conftest import PROVENANCE, untrained

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data" / "remote_sensing"
FILES = sorted(
    str(path.relative_to(FOLDER))
    for path in FOLDER.rglob("*")
    if path.is_file() and path.name != "SOURCES.md"
)
PALETTE, NOTHING = "colour table", "no valid pixel in the train split"
REFUSED = {
    "all-nodata.tif": NOTHING,
    "cog_cmap.tif": PALETTE,
    "corrupt.tif": r"corrupt\.tif: cannot be read .*IReadBlock failed",
    "float_nan.tif": "'val' has no ground",
    "image_colormap.tif": PALETTE,
    "landsat8_elkton/L8-BQA-Elkton-VA.tiff": "no band shows the ground",
    "inverted_lat.tif": NOTHING,  # -9999 everywhere
    "lc.tif": PALETTE,
    "sentinel2/REFERENCE_SCENES.npy": "write it as a GeoTIFF with rasterio",
}
# What reading has to give: the names of the bands, and the share of pixels with a value.
READ = {
    "RGB.byte.tif": (["red", "green", "blue"], 0.675),
    "RGBA.byte.tif": (["red", "green", "blue"], 0.675),
    "RGBA.uint16.tif": (["blue", "green", "red"], 0.48),
    "L7_ETMs.tif": ([f"band_{n}" for n in range(1, 7)], 1.0),
    "naip_hr/m_3211605_ne_11_060_20200415.tif": (["red", "green", "blue", "band_4"], 1.0),
    "image_tags.tif": (["first band", "second band", "third band"], 1.0),
    "landsat8_elkton/L8-B8-Elkton-VA.tiff": (["B8"], 1.0),
    "PLANET_SCOPE_3D.nc": (["blue", "green"], 1.0),
}
WORDS: dict[str, Any] = {"scale": 2, "crop": 8, "window": 32, "split": {"gap": 0}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics from few crops: JPEG and the like have to be read from their start for each."""
    monkeypatch.setattr("apps.remote_sensing.data.MEASURED", 12)


def prepared(path: Path) -> tuple[SceneData, Any]:
    data = SceneData(path, **WORDS)
    task = untrained(data.facts())
    data.report()
    batch = {
        name: torch.from_numpy(it)[None]
        for name, it in data.samples("train").read(0, np.random.default_rng(0)).items()
    }
    loss = task.loss.value(task._losses(task(batch["lr_CHW"]), batch))
    loss.backward()
    assert torch.isfinite(loss)
    return data, task


@pytest.mark.skipif(not FILES, reason="the real files are not there")
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_used_or_refused(name: str, tmp_path: Path) -> None:
    path = FOLDER / name
    if name in REFUSED:
        with pytest.raises(DataError, match=REFUSED[name]) as caught:
            data, task = prepared(path)
            predict_files(task, path, tmp_path / "out.tif", PROVENANCE)
        assert "\n" not in str(caught.value)
        return
    data, task = prepared(path)
    if path.stat().st_size < 290_000 and path.suffix not in (
        ".jp2",
        ".jpg",
    ):  # the others in the soak test
        check_prediction(path, data, task, tmp_path)


@pytest.mark.soak
@pytest.mark.skipif(not FILES, reason="the real files are not there")
@pytest.mark.parametrize("name", [name for name in FILES if name not in REFUSED])
def test_every_file_is_predicted_whole(name: str, tmp_path: Path) -> None:
    check_prediction(FOLDER / name, *prepared(FOLDER / name), tmp_path)


def check_prediction(path: Path, data: SceneData, task: Any, tmp_path: Path) -> None:
    """Same ground, same gaps, same kind of file; a valid COG."""
    scenes = [scene.select(data.inputs) for scene in find_scenes(path, Reading())]
    output = tmp_path / "out.tif" if len(scenes) == 1 else tmp_path
    written = predict_files(task, path, output, PROVENANCE)
    outputs = [written] if len(scenes) == 1 else sorted(written.glob("*.tif"))
    for scene, file in zip(scenes, outputs, strict=True):
        with quiet():
            assert cog_validate(str(file), strict=True) == (True, [], [])
        height, width = scene.grid.height, scene.grid.width
        with quiet(), rasterio.open(file) as fine, rasterio.open(scene.bands[0].path) as source:
            assert fine.shape == (2 * height, 2 * width)
            assert fine.dtypes[0] == source.dtypes[0]
            assert len(fine.gcps[0]) == len(source.gcps[0])
            systems = [it.gcps[1] if it.gcps[0] else it.crs for it in (fine, source)]
            assert systems[0] == systems[1]
            np.testing.assert_equal(fine.nodata, source.nodata)
            for corner in ((0, 0), (width, 0), (width, height), (0, height)):
                there = fine.transform * (2 * corner[0], 2 * corner[1])
                expected = corner if source.transform.is_identity else ~source.transform * there
                np.testing.assert_allclose(expected, corner, atol=1e-6)
            numbers = fine.read(list(range(1, len(scene.bands) + 1)))
            gap = np.isnan(scene.read(slice(0, height), slice(0, width)))
            gap = gap.repeat(2, 1).repeat(2, 2)
            if fine.nodata is not None:
                same = np.isnan(numbers) if np.isnan(fine.nodata) else numbers == fine.nodata
                np.testing.assert_array_equal(same, gap)
            else:
                np.testing.assert_array_equal(fine.dataset_mask() == 0, gap.all(0))


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_what_is_there(name: str, shared_data: Path) -> None:
    scene, *_ = find_scenes(shared_data / "remote_sensing" / name, Reading())
    names, share = READ[name]
    assert scene.names == names
    values = scene.read(slice(0, scene.grid.height), slice(0, scene.grid.width))
    assert np.isfinite(values).mean() == pytest.approx(share, abs=0.01)


def test_bands_of_landsat_are_one_scene_and_its_pan_band_a_pair(shared_data: Path) -> None:
    folder = shared_data / "remote_sensing" / "landsat8_elkton"
    data = SceneData(folder, inputs=["B2", "B3", "B4", "B5"], scale=2, crop=8, window=32)
    assert [view.name for view in data.views] == ["L8-bands-Elkton-VA"]
    assert "L8-Labels-Elkton-VA has no band 'B2'" in " ".join(data.report().warnings)
    # 371 x 337 pixels for 186 x 169: the ratio is 1.995, the ground is the same.
    words = {"bands": ["grey"], "crop": 8, "window": 32}
    pair = SceneData(
        folder / "L8-B4-Elkton-VA.tiff", target=folder / "L8-B8-Elkton-VA.tiff", scale=2, **words
    )
    (shift,) = pair.shifts.values()
    assert max(map(abs, shift)) < 0.5
    coarse, fine = pair.views[0].read(slice(20, 150), slice(20, 150))
    blocks = fine.reshape(130, 2, 130, 2).mean((1, 3))
    assert np.corrcoef(coarse.ravel(), blocks.ravel())[0, 1] > 0.9


def test_parts_of_a_split_scene_join_to_the_whole(shared_data: Path) -> None:
    folder = shared_data / "remote_sensing"
    parts = [folder / "mosaic" / name for name in ("rgb1.tif", "rgb2.tif")]
    (mosaic,) = find_scenes(parts, Reading(mosaic=True))
    (whole,) = find_scenes(folder / "RGB.byte.tif", Reading())
    window = slice(0, mosaic.grid.height), slice(0, mosaic.grid.width)
    np.testing.assert_array_equal(mosaic.read(*window), whole.read(*window))
