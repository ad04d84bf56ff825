"""What a climate scientist looks at first: inputs, truth, prediction, errors, what is confused;
then the events as objects, and whether probabilities can be trusted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from apps.climate.coast import Lines, draw_coast, read_coast
from apps.climate.event_figures import BACKGROUND, COLOURS, Survey, draw_events
from scadl_core.errors import ConfigError
from scadl_core.record.plots import confusion_matrix, reliability
from scadl_core.workflow.contracts import Source

MISSING = "#bdbdbd"
ERRORS = ("background", "event found", "missed or other", "false alarm")
ERROR_COLOURS = (BACKGROUND, "#4c8c5b", "#d9822b", "#7b4fa3")
ROWS = ((2, 2), (2, 3), (3, 3), (2, 2, 3), (3, 2, 3), (3, 3, 3))  # panels by row; of 1..6 inputs
WIDTH_INCHES = 11


def draw(
    task: Any,
    source: Source,
    folder: Path,
    num_samples: int,
    most_maps: int = 500,
    extreme: Sequence[str] | None = None,
    coastline: str | None = None,
) -> dict[str, str]:
    """Draws the test samples with the largest labelled events, scores, and the events of the split.

    Writes PNG files and tables of events as CSV for a trained
    :class:`apps.climate.task.Segmentation`; gives their captions.
    """
    for name, count in (("num_samples", num_samples), ("most_maps", most_maps)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"figures.{name}: expected a whole number from 0, got {count!r}")
    captions, samples, inputs = {}, source.samples("test"), task.facts["inputs"]
    coast, survey = read_coast(coastline), Survey(task, samples, most_maps, extreme)
    shown = "inputs" if len(inputs) <= len(ROWS) else f"{len(ROWS)} of {len(inputs)} inputs"
    most_eventful = np.argsort(survey.labelled_T)[::-1][:num_samples]
    for number, index in enumerate(sorted(most_eventful.tolist()), 1):
        name = f"map_{number}.png"
        _draw_sample(task, samples.read(index, None), folder / name, coast)
        captions[name] = f"Test sample {index}: {shown}, labels, prediction, where they differ."
    name, matrix_KK = "confusion_matrix.png", task.confusion.compute().cpu().numpy()
    confusion_matrix(matrix_KK, task.facts["classes"], folder / name)
    captions[name] = "Confusion matrix of the test split, pixels weighted by area."
    name, sums_QN3 = "reliability.png", task.calibration.compute().cpu().numpy()
    colours = ["#555555", *COLOURS * len(task.facts["classes"])]
    reliability(sums_QN3[1:], task.facts["classes"], folder / name, "area", colours)
    captions[name] = (
        "Reliability: how often a class is there when it is forecast with a probability."
    )
    return captions | draw_events(survey, folder, coast)


def _draw_sample(task: Any, sample: dict[str, NDArray[Any]], path: Path, coast: Lines) -> None:
    facts, label_HW, classes = task.facts, sample["label_HW"], task.facts["classes"]
    class_HW = task.probabilities(sample["image_CHW"], facts["periodic"]).argmax(0)
    inputs = list(zip(facts["inputs"], facts["units"], sample["image_CHW"], strict=True))
    figure, all_panels = _panels(facts, len(inputs[: len(ROWS)]))
    panels = iter(all_panels)
    for channel, axes in zip(inputs[: len(ROWS)], panels, strict=False):
        _draw_input(axes, facts, *channel)
    error_HW = np.where(class_HW == label_HW, label_HW > 0, np.where(label_HW > 0, 2, 3))
    colours = (BACKGROUND, *COLOURS * len(classes))
    _draw_classes(next(panels), facts, "labels", label_HW, classes, colours)
    _draw_classes(next(panels), facts, "prediction", class_HW, classes, colours)
    error_HW[label_HW < 0] = -1
    _draw_classes(next(panels), facts, "errors", error_HW, ERRORS, ERROR_COLOURS)
    for axes in all_panels:
        draw_coast(axes, [] if _is_mesh(facts) else coast)
    figure.savefig(path, dpi=110)


def _panels(facts: dict[str, Any], inputs: int) -> tuple[Figure, list[Axes]]:
    """Full rows, as high as the map asks."""
    rows = ROWS[inputs - 1]
    latitude, longitude = facts["latitude"], facts["longitude"]
    spans = np.shape(latitude) if _is_mesh(facts) else (np.ptp(latitude), np.ptp(longitude))
    aspect = np.clip(spans[0] / spans[1], 0.3, 1.0)
    heights = [0.85 * WIDTH_INCHES / count * aspect + 0.7 for count in rows]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, height_ratios=heights)  # each with margins of its own
    row_axes = (part.subplots(1, count) for part, count in zip(parts, rows, strict=True))
    return figure, list(itertools.chain.from_iterable(row_axes))


def _draw_input(
    axes: Axes, facts: dict[str, Any], name: str, unit: str, values_HW: NDArray[Any]
) -> None:
    valid = values_HW[np.isfinite(values_HW)]
    low, high = np.percentile(valid, (1, 99)) if valid.size else (0.0, 1.0)
    if signed := low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    mesh = _draw_map(axes, facts, name, values_HW, low, high, "RdBu_r" if signed else "viridis")
    bar = axes.figure.colorbar(mesh, ax=axes, label=unit, pad=0.01, aspect=30)
    bar.ax.tick_params(labelsize=7)


def _draw_classes(
    axes: Axes, facts: dict[str, Any], title: str, kind_HW: NDArray[Any], *legend: Sequence[str]
) -> None:
    names, colours = legend[0], legend[1][: len(legend[0])]
    values_HW, end = np.where(kind_HW < 0, np.nan, kind_HW), len(names) - 0.5
    _draw_map(axes, facts, title, values_HW, -0.5, end, ListedColormap(colours))
    handles = [Patch(facecolor=colour, edgecolor="grey") for colour in colours]
    texts, place = [name.replace("_", " ") for name in names], {"bbox_to_anchor": (0.5, -0.1)}
    options = {"loc": "upper center", "ncols": 2, "fontsize": 7, "frameon": False}
    axes.legend(handles, texts, **options, **place)


def _draw_map(
    axes: Axes, facts: dict[str, Any], title: str, values_HW: NDArray[Any], *scale: Any
) -> QuadMesh:
    """A map in colours, whose scale is the lowest value, the highest, and the colour map."""
    options = dict(zip(("vmin", "vmax", "cmap"), scale, strict=True))
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_facecolor(MISSING)  # shows where there is no value
    if _is_mesh(facts):  # a map projection would be guesswork: as the file has it
        axes.set_xlabel("column of the grid", fontsize=7)
        axes.set_ylabel("row of the grid", fontsize=7)
        return axes.pcolormesh(values_HW, **options)
    axes.xaxis.set_major_formatter(lambda degree, _: f"{degree % 360:g}°E")
    axes.yaxis.set_major_formatter(lambda degree, _: f"{abs(degree):g}°{'NS'[int(degree < 0)]}")
    return axes.pcolormesh(facts["longitude"], facts["latitude"], values_HW, **options)


def _is_mesh(facts: dict[str, Any]) -> bool:
    """Whether the grid is curvilinear."""
    return np.ndim(facts["latitude"]) == 2
