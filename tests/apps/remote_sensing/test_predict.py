"""Predictions: the same ground, the same gaps, the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.rpc import RPC
from rio_cogeo.cogeo import cog_validate

from apps.remote_sensing import predict as module
from apps.remote_sensing.cog import Form
from apps.remote_sensing.predict import predict_files
from apps.remote_sensing.raster import quiet
from apps.remote_sensing.task import SuperResolution
from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError
from tests.apps.remote_sensing.conftest import PROVENANCE, UTM, smooth, task_for, untrained

Write = Callable[..., Path]


def stored(seed: int, *shape: int) -> np.ndarray:
    """A uint16 image with gaps (0) in a corner and here and there, in one band or in all."""
    image = (smooth(seed, *shape) * 10000).astype(np.uint16)
    rng = np.random.default_rng(seed)
    image[:, : shape[1] // 3, : shape[2] // 4] = 0
    image[rng.random(shape) < 0.02] = 0
    return image


def predicted(task: SuperResolution, path: Path, **words: Any) -> Path:
    return predict_files(task, path, path.parent / "out.tif", PROVENANCE, **words)


def read(path: Path) -> np.ndarray:
    with quiet(), rasterio.open(path) as file:
        return file.read()


def test_a_pixel_is_nodata_where_the_one_that_contains_it_is(write: Write) -> None:
    image = stored(1, 3, 37, 29)
    path = write("a.tif", image, nodata=0)
    for scale in (2, 3, 4):
        fine = read(predicted(task_for(path, scale=scale, nodata=0), path, tile=16))
        expected = (image == 0).repeat(scale, 1).repeat(scale, 2)
        np.testing.assert_array_equal(fine == 0, expected)
        coarse = fine.reshape(3, 37, scale, 29, scale).astype(float).mean((2, 4))
        there = image > 0
        assert np.corrcoef(coarse[there], image[there])[0, 1] > 0.9


@given(
    numbers=arrays.arrays(np.float64, 40, elements=st.floats(-1e5, 1e5)),
    kind=st.sampled_from(["uint8", "int16", "uint16", "float32"]),
    nodata=st.sampled_from([0, 255, -9999, None]),
)
def test_no_valid_number_ever_means_nodata(
    numbers: np.ndarray, kind: str, nodata: float | None
) -> None:
    dtype = np.dtype(kind)
    if nodata is not None and dtype.kind == "u" and nodata < 0:
        return
    one = np.ones(1)
    form = Form(dtype, nodata, one, 0 * one, None, None)
    gap = np.arange(40) % 3 == 0
    found = form.encode(numbers.reshape(1, 5, 8), gap.reshape(1, 5, 8)).ravel()
    if nodata is None:
        assert (found[gap] == 0).all()
    else:
        np.testing.assert_array_equal(found == nodata, gap)
    limits = np.iinfo(dtype) if dtype.kind != "f" else np.finfo(dtype)
    near = np.abs(found[~gap] - numbers[~gap].clip(limits.min, limits.max))
    assert near.max() <= (1.5 if dtype.kind != "f" else 0.01)


def test_the_file_keeps_all_that_it_says_of_itself(write: Write) -> None:
    image = stored(2, 2, 30, 40)

    def about(file: Any) -> None:
        file.scales, file.offsets = (1e-4, 2e-4), (-0.1, 0.0)
        file.descriptions, file.units = ("red edge", "nir"), ("1", "percent")
        file.update_tags(PLATFORM="S2", AREA_OR_POINT="Point")
        file.update_tags(2, WAVELENGTH="842", STATISTICS_MEAN="7")

    path = write("a.tif", image, about, nodata=0)
    with rasterio.open(predicted(task_for(path), path)) as file:
        assert file.descriptions == ("red edge", "nir")
        assert file.units == ("1", "percent")
        assert (file.scales, file.offsets) == ((1e-4, 2e-4), (-0.1, 0.0))
        assert (file.nodata, file.dtypes[0]) == (0, "uint16")
        tags = file.tags()
        assert tags["PLATFORM"] == "S2"
        assert tags["AREA_OR_POINT"] == "Point"
        assert file.tags(2) == {"WAVELENGTH": "842"}
        assert {it for it in tags if it.startswith("SCADL_")} == {
            f"SCADL_{it}"
            for it in ("VERSION", "GIT_COMMIT", "MODEL", "WEIGHTS", "SEED", "SCALE", "INPUTS")
        }
        assert file.crs == CRS.from_epsg(32631)
        assert file.bounds == rasterio.open(path).bounds


@pytest.mark.parametrize(
    ("transform", "crs"),
    [
        (UTM, "EPSG:32631"),
        (UTM * Affine.rotation(33), "EPSG:32631"),
        (Affine(1.5, -5, 1841001.75, -5, -1.5, 1144003.25), "EPSG:32611"),
        (Affine(0.5, 0, -180, 0, 0.5, -90), "EPSG:4326"),  # the south is up
        (Affine(17.32, 5, 100, 10, -8.66, 200), None),
    ],
)
@pytest.mark.parametrize("scale", [2, 3])
def test_corners_stay_where_they_were(
    write: Write, transform: Affine, crs: str | None, scale: int
) -> None:
    path = write("a.tif", stored(3, 1, 19, 23), transform=transform, crs=crs)
    with quiet(), rasterio.open(predicted(task_for(path, scale=scale), path)) as file:
        assert file.shape == (19 * scale, 23 * scale)
        assert file.crs == (CRS.from_string(crs) if crs else None)
        for corner in ((0, 0), (23, 0), (23, 19), (0, 19)):
            there = file.transform * (corner[0] * scale, corner[1] * scale)
            np.testing.assert_allclose(~transform * there, corner, atol=1e-6)


def test_points_and_polynomials_are_scaled(write: Write) -> None:
    points = [
        GroundControlPoint(row, column, column * 0.1 + 5, 50 - row * 0.1, 0)
        for row in (0, 9.5, 20)
        for column in (0, 30)
    ]

    def about(file: Any) -> None:
        file.gcps = points, CRS.from_epsg(4326)

    path = write("a.tif", stored(4, 1, 20, 30), about, crs=None, transform=None)
    with quiet(), rasterio.open(predicted(task_for(path), path)) as file:
        found, system = file.gcps
        assert system == CRS.from_epsg(4326)
        assert [(it.row, it.col, it.x, it.y) for it in found] == [
            (it.row * 2, it.col * 2, it.x, it.y) for it in points
        ]
    zeros = [0.0] * 19
    rpcs = RPC(
        line_off=9.5, samp_off=14.5, lat_off=50, long_off=5, height_off=0, line_scale=10,
        samp_scale=15, lat_scale=1, long_scale=1, height_scale=100, line_num_coeff=[0, *zeros],
        line_den_coeff=[1, *zeros], samp_num_coeff=[0, *zeros], samp_den_coeff=[1, *zeros],
        err_bias=None, err_rand=None,
    )  # fmt: skip

    def with_rpcs(file: Any) -> None:
        file.rpcs = rpcs

    path = write("b.tif", stored(4, 1, 20, 30), with_rpcs, crs=None, transform=None)
    with quiet(), rasterio.open(predicted(task_for(path), path)) as file:
        # The middle of the image is the middle of the image: pixel 9.5 of 20 is 19.5 of 40.
        assert (file.rpcs.line_off, file.rpcs.samp_off) == (19.5, 29.5)
        assert (file.rpcs.line_scale, file.rpcs.samp_scale) == (20, 30)


def test_alpha_and_masks_are_kept(write: Write) -> None:
    image = (smooth(5, 4, 20, 30) * 200).astype(np.uint8)
    image[3] = 255
    image[3, :, :7] = 0
    path = write("a.tif", image, alpha="yes", photometric="RGB")
    with rasterio.open(predicted(task_for(path), path)) as file:
        assert [it.name for it in file.colorinterp] == ["red", "green", "blue", "alpha"]
        np.testing.assert_array_equal(file.read(4), image[3].repeat(2, 0).repeat(2, 1))
    mask = np.where(np.arange(30) < 9, 0, 255).astype(np.uint8) * np.ones((20, 1), np.uint8)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        path = write("b.tif", image[:3], lambda file: file.write_mask(mask))
    with rasterio.open(predicted(task_for(path), path)) as file:
        np.testing.assert_array_equal(file.dataset_mask(), mask.repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize("shape", [(1, 1), (1, 61), (70, 1), (37, 53)])
def test_windows_do_not_show(write: Write, shape: tuple[int, int]) -> None:
    image = smooth(6, 2, *shape)
    image[:, : shape[0] // 2, : shape[1] // 2] = np.nan
    task = untrained({**task_for(write("t.tif", smooth(6, 2, 40, 40))).facts})
    path = write("a.tif", image)
    whole = read(predicted(task, path))
    for tile in (11, 32):
        np.testing.assert_allclose(read(predicted(task, path, tile=tile)), whole, atol=1e-5)


class _Interrupted(Exception):
    pass


def test_an_interrupted_prediction_goes_on_to_the_same_bytes(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.tif", stored(7, 2, 60, 70), nodata=0)
    task = task_for(path)
    expected = predicted(task, path, tile=20).read_bytes()
    save, count = module._Prediction._save, 0

    def stop(self: Any, *arguments: Any) -> None:
        nonlocal count
        save(self, *arguments)
        count += 1
        if count == 5:
            raise _Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(module._Prediction, "_save", stop)
        with pytest.raises(_Interrupted):
            predicted(task, path, tile=20)
    assert predicted(task, path, tile=20).read_bytes() == expected
    assert count == 5
    assert not list(path.parent.glob(".out.*"))


def test_two_ranks_write_the_same_bytes(write: Write, run_ranks: Callable[..., Any]) -> None:
    path = write("a.tif", stored(8, 2, 60, 70), nodata=0)
    task = task_for(path)
    expected = predicted(task, path, tile=20).read_bytes()

    def together() -> int:
        mine = []
        save = module._Prediction._save
        module._Prediction._save = lambda self, *it: (mine.append(it), save(self, *it))[1]  # type: ignore[method-assign]
        predict_files(
            task, path, path.parent / "both.tif", PROVENANCE, tile=20, world=World.start()
        )
        return len(mine)

    assert run_ranks(2, together) == [6, 6]
    assert (path.parent / "both.tif").read_bytes() == expected


def test_windows_without_a_valid_pixel_are_skipped(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = np.zeros((2, 64, 64), np.uint16)
    image[:, 5, 5] = image[:, 40, 63] = 700
    path = write("a.tif", image, nodata=0)
    task = task_for(write("t.tif", stored(9, 2, 40, 40), nodata=0))
    seen = []
    save = module._Prediction._save
    monkeypatch.setattr(
        module._Prediction, "_save", lambda self, *it: (seen.append(it[:2]), save(self, *it))
    )
    fine = read(predicted(task, path, tile=16))
    assert [(rows.start, columns.start) for rows, columns in seen] == [(0, 0), (32, 48)]
    np.testing.assert_array_equal(fine > 0, (image > 0).repeat(2, 1).repeat(2, 2))


@pytest.mark.parametrize("size", [40, 700])
def test_outputs_are_valid_cogs(write: Write, size: int) -> None:
    path = write("a.tif", stored(10, 1, size, size), nodata=0)
    output = predicted(task_for(path), path)
    valid, errors, warnings = cog_validate(str(output), strict=True)
    assert (valid, errors, warnings) == (True, [], [])
    with rasterio.open(output) as file:
        assert bool(file.overviews(1)) == (size == 700)


def test_several_scenes_get_a_folder(write: Write, tmp_path: Path) -> None:
    for name in "ab":
        path = write(f"in/{name}.tif", stored(11, 2, 20, 20), nodata=0)
    task = task_for(path)
    folder = predict_files(task, path.parent, tmp_path / "out", PROVENANCE)
    assert sorted(it.name for it in folder.iterdir()) == ["a_x2.tif", "b_x2.tif"]
    one = predict_files(task, path.parent, tmp_path / "m.tif", PROVENANCE, mosaic=True)
    with rasterio.open(one) as file:
        assert file.shape == (40, 40)
    with pytest.raises(DataError, match="is one file, there are 2 scenes"):
        predict_files(task, path.parent, tmp_path / "o.tif", PROVENANCE)
    with pytest.raises(DataError, match="is an input as well"):
        predict_files(task, path, path, PROVENANCE)


def test_what_numbers_mean_has_to_be_known(write: Write) -> None:
    byte = write("byte.tif", (smooth(1, 2, 20, 20) * 255).astype(np.uint8))
    word = write("word.tif", stored(1, 2, 20, 20), nodata=0)
    task = task_for(byte)
    assert task.facts["white"] == 255
    with pytest.raises(DataError, match=r"word\.tif: does not say .*8-bit values; set predict\.wh"):
        predicted(task, word)
    scaled = read(predicted(task, word, white=10_000.0))
    assert 1000 < np.median(scaled[scaled > 0]) < 9000
    with pytest.raises(ConfigError, match=r"predict\.white"):
        predicted(task, word, white=-1.0)


def test_bands_are_found_by_name_or_in_order(write: Write) -> None:
    def named(*names: str) -> Any:
        return lambda file: setattr(file, "descriptions", names)

    image = smooth(1, 2, 20, 20)
    task = task_for(write("t.tif", image, named("red", "nir")))
    straight = read(predicted(task, write("a.tif", image, named("red", "nir"))))
    np.testing.assert_array_equal(read(predicted(task, write("b.tif", image))), straight)
    turned = predicted(task, write("c.tif", image[::-1].copy(), named("nir", "red")))
    np.testing.assert_array_equal(read(turned), straight)
    with pytest.raises(DataError, match="has no band 'red'"):
        predicted(task, write("d.tif", image, named("green", "nir")))
