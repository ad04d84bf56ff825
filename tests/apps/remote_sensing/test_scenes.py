"""What files say is what is read: names, numbers, gaps, grids, parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine

from apps.remote_sensing.raster import Grid
from apps.remote_sensing.scenes import Reading, Scene, find_scenes
from scadl_core.errors import ConfigError, DataError
from tests.apps.remote_sensing.conftest import UTM, smooth

Write = Callable[..., Path]


def whole(scene: Scene, clear: bool = False) -> np.ndarray:
    return scene.read(slice(0, scene.grid.height), slice(0, scene.grid.width), clear)


def test_numbers_become_physical_values_and_gaps(write: Write) -> None:
    image = np.arange(24, dtype=np.uint16).reshape(2, 3, 4)

    def about(file: rasterio.DatasetReader) -> None:
        file.scales, file.offsets = (0.1, 0.2), (-1.0, 5.0)
        file.descriptions = ("red", "nir")

    (scene,) = find_scenes(write("a.tif", image, about, nodata=3), Reading())
    assert scene.names == ["red", "nir"]
    values = whole(scene)
    expected = image * np.array([0.1, 0.2])[:, None, None] + np.array([-1.0, 5.0])[:, None, None]
    np.testing.assert_allclose(values[image != 3], expected[image != 3], rtol=1e-6)
    assert np.isnan(values[image == 3]).all()
    part = scene.select(["NIR"]).read(slice(1, 3), slice(2, 4))
    np.testing.assert_array_equal(part, values[1:, 1:3, 2:4])


def test_what_is_not_finite_is_a_gap_beside_a_declared_nodata(write: Write) -> None:
    image = np.array([[[0, 1, np.nan], [np.inf, 0.5, 2]]], np.float32)
    (scene,) = find_scenes(write("a.tif", image, nodata=0), Reading())
    expected = np.array([[[np.nan, 1, np.nan], [np.nan, 0.5, 2]]], np.float32)
    np.testing.assert_array_equal(whole(scene), expected)
    (again,) = find_scenes(write("b.tif", image), Reading(nodata=2))
    assert np.isnan(whole(again)[0, 1, 2])


def test_alpha_is_a_mask_unless_it_has_grey_levels(write: Write) -> None:
    image = np.full((4, 6, 5), 100, np.uint8)
    image[3, :2] = 0
    image[3, 2:] = 255
    path = write("a.tif", image, alpha="yes", photometric="RGB")
    (scene,) = find_scenes(path, Reading())
    assert scene.names == ["red", "green", "blue"]
    assert np.isnan(whole(scene)[:, :2]).all()
    assert np.isfinite(whole(scene)[:, 2:]).all()
    (as_band,) = find_scenes(path, Reading(alpha="band"))
    assert as_band.names[3] == "band_4"
    image[3] = np.arange(30).reshape(6, 5)  # near infrared, tagged as alpha
    path = write("b.tif", image, alpha="yes", photometric="RGB")
    (scene,) = find_scenes(path, Reading())
    assert scene.names[3] == "band_4"
    assert "grey levels" in scene.notes[0]
    (as_mask,) = find_scenes(path, Reading(alpha="mask"))
    assert as_mask.alpha is not None
    with pytest.raises(ConfigError, match="did you mean 'band'"):
        Reading(alpha="bande")


def test_a_mask_of_the_file_makes_gaps(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = np.array([[255, 0], [255, 255]], np.uint8)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        path = write("a.tif", np.ones((3, 2, 2), np.uint8), lambda file: file.write_mask(mask))
    (scene,) = find_scenes(path, Reading())
    np.testing.assert_array_equal(np.isnan(whole(scene)), np.broadcast_to(mask == 0, (3, 2, 2)))


def test_bands_in_files_of_their_own_are_one_scene(write: Write) -> None:
    images = {name: smooth(n, 1, 8, 9) for n, name in enumerate(("B02", "B03", "B8A"))}
    for name, image in images.items():
        write(f"scenes/T31_2020_{name}_10m.tif", image)
        write(f"scenes/T32_2020_{name}_10m.tif", image + 1)
    write("scenes/T31_2020_B03_20m.tif", smooth(5, 1, 4, 5), transform=UTM * Affine.scale(2))
    folder = write("scenes/T31_2020_SCL_20m.tif", np.zeros((1, 4, 5), np.uint8),
                   transform=UTM * Affine.scale(2)).parent  # fmt: skip
    one, other = find_scenes(folder, Reading())
    assert one.names == ["B02", "B03", "B8A", "SCL"]
    assert one.images == ["B02", "B03", "B8A"]
    scene = one.select(["B8A", "B02"])
    np.testing.assert_array_equal(whole(scene), np.concatenate([images["B8A"], images["B02"]]))
    np.testing.assert_array_equal(whole(other.select(["B03"])), images["B03"] + 1)


def test_coarser_bands_are_resampled_to_the_finest(write: Write) -> None:
    coarse = np.broadcast_to(np.arange(6, dtype=np.float32) * 2 + 1, (1, 6, 6))
    write("s/x_B02.tif", smooth(0, 1, 12, 12))
    folder = write("s/x_B05.tif", coarse.copy(), transform=UTM * Affine.scale(2)).parent
    (scene,) = find_scenes(folder, Reading())
    values = whole(scene.select(["B02", "B05"]))
    ramp = np.arange(12) + 0.5  # the centre of column n lies at n + 0.5 fine pixels
    np.testing.assert_allclose(
        values[1, :, 3:-3], np.broadcast_to(ramp, (12, 12))[:, 3:-3], atol=1e-4
    )


def test_clouds_are_left_out_where_asked(write: Write) -> None:
    write("s/x_B02.tif", np.ones((1, 4, 4), np.uint16))
    classes = np.array([[[4, 9], [8, 4]]], np.uint8)
    folder = write("s/x_SCL.tif", classes, transform=UTM * Affine.scale(2)).parent
    (scene,) = find_scenes(folder, Reading(), clouds={"band": "SCL", "values": [8, 9]})
    cloudy = np.isin(classes[0], [8, 9]).repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(np.isnan(whole(scene, clear=True)[0]), cloudy)
    assert np.isfinite(whole(scene)).all()
    (scene,) = find_scenes(folder, Reading(), clouds={"band": "scl", "bits": [3]})
    np.testing.assert_array_equal(np.isnan(whole(scene, clear=True)[0]), cloudy)


SENTINEL = """<n1:Level-2A_User_Product><General_Info><Product_Image_Characteristics>
<QUANTIFICATION_VALUES_LIST><BOA_QUANTIFICATION_VALUE unit="none">10000</BOA_QUANTIFICATION_VALUE>
</QUANTIFICATION_VALUES_LIST><BOA_ADD_OFFSET_VALUES_LIST>
<BOA_ADD_OFFSET band_id="1">-1000</BOA_ADD_OFFSET><BOA_ADD_OFFSET band_id="10">-999</BOA_ADD_OFFSET>
</BOA_ADD_OFFSET_VALUES_LIST></Product_Image_Characteristics></General_Info></n1:Level-2A_User_Product>"""
LANDSAT = """GROUP = LANDSAT_METADATA_FILE
  GROUP = LEVEL2_SURFACE_REFLECTANCE_PARAMETERS
    REFLECTANCE_MULT_BAND_4 = 2.75e-05
    REFLECTANCE_ADD_BAND_4 = -0.2
  END_GROUP = LEVEL2_SURFACE_REFLECTANCE_PARAMETERS
  GROUP = LEVEL1_RADIOMETRIC_RESCALING
    REFLECTANCE_MULT_BAND_4 = 2.0000E-05
    REFLECTANCE_ADD_BAND_4 = -0.100000
  END_GROUP = LEVEL1_RADIOMETRIC_RESCALING
