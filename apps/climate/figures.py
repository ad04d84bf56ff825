"""The pictures a climate scientist looks at first: inputs, truth, prediction and error, and what is confused."""

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

from scadl_core.workflow.contracts import Source
from scadl_core.workflow.plots import confusion_matrix

CLASS_COLOURS = (
    "#f3f1ec",
    "#c8443c",
    "#2f6db3",
    "#3f9a5a",
    "#8a5fb0",
    "#d99a2b",
    "#4bb3b8",
    "#7a6652",
)
ERROR_COLOURS = ("#f3f1ec", "#4c8c5b", "#d9822b", "#7b4fa3")
ERRORS = ("right: background", "right: event", "missed or wrong event", "false event")
SHOWN_INPUTS = 4


def draw(task: Any, source: Source, folder: Path, num_samples: int) -> dict[str, str]:
    """Draws the samples of the test split with the largest labelled events, and the confusion matrix.

    Args:
        task: The trained :class:`apps.climate.task.Segmentation`.
        source: The data.
        folder: Where the PNG files go.
        num_samples: How many maps to show.

    Returns:
        Captions by file name.
    """
    captions = {}
    for number, index in enumerate(_most_eventful(source, num_samples), 1):
        sample = source.samples("test").read(index, None)
        name = f"map_{number}.png"
        _draw_sample(task, sample, folder / name)
        captions[name] = f"Test sample {index}: inputs, labels, prediction, and where they differ."
    confusion_matrix(
        task.confusion.area_KK.cpu().numpy(), task.facts["classes"], folder / "confusion_matrix.png"
    )
    captions["confusion_matrix.png"] = (
        "Confusion matrix of the test split, pixels weighted by area."
    )
    return captions


def _most_eventful(source: Source, count: int, most_read: int = 50) -> list[int]:
    samples = source.samples("test")
    events = [
        int((samples.read(i, None)["label_HW"] > 0).sum())
        for i in range(min(len(samples), most_read))
    ]
    return sorted(np.argsort(events)[::-1][:count].tolist())


def _draw_sample(task: Any, sample: dict[str, NDArray[Any]], path: Path) -> None:
    facts = task.facts
    image_CHW, label_HW = sample["image_CHW"], sample["label_HW"]
    class_HW = task.probabilities(image_CHW, facts["periodic"]).argmax(0)
    shown = list(enumerate(facts["inputs"]))[:SHOWN_INPUTS]
    rows = -(-(len(shown) + 3) // 2)
    figure = Figure(figsize=(11, 2.9 * rows), layout="constrained")
    panels = iter(figure.subplots(rows, 2, squeeze=False).flat)
    for channel, name in shown:
        _input_panel(next(panels), facts, name, facts["units"][channel], image_CHW[channel])
    colours = [CLASS_COLOURS[k % len(CLASS_COLOURS)] for k in range(len(facts["classes"]))]
    _class_panel(next(panels), facts, "labels", label_HW, facts["classes"], colours)
    _class_panel(next(panels), facts, "prediction", class_HW, facts["classes"], colours)
    _class_panel(next(panels), facts, "error", _errors(label_HW, class_HW), ERRORS, ERROR_COLOURS)
    for unused in panels:
        unused.set_axis_off()
    figure.savefig(path, dpi=110)


def _errors(label_HW: NDArray[Any], class_HW: NDArray[Any]) -> NDArray[np.int64]:
    right = class_HW == label_HW
    kinds = np.where(right, (label_HW > 0).astype(int), np.where(label_HW > 0, 2, 3))
    return np.where(label_HW < 0, -1, kinds)


def _input_panel(
    axes: Axes, facts: dict[str, Any], name: str, unit: str, values_HW: NDArray[Any]
) -> None:
    low, high = np.nanpercentile(values_HW, (1, 99))
    signed = low < 0 < high
    if signed:
        high = max(-low, high)
        low = -high
    mesh = axes.pcolormesh(
        facts["longitude_W"],
        facts["latitude_H"],
        values_HW,
        vmin=low,
        vmax=high,
        cmap="RdBu_r" if signed else "viridis",
    )
    axes.figure.colorbar(mesh, ax=axes, label=unit, shrink=0.85)
    _label(axes, name)


def _class_panel(
    axes: Axes,
    facts: dict[str, Any],
    title: str,
    values_HW: NDArray[Any],
    names: Sequence[str],
    colours: Sequence[str],
) -> None:
    values = np.where(values_HW < 0, np.nan, values_HW)
    axes.pcolormesh(
        facts["longitude_W"],
        facts["latitude_H"],
        values,
        cmap=ListedColormap(list(colours)),
        vmin=-0.5,
        vmax=len(names) - 0.5,
    )
    axes.set_facecolor("#bdbdbd")
    handles = [
        Patch(facecolor=c, edgecolor="grey", label=n.replace("_", " "))
        for c, n in zip(colours, names, strict=True)
    ]
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=4,
        fontsize=7,
        frameon=False,
    )
    _label(axes, title)


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("longitude (degrees east)", fontsize=8)
    axes.set_ylabel("latitude (degrees north)", fontsize=8)
    axes.tick_params(labelsize=7)
