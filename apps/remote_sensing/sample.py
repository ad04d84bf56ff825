"""The embedded example data set: synthetic land as GeoTIFF, as a provider would deliver it.

    <path>/train/scene-000.tif ...     blue, green, red, nir; uint16 in UTM, reflectance by scale
    <path>/test/scene-000.tif ...      and offset, 0 where there is nothing, deflate, tiled

A slanted collar without data runs along two sides of each scene, as along the edge of a swath. What
is in a scene: ``landscape.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray

from apps.remote_sensing.landscape import BANDS, draw
from scadl_core.files import folder_aside

PIXEL_M = 2.5
SCALE, OFFSET = 1e-4, -0.1  # as Sentinel-2 stores reflectance since 2022
COLLAR = 0.04  # of a side, at its thicker end
SPLITS = ("train", "test")  # the order goes into the seed
STEP_M, COLUMNS = 1200, 4  # from scene to scene, of each split four side by side


def write_sample(
    path: str | Path, train_scenes: int = 12, test_scenes: int = 3, pixels: int = 384, seed: int = 0
) -> None:
    """Writes the example data set, unless its folder exists.

    A scene depends on the seed, its split and its number alone.
    """
    path = Path(path)
    if path.exists():
        return
    counts = dict(zip(SPLITS, (train_scenes, test_scenes), strict=True))
    with folder_aside(path) as written:
        for index, (split, count) in enumerate(counts.items()):
            (written / split).mkdir()
            for number in range(count):
                rng = np.random.default_rng([seed, index, number])
                file = written / split / f"scene-{number:03d}.tif"
                place = number // COLUMNS, number % COLUMNS + (COLUMNS + 1) * index
                write_scene(file, draw(rng, pixels), collar(pixels), place)


def collar(pixels: int) -> NDArray[np.bool_]:
    """Where there is nothing, HW: wedges along the left and the upper side."""
    row_HW, column_HW = np.indices((pixels, pixels)) / pixels
    return (column_HW < COLLAR * (1 - row_HW)) | (row_HW < COLLAR * column_HW)


def write_scene(
    file: Path, land_CHW: NDArray[np.float32], gap_HW: NDArray[np.bool_], place: tuple[int, int]
) -> None:
    """Writes one scene, so many scenes further south and east."""
    stored_CHW = np.rint((land_CHW - OFFSET) / SCALE).clip(1, 65535).astype(np.uint16)
    stored_CHW[:, gap_HW] = 0
    south, east = (it * STEP_M for it in place)
    transform = Affine(PIXEL_M, 0, 500_000 + east, 0, -PIXEL_M, 5_600_000 - south)
    count, height, width = stored_CHW.shape
    with rasterio.open(
        file, "w", driver="GTiff", dtype="uint16", count=count, height=height, width=width,
        crs="EPSG:32631", transform=transform, nodata=0, compress="deflate", predictor=2,
        tiled=True, blockxsize=256, blockysize=256,
    ) as dataset:  # fmt: skip
        dataset.write(stored_CHW)
        dataset.descriptions = BANDS
        dataset.scales, dataset.offsets = (SCALE,) * count, (OFFSET,) * count
        dataset.update_tags(AREA_OR_POINT="Area", SENSOR="synthetic land")
