"""Small scenes and small models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from affine import Affine

from apps.remote_sensing.data import SceneData
from apps.remote_sensing.model import EDSR
from apps.remote_sensing.raster import close_all, quiet
from apps.remote_sensing.task import SuperResolution
from scadl_core.comm import World

PROVENANCE = {"versions": {"scadl": "1.0"}, "git": {"sha": "abc"}}
UTM = Affine(10, 0, 500_000, 0, -10, 5_000_000)


@pytest.fixture(autouse=True)
def closed() -> Any:
    """No file stays open from test to test: the next may write another of the same name."""
    yield
    close_all()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write("a.tif", image_CHW, nodata=0, ...)`` writes a GeoTIFF in UTM; tags are set by
    ``about``, a function of the open file.
    """

    def written(name: str, image_CHW: np.ndarray, about: Any = None, **profile: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        count, height, width = image_CHW.shape
        given = {"driver": "GTiff", "crs": "EPSG:32631", "transform": UTM, **profile}
        with (
            quiet(),
            rasterio.open(
                path, "w", dtype=image_CHW.dtype, count=count, height=height, width=width, **given
            ) as file,
        ):
            file.write(image_CHW)
            if about is not None:
                about(file)
        return path

    return written


def smooth(seed: int, *shape: int) -> np.ndarray:
    """Waves of random directions, float32 in 0..1."""
    rng = np.random.default_rng(seed)
    row, column = np.indices(shape[1:])
    wave = rng.uniform(-0.4, 0.4, (shape[0], 5, 2, 1, 1))
    phases = (wave * [row, column]).sum(2) + rng.uniform(0, 6, (shape[0], 5, 1, 1))
    return (0.5 + 0.1 * np.sin(phases).sum(1)).astype(np.float32)


def untrained(facts: dict[str, Any], network: Any = None) -> SuperResolution:
    """A small task that changes what it is given."""
    torch.manual_seed(0)
    network = network or EDSR(**facts["model"], width=3, blocks=1)
    torch.nn.init.normal_(network.up[-1 if isinstance(network, EDSR) else 0].weight, std=0.02)
    return SuperResolution(network=network, facts=facts, world=World(), loss="l1", crop=0).eval()


def task_for(path: Path, **words: Any) -> SuperResolution:
    """An untrained task with the facts of a file."""
    words = {"scale": 2, "crop": 8, "window": 16, **words}
    return untrained(SceneData(path, **words).facts())