"""


@pytest.mark.parametrize(
    ("file", "page", "text", "scale", "offset"),
    [
        ("G/I/R10m/T31_B02_10m.tif", "MTD_MSIL2A.xml", SENTINEL, 1e-4, -0.1),
        ("G/I/R10m/T31_B04_10m.tif", "MTD_MSIL2A.xml", SENTINEL, 1e-4, 0.0),
        ("LC09_SR_B4.tif", "LC09_MTL.txt", LANDSAT, 2.75e-5, -0.2),
        ("LC09_B4.tif", "LC09_MTL.txt", LANDSAT, 2e-5, -0.1),
        ("LC08_B4.tif", "LC09_MTL.txt", LANDSAT, 1.0, 0.0),
        ("plain_B02.tif", "other.xml", SENTINEL, 1.0, 0.0),
    ],
)
def test_radiometry_is_that_of_the_product(
    write: Write, file: str, page: str, text: str, scale: float, offset: float, tmp_path: Path
) -> None:
    image = np.array([[[0, 1500], [2000, 30000]]], np.uint16)
    path = write(f"product/{file}", image)
    (tmp_path / "product" / page).write_text(text)
    (scene,) = find_scenes(path, Reading())
    values = whole(scene)[0]
    np.testing.assert_allclose(values[1], image[0, 1] * scale + offset, rtol=1e-6)
    assert np.isnan(values[0, 0]) == bool(scene.bands[0].radiometry.origin)


def test_parts_of_a_mosaic_are_one_scene(write: Write) -> None:
    image = smooth(1, 2, 30, 40)
    image[:, :3] = 0
    first = write("m/a.tif", image[:, :20, :25], nodata=0)
    write("m/b.tif", image[:, 15:, 10:], nodata=0, transform=UTM * Affine.translation(10, 15))
    (scene,) = find_scenes(first.parent, Reading(mosaic=True))
    expected = np.where(image == 0, np.nan, image)
    expected[:, 20:, :10] = expected[:, :15, 25:] = np.nan
    assert scene.grid.equals(Grid(30, 40, tuple(UTM)[:6], scene.grid.crs))
    np.testing.assert_array_equal(whole(scene), expected)
    window = slice(12, 22), slice(5, 33)
    np.testing.assert_array_equal(scene.read(*window), expected[:, *window])
    write("m/c.tif", image, crs="EPSG:4326")
    with pytest.raises(DataError, match="c has another grid or system than a"):
        find_scenes(first.parent, Reading(mosaic=True))


def test_what_cannot_be_an_image_is_refused(write: Write, tmp_path: Path) -> None:
    palette = write("p.tif", np.zeros((1, 2, 2), np.uint8),
                    lambda file: file.write_colormap(1, {0: (1, 2, 3)}))  # fmt: skip
    with pytest.raises(DataError, match="colour table"):
        find_scenes(palette, Reading())
    with pytest.raises(DataError, match="complex numbers"):
        find_scenes(write("c.tif", np.zeros((1, 2, 2), np.complex64)), Reading())
    (tmp_path / "no.tif").write_text("nothing")
    with pytest.raises(DataError, match=r"no\.tif: cannot be read"):
        find_scenes(tmp_path / "no.tif", Reading())
    with pytest.raises(DataError, match="2 names were given"):
        find_scenes(write("a.tif", np.zeros((1, 2, 2), np.uint8)), Reading(bands=["a", "b"]))
    (scene,) = find_scenes(tmp_path / "a.tif", Reading())
    with pytest.raises(DataError, match="has no band 'red'"):
        scene.select(["red"])


@pytest.mark.parametrize("turn", [0, 30, 137])
def test_a_finer_grid_has_the_same_corners(turn: int) -> None:
    grid = Grid(7, 11, tuple(UTM * Affine.rotation(turn) * Affine.shear(5, 3))[:6], "")
    for scale in (2, 3, 4):
        fine = grid.finer(scale)
        for corner in ((0, 0), (11, 0), (11, 7), (0, 7)):
            there = fine.affine * (corner[0] * scale, corner[1] * scale)
            back = ~grid.affine * there
            np.testing.assert_allclose(back, corner, atol=1e-9)
    moved = grid.moved(2.5, -1)
    np.testing.assert_allclose(grid.position_of(moved), (2.5, -1), atol=1e-9)
    assert not grid.fits(moved)
    assert grid.fits(grid.moved(3, -1))
