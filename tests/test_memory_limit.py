"""Training on a set three times the memory that a control group gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

LIMIT_BYTES = 1200 * 2**20
SHAPE = (768, 1152)
CHANNELS = ["a", "b", "c", "d"]
MAP_BYTES = SHAPE[0] * SHAPE[1] * (len(CHANNELS) * 4 + 8)  # decoded, with its label


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory control group (version 1 or 2) with the limit and no swap."""
    root = Path("/sys/fs/cgroup")
    folder = (root / "memory" if (root / "memory").is_dir() else root) / f"scadl-{os.getpid()}"
    name = "memory.limit_in_bytes" if (root / "memory").is_dir() else "memory.max"
    try:
        folder.mkdir()
        (folder / name).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    yield folder
    folder.rmdir()


def write_set(folder: Path, maps: int) -> None:
    """Files without a time, so that names tell them apart; most are links to a few."""
    rng, kept = np.random.default_rng(0), 4
    coords = {"lat": np.linspace(-90, 90, SHAPE[0]), "lon": np.arange(SHAPE[1]) * 360 / SHAPE[1]}
    folder.mkdir()
    for number in range(maps):
        path = folder / f"map-{number:04}.nc"
        if number >= kept:
            os.link(folder / f"map-{number % kept:04}.nc", path)
            continue
        coarse = rng.normal(size=(len(CHANNELS), SHAPE[0] // 32, SHAPE[1] // 32)).astype("f4")
        smooth = coarse.repeat(32, 1).repeat(32, 2)  # events of some size, not of a pixel each
        fields = {it: (["lat", "lon"], smooth[at]) for at, it in enumerate(CHANNELS)}
        xr.Dataset(fields, coords).to_netcdf(path)


@pytest.mark.soak
def test_training_streams(tmp_path: Path, group: Path) -> None:
    """The cache is allowed more than there is: it has to stop by itself."""
    maps = -(-3 * LIMIT_BYTES // MAP_BYTES)
    write_set(tmp_path / "maps", maps)
    arguments = [
        *("data=netcdf", f"data.path={tmp_path / 'maps'}", f"data.inputs=[{','.join(CHANNELS)}]"),
        *("data.target=a", "data.thresholds=[1.0]", "data.classes=[usual,high]"),
        *("data.cache_GiB=16", "data.split.val=0.05", "data.split.test=0.05"),
        *("model.width=4", "model.depth=1", "loader.batch_size=1", "trainer.max_epochs=1"),
        *("figures.num_samples=0", f"run.dir={tmp_path / 'run'}"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "scadl_core.cli", "train", "climate", *arguments],
        capture_output=True,
        text=True,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        env=os.environ | {"OMP_NUM_THREADS": "1", "SCADL_DATA": str(tmp_path / "data")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["train/epochs"] == 1
    # The kernel holds the group to its limit. What is resident (memory/peak_bytes) may be more:
    # pages of shared libraries are charged to whoever read them first.
    assert maps * MAP_BYTES >= 3 * LIMIT_BYTES
