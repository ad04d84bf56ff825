"""What the pipeline promises of accuracy and memory. Long: `make soak`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine

pytestmark = pytest.mark.soak
HERE = Path(__file__).resolve().parent
RGBN = "data.bands=[red,green,blue,nir]"
LANDSAT = [f"landsat8_elkton/L8-B{n}-Elkton-VA.tiff" for n in (2, 3, 4, 5)]
# Real images the model has never seen: files, names of their bands, least gain in dB.
REAL = [
    (["naip_hr/m_3211605_ne_11_060_20200415.tif"], RGBN, 1.0),
    (["naip_hr/m_3607717_sw_18_1_20160620_subset.tif"], RGBN, 1.0),
    (["L7_ETMs.tif"], "data.bands=[blue,green,red,nir,swir1,swir2]", 0.0),
    (LANDSAT, "data.bands=[]", 0.0),
]


def done(outcome: Any) -> Any:
    assert outcome.status == 0, outcome.err
    return outcome


def test_three_seeds_beat_interpolation_on_the_sample_and_on_real_images(
    scadl: Callable[..., Any], workplace: Path, shared_data: Path
) -> None:
    gains, angles = [], []
    for seed in range(3):
        done(scadl("train", "remote_sensing", f"seed={seed}", f"run.dir=run{seed}"))
        of = json.loads((workplace / f"run{seed}" / "metrics.json").read_text())
        gains.append(of["test/psnr"] - of["baseline/psnr"])
        angles.append(1 - of["test/sam"] / of["baseline/sam"])
        assert 34 <= of["baseline/psnr"] <= 35
    print(f"gains {np.round(gains, 2)} dB, SAM lower by {np.round(angles, 3)}")
    assert np.mean(gains) >= 2.5
    assert np.mean(angles) >= 0.35
    for files, bands, least in REAL:
        paths = ",".join(f"'{shared_data / 'remote_sensing' / file}'" for file in files)
        inputs = "[B2,B3,B4,B5]" if len(files) > 1 else "[blue,green,red,nir]"
        words = [f"data.path=[{paths}]", f"data.inputs={inputs}", bands, "data=raster", "split=all"]
        done(scadl("evaluate", "remote_sensing", "run.dir=run0", *words, "output=real.json"))
        of = json.loads((workplace / "real.json").read_text())
        print(f"{files[0]}: {of['psnr'] - of['bicubic_psnr']:+.2f} dB, SAM {of['sam']:.2f} deg for "
              f"{of['bicubic_sam']:.2f}")  # fmt: skip
        assert of["psnr"] - of["bicubic_psnr"] > least


def sparse_scene(path: Path, size: int) -> Path:
    """Four bands of which 1 % has data, in a few blocks, as along a coast."""
    rng = np.random.default_rng(0)
    with rasterio.open(
        path, "w", driver="GTiff", dtype="uint16", count=4, height=size, width=size, nodata=0,
        tiled=True, blockxsize=256, blockysize=256, compress="deflate", sparse_ok=True,
        crs="EPSG:32631", transform=Affine(10, 0, 500_000, 0, -10, 5_000_000),
    ) as file:  # fmt: skip
        side = size // 40
        for start in range(0, size, size // 4):
            window = rasterio.windows.Window(start, start, 2 * side, 2 * side)
            block = rng.integers(1, 4000, (4, 2 * side, 2 * side)).astype(np.uint16)
            file.write(block, window=window)
    return path


def test_memory_does_not_grow_with_the_scene(tmp_path: Path) -> None:
    peaks, windows = [], []
    for size in (2000, 8000):
        path = sparse_scene(tmp_path / f"{size}.tif", size)
        run = subprocess.run(
            [sys.executable, str(HERE / "memory.py"), str(path), str(tmp_path / f"out{size}.tif")],
            capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "2"},
        )  # fmt: skip
        peak_MiB, computed, there = run.stdout.split()
        peaks.append(float(peak_MiB))
        windows.append((int(computed), int(there)))
    print(f"peaks above import: {peaks} MiB; windows computed, in all: {windows}")
    assert windows[1][0] < 0.1 * windows[1][1]
    assert max(peaks) <= 1024
    assert peaks[1] <= 1.05 * peaks[0]
