"""What a climate scientist looks at first: inputs, truth, prediction, errors, what is confused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from scadl_core.report.plots import confusion_matrix
from scadl_core.workflow.contracts import Source

BACKGROUND, MISSING = "#f3f1ec", "#bdbdbd"
COLOURS = "#c8443c #2f6db3 #3f9a5a #8a5fb0 #d99a2b #4bb3b8 #7a6652".split()  # of classes 1..
ERRORS = {"right": "#4c8c5b", "missed or other event": "#d9822b", "false event": "#7b4fa3"}
MAP_INCHES = 5.2  # width of a map; it is as high as its shape asks, within these
MAP_HEIGHTS = (1.6, 5.2)
MOST_READ = 50


def draw(task: Any, source: Source, folder: Path, num_samples: int) -> dict[str, str]:
    """Draws the test samples with the largest labelled events, and the confusion matrix.

    Args:
        task: The trained :class:`apps.climate.task.Segmentation`.
        source: The data.
        folder: Where the PNG files go.
        num_samples: How many maps to show.

    Returns:
        Captions by file name.
    """
    captions, samples = {}, source.samples("test")
    read = range(min(len(samples), MOST_READ if num_samples else 0))
    events = [int((samples.read(index, None)["label_HW"] > 0).sum()) for index in read]
    for number, index in enumerate(sorted(np.argsort(events)[::-1][:num_samples].tolist()), 1):
        name = f"map_{number}.png"
        _draw_sample(task, samples.read(index, None), folder / name)
        captions[name] = f"Test sample {index}: inputs, labels, prediction, and where they differ."
    name, matrix_KK = "confusion_matrix.png", task.confusion.area_KK.cpu().numpy()
    confusion_matrix(matrix_KK, task.facts["classes"], folder / name)
    return captions | {name: "Confusion matrix of the test split, pixels weighted by area."}


def _draw_sample(task: Any, sample: dict[str, NDArray[Any]], path: Path) -> None:
    """Inputs on the left of each row or above, then labels, prediction and errors together."""
    facts, label_HW = task.facts, sample["label_HW"]
    class_HW = task.probabilities(sample["image_CHW"], facts["periodic"]).argmax(0)
