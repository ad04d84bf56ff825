"""Which ground is learned from: splits, crops, statistics, pairs, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affine import Affine

from apps.remote_sensing.data import SceneData
from apps.remote_sensing.propose import propose
from apps.remote_sensing.raster import close_all
from apps.remote_sensing.samples import FILL_REACH, fill
from apps.remote_sensing.sensor import Sensor
from scadl_core.errors import ConfigError, DataError
from tests.apps.remote_sensing.conftest import UTM, smooth

Write = Callable[..., Path]
SMALL = {"scale": 2, "crop": 8, "window": 16}


def test_ground_of_a_split_is_in_no_other(write: Write) -> None:
    path = write("a.tif", smooth(0, 1, 60, 200))
    data = SceneData(path, **SMALL, split={"val": 0.2, "test": 0.3, "gap": 4})
    columns = {name: data.regions[name][0].columns for name in ("train", "val", "test")}
    assert data.split["by"] == "area"
    assert columns == {"train": slice(0, 46), "val": slice(50, 66), "test": slice(70, 100)}
    for split, region in columns.items():
        crops = data.samples(split)
        for index in range(len(crops)):
            for rng in (None, np.random.default_rng(index)):
                sample = crops.read(index, rng)
                assert sample["lr_CHW"].shape == (1, crops.size, crops.size)
                assert sample["hr_CHW"].shape == (1, 2 * crops.size, 2 * crops.size)
        covered = {crops.places[n][2] for n in range(len(crops))}
        assert min(covered) == region.start
        assert max(covered) + crops.size >= region.stop


def test_scenes_are_dealt_out_by_folder_or_in_order(write: Write) -> None:
    names = ("train/a.tif", "train/b.tif", "train/c.tif", "test/d.tif")
    for number, name in enumerate(names):
        path = write(name, smooth(number, 1, 40, 40))
    data = SceneData(path.parents[1], **SMALL)
    views = {name: [data.views[it.view].name for it in data.regions[name]] for name in data.regions}
    assert data.split["by"] == "folder"
    assert views == {"train": ["a", "b"], "val": ["c"], "test": ["d"]}
    data = SceneData(path.parents[1], **SMALL, split={"by": "scene", "test": 0.25, "val": 0.25})
    counts = {name: len(data.regions[name]) for name in data.regions}
    assert counts == {"train": 2, "val": 1, "test": 1}
    assert len(data.samples("all")) == 16
    with pytest.raises(DataError, match="put scenes into a folder test/"):
        SceneData(path.parents[1] / "train", **SMALL, split={"by": "folder"})


def test_a_sample_is_what_the_sensor_sees_of_the_scene(write: Write) -> None:
    image = smooth(1, 2, 64, 64)
    path = write("a.tif", image)
    data = SceneData(path, **SMALL, white=2.0, sensor={"snr": None}, statistics=None)
    seen = Sensor(2, snr=None).observe(image) / 2
    crops = data.samples("all")
    for index in range(len(crops)):
        _, row, column = crops.places[index]
        sample = crops.read(index, None)
        np.testing.assert_allclose(
            sample["lr_CHW"], seen[:, row : row + 16, column : column + 16], atol=1e-6
        )
        fine = image[:, 2 * row : 2 * row + 32, 2 * column : 2 * column + 32]
        np.testing.assert_allclose(sample["hr_CHW"], fine / 2, atol=1e-6)
    turned = [data.samples("train").read(0, np.random.default_rng(n)) for n in range(8)]
    assert len({it["hr_CHW"].tobytes() for it in turned}) == 8
    for it in turned:  # both are turned alike
        again = Sensor(2, snr=None).observe(it["hr_CHW"] * 2) / 2
        np.testing.assert_allclose(again[:, 3:-3, 3:-3], it["lr_CHW"][:, 3:-3, 3:-3], atol=1e-5)


def test_crops_avoid_gaps_and_clouds(write: Write) -> None:
    image = (smooth(2, 1, 128, 128) * 1000).astype(np.uint16)
    image[:, :, :80] = 0
    write("s/x_B02.tif", image, nodata=0)
    classes = np.full((1, 128, 128), 4, np.uint8)
    classes[:, 64:] = 9
    folder = write("s/x_SCL.tif", classes).parent
    words = {**SMALL, "split": {"by": "area", "val": 0, "test": 0}, "valid": 0.6}
    shares = {}
    for name, clouds in (("gaps", {}), ("clouds", {"band": "SCL", "values": [9]})):
        crops = SceneData(folder, clouds=clouds, **words).samples("train")
        drawn = [crops.read(n, np.random.default_rng(n)) for n in range(60)]
        shares[name] = [it["valid_CHW"].mean() for it in drawn]
        plain = [crops.read(n, None)["valid_CHW"].mean() for n in range(len(crops))]
        assert np.mean(shares[name]) > 1.5 * np.mean(plain)
    assert np.mean(np.array(shares["gaps"]) >= 0.6) > 0.8
    assert not any(it["lr_valid_CHW"][~it["valid_CHW"][:, ::2, ::2]].any() for it in drawn)


def test_filled_gaps_do_not_depend_on_the_window() -> None:
    image = smooth(3, 2, 80, 70)
    rng = np.random.default_rng(0)
    image[rng.random(image.shape) < 0.2] = np.nan
    image[:, 20:60, 10:50] = np.nan
    level = np.array([0.1, 0.2])
    whole = fill(image, level)
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(whole[np.isfinite(image)], image[np.isfinite(image)])
    rows, columns, reach = slice(15, 43), slice(22, 60), FILL_REACH
    wide = fill(image[:, rows.start - reach : rows.stop + reach, columns.start - reach :], level)
    inner = wide[:, reach:-reach, reach : reach + 38]
    np.testing.assert_array_equal(inner, whole[:, rows, columns])
    assert np.allclose(whole[:, 40, 30], level)
    assert fill(whole, level) is whole


def test_statistics_are_of_valid_training_pixels(write: Write, tmp_path: Path) -> None:
    image = (1000 + 100 * smooth(4, 2, 40, 160)).astype(np.uint16)
    image[:, :, 100:] = 60000  # not in train
    image[:, :10] = 0
    path = write("a.tif", image, nodata=0)
    words: dict[str, Any] = {**SMALL, "split": {"val": 0.2, "test": 0.2, "gap": 0}}
    data = SceneData(path, **words, statistics=str(tmp_path / "kept"))
    train = image[:, 10:, :96]
    assert data.statistics["max_C"].max() < 1200
    np.testing.assert_allclose(data.statistics["mean_C"], train.mean((1, 2)), rtol=0.01)
    white, origin = data.white
    assert (origin, white) == ("measured", pytest.approx(np.quantile(train, 0.999), rel=0.01))
    assert "white is the value of" in " ".join(data.report().warnings)
    assert len(list((tmp_path / "kept").iterdir())) == 1
    again = SceneData(path, **words, statistics=str(tmp_path / "kept"))
    np.testing.assert_array_equal(again.statistics["mean_C"], data.statistics["mean_C"])


def test_scenes_of_different_meaning_are_not_mixed(write: Write) -> None:
    write("s/a.tif", (smooth(0, 1, 40, 40) * 255).astype(np.uint8))
    path = write("s/b.tif", (smooth(0, 1, 40, 40) * 9000).astype(np.uint16))
    with pytest.raises(DataError, match=r"8-bit and measured; set data\.white"):
        _ = SceneData(path.parent, **SMALL).white
    assert SceneData(path.parent, **SMALL, white=300.0).white == (300.0, "given")


@pytest.mark.parametrize("shift", [(0.0, 0.0), (0.4, -0.7), (2.3, 1.6)])
def test_pairs_are_registered_to_a_fraction_of_a_pixel(
    write: Write, shift: tuple[float, float]
) -> None:
    rng = np.random.default_rng(5)
    ground = smooth(5, 2, 240, 240) + 0.1 * rng.standard_normal((2, 240, 240), np.float32)
    fine = ground[:, 20:-20, 20:-20]
    coarse = Sensor(4).observe(ground)[:, 5:-5, 5:-5]
    write("hr/a.tif", fine, transform=UTM)
    wrong = UTM * Affine.translation(-shift[1] * 4, -shift[0] * 4) * Affine.scale(4)
    path = write("lr/a.tif", coarse, transform=wrong)
    data = SceneData(path, target=path.parents[1] / "hr", crop=12, window=24)
    # The coarse file says it lies further up and left than it does.
    assert data.shifts["a"] == pytest.approx([-it for it in shift], abs=0.06)
    rows, columns = slice(10, 30), slice(10, 30)
    _, found = data.views[0].read(rows, columns)
    error = np.abs(found - fine[:, 40:120, 40:120]).mean()
    without = SceneData(path, target=path.parents[1] / "hr", crop=12, register=False)
    blind = np.abs(without.views[0].read(rows, columns)[1] - fine[:, 40:120, 40:120]).mean()
    assert error < (0.035 if any(shift) else 2e-3)
    if any(shift):
        assert error < 0.5 * blind
    assert "shift of pairs (rows, columns)" in data.report().facts
    sample = data.samples("train").read(0, np.random.default_rng(0))
    assert sample["hr_CHW"].shape == (2, 48, 48)


def test_pairs_are_found_by_their_ground(write: Write) -> None:
    for number in range(3):
        place = UTM * Affine.translation(200 * number, 0)
        write(f"hr/{'cab'[number]}.tif", smooth(number, 1, 80, 80), transform=place)
        path = write(
            f"lr/{number}.tif", smooth(number, 1, 20, 20), transform=place * Affine.scale(4)
        )
    words = {"target": path.parents[1] / "hr", "register": False, "crop": 8}
    data = SceneData(path.parent, **words)
    assert [view.scenes[1].name for view in data.views] == ["c", "a", "b"]
    half = write("half/hr/h.tif", smooth(0, 1, 80, 40) + 1)
    view = SceneData(path.parent / "0.tif", **{**words, "target": half}).views[0]
    _, fine = view.read(slice(0, 20), slice(0, 20))
    assert np.isnan(fine[:, :, 42:]).all(), "beyond the file there is nothing"
    np.testing.assert_allclose(fine[:, :, :36], smooth(0, 1, 80, 40)[:, :, :36] + 1, atol=1e-5)
    far = write("far/x.tif", smooth(0, 1, 20, 20), transform=UTM * Affine.translation(9000, 0))
    with pytest.raises(DataError, match=r"none of data\.target shows the ground of x"):
        SceneData(far, **words)
    nowhere: dict[str, Any] = {"crs": None, "transform": Affine.identity()}
    fine = smooth(0, 1, 64, 64)
    write("n/hr/q.tif", fine, **nowhere)
    bare = write("n/lr/q.tif", Sensor(4, shift=(0.3, -0.6)).observe(fine), **nowhere)
    SceneData(bare, target=bare.parents[1] / "hr", register=False, crop=8)
    view, shift = SceneData(bare, target=bare.parents[1] / "hr", crop=8).views[0].registered()  # type: ignore[attr-defined]
    assert max(map(abs, shift)) < 0.2, "it was shifted already"
    assert np.isfinite(view.read(slice(4, 12), slice(4, 12))[1]).mean() > 0.9
    write("n/hr/q.tif", smooth(0, 1, 60, 64), **nowhere)
    close_all()
    with pytest.raises(DataError, match="60 x 64 for 16 x 16 is not 4 times as many pixels"):
        SceneData(bare, target=bare.parents[1] / "hr", crop=8)


def test_scenes_that_lack_a_band_are_named_not_used(write: Write) -> None:
    def named(*names: str) -> Any:
        return lambda file: setattr(file, "descriptions", names)

    write("s/a.tif", smooth(0, 2, 64, 64), named("red", "nir"))
    path = write("s/b.tif", smooth(0, 1, 64, 64), named("red"))
    data = SceneData(path.parent, inputs=["red", "nir"], **SMALL)
    assert len(data.views) == 1
    assert "not used: b has no band 'nir'" in " ".join(data.report().warnings)
    with pytest.raises(DataError, match="has no band 'swir'"):
        SceneData(path.parent, inputs=["swir"], **SMALL)
    report, values = propose(path.parent)
    assert values["inputs"] == ["red"]
    assert report.tables[0].rows[0][:2] == ("a", "64 x 64")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"weight": "area"}, "data.weight"),
        ({"crop": 2}, "data.crop"),
        ({"white": -2.0}, "data.white"),
        ({"split": {"by": "scenes"}}, "did you mean 'scene'"),
        ({"split": {"val": 0.6, "test": 0.5}}, "below 1"),
        ({"split": {"gap": -1}}, "data.split.gap"),
        ({"split": {"part": 1}}, "data.split.part is unknown"),
        ({"sensor": {"mtf": [0.2, 0.3, 0.2]}}, "expected one number or 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(write: Write, words: dict, said: str) -> None:
    path = write("a.tif", smooth(0, 1, 64, 64))
    with pytest.raises(ConfigError, match=said):
        SceneData(path, **{**SMALL, **words})


def test_a_scene_without_a_valid_pixel_says_so(write: Write) -> None:
    path = write("a.tif", np.zeros((2, 64, 64), np.uint16), nodata=0)
    with pytest.raises(DataError, match=r"a: band_1, band_2 has no valid pixel in the train split"):
        SceneData(path, **SMALL).facts()
