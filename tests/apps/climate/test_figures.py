"""The pictures: drawn for any number of inputs, for regions, and where values are missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib import image

from apps.climate import figures
from apps.climate.metrics import Calibration, Confusion


class Samples(list):
    def read(self, index: int, rng: None) -> dict[str, np.ndarray]:
        return self[index]


def draw(folder: Path, channels: int, events: list[int], longitude_W: np.ndarray) -> dict[str, str]:
    """Maps with so many pixels of events, of which one channel and the last column are missing."""
    rng, samples = np.random.default_rng(0), Samples()
    for count in events:
        image_CHW = rng.standard_normal((channels, 6, len(longitude_W))).astype(np.float32)
        image_CHW[0], image_CHW[..., -1] = np.nan, np.nan
        label_HW = np.zeros(image_CHW.shape[1:], np.int64)
        label_HW.flat[:count], label_HW[:, -1] = 1, -1
        samples.append({"image_CHW": image_CHW, "label_HW": label_HW})
    facts = {"inputs": [f"t@{n}hPa" for n in range(channels)], "units": ["K"] * channels}
    facts |= {"latitude": np.linspace(30.0, 60, 6).tolist(), "longitude": longitude_W.tolist()}
    facts |= {"classes": ["none", "some_event"], "periodic": False}
    task = SimpleNamespace(facts=facts, confusion=Confusion(2), calibration=Calibration(2))
    task.confusion.update(torch.ones(1, 1, 1), torch.ones(1, 1, 1), torch.ones(1, 1))
    task.calibration.update(torch.ones(1, 2, 1, 1), torch.ones(1, 1, 1), torch.ones(1, 1))
    task.probabilities = lambda image_CHW, periodic: np.ones((2, *image_CHW.shape[1:]), np.float32)
    return figures.draw(task, SimpleNamespace(samples=lambda split: samples), folder, 1)


@pytest.mark.parametrize("channels", [1, 8])
def test_a_picture_of_the_most_eventful_sample(tmp_path: Path, channels: int) -> None:
    captions = draw(tmp_path, channels, [3, 9, 5], np.arange(340.0, 380.0, 5.0))
    assert sorted(captions) == sorted(path.name for path in tmp_path.iterdir())
    shown = "6 of 8 inputs" if channels == 8 else "inputs"
    assert captions["map_1.png"].startswith(f"Test sample 1: {shown}, labels")
    assert image.imread(tmp_path / "map_1.png").shape[1] == 1210  # 11 inches


def test_rows_are_full() -> None:
    for inputs, row in enumerate(figures.ROWS, 1):
        assert sum(row) == inputs + 3
