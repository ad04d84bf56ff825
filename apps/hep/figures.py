"""What a particle physicist looks at first: ROC, scores, efficiencies, confusion, calibration.

In the field's style where mplhep is installed. All is weighted; negative weights count as such.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from apps.hep import metrics
from apps.hep.metrics import Scored
from scadl_core.errors import ConfigError
from scadl_core.record.plots import confusion_matrix, reliability
from scadl_core.workflow.contracts import Source

BIN_ROWS = 20  # background rows that a bin needs to be shown


def draw(task: Any, source: Source, folder: Path, bins: int = 6) -> dict[str, str]:
    """Draws the test split, and writes the table of rejections; gives captions by file name.

    Args:
        task: A trained :class:`apps.hep.task.Classification`, tested last.
        source: Not used: what was tested is in the task.
        folder: Where to.
        bins: Of transverse momentum and mass, of equal numbers of background rows.
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ConfigError(f"figures.bins: expected a whole number from 1, got {bins!r}")
    found, classes = task.scored(), list(task.facts["classes"])
    captions = {
        "roc.png": f"ROC of each class against {classes[0]}: background efficiency, with a band of "
        "one standard deviation, and significance improvement.",
        "scores.png": "Distribution of each class's score, by true class, normalised.",
        "confusion_matrix.png": "Confusion matrix of the test split, weighted.",
        "calibration.png": "How often the likeliest class is right, by its probability.",
        "rejection.csv": "Background rejection by signal, efficiency, and bin of pt.",
    }
    with _style():
        _draw_roc(found, classes, folder / "roc.png")
        _draw_scores(found, classes, folder / "scores.png")
        rows = found.label_R, found.probability_RK.argmax(1), found.weight_R
        confusion_matrix(confusion(*rows, len(classes)), classes, folder / "confusion_matrix.png")
        sums_QN3 = np.stack([metrics.calibration(found)])
        reliability(sums_QN3, ["likeliest class"], folder / "calibration.png")
        for name, values_R in {"pt": found.pt_R, "mass": found.mass_R}.items():
            if np.isfinite(values_R).any():
                _draw_efficiency(found, values_R, classes, name, bins, folder / f"{name}.png")
                captions[f"{name}.png"] = (
                    f"Efficiencies at a signal efficiency of 50 %, against {name}: a background "
                    "that is not flat is sculpted."
                )
    _write_rejections(found, classes, bins, folder / "rejection.csv")
    return captions


@contextmanager
def _style() -> Iterator[None]:
    style: Any = {}
    if importlib.util.find_spec("mplhep"):
        import mplhep

        style = {**mplhep.style.CMS, "figure.figsize": (6, 5), "font.size": 12}
        style |= {"axes.labelsize": 13, "xtick.labelsize": 11, "ytick.labelsize": 11}
        style |= {
            "legend.fontsize": 10,
            "savefig.bbox": None,
            "figure.constrained_layout.use": True,
        }
    with mpl.rc_context(style):
        yield


def confusion(
    label_R: NDArray, predicted_R: NDArray, weight_R: NDArray, classes: int
) -> NDArray[np.float64]:
    """Weight by true and predicted class, KK."""
    matrix = np.zeros((classes, classes))
    np.add.at(matrix, (label_R, predicted_R), weight_R)
    return matrix


def _draw_roc(found: Scored, classes: list[str], path: Path) -> None:
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    curves, gain = figure.subplots(1, 2)
    rows = metrics.effective(found.weight_R[found.label_R == 0])
    for signal, name in list(enumerate(classes))[1:]:
        signal_T, other_T, _ = curve = metrics.signal_roc(found, signal)
        error_T = np.sqrt(np.clip(other_T * (1 - other_T), 0, None) / max(rows, 1))
        low_T = np.maximum(other_T - error_T, 1e-7)
        (line,) = curves.plot(signal_T, np.maximum(other_T, 1e-7), label=name)
        curves.fill_between(signal_T, low_T, other_T + error_T, color=line.get_color(), alpha=0.25)
        gain.plot(signal_T, metrics.significance(curve, rows), color=line.get_color(), label=name)
    curves.axhline(1 / max(rows, 1), color="grey", linestyle=":", label="one background row")
    curves.set(xlabel="signal efficiency", ylabel=f"{classes[0]} efficiency", yscale="log")
    curves.set(xlim=(0, 1), ylim=(0.3 / max(rows, 1), 1))
    gain.set(xlabel="signal efficiency", ylabel="signal / sqrt(background) efficiency", xlim=(0, 1))
    curves.legend()
    figure.savefig(path, dpi=110)


def _draw_scores(found: Scored, classes: list[str], path: Path) -> None:
    figure = Figure(figsize=(3.6 * len(classes), 3.4), layout="constrained")
    edges = np.linspace(0, 1, 41)
    for number, (axes, name) in enumerate(
        zip(figure.subplots(1, len(classes), squeeze=False).flat, classes, strict=True)
    ):
        for truth, of in enumerate(classes):
            rows = found[found.label_R == truth]
            heights, _ = np.histogram(rows.probability_RK[:, number], edges, weights=rows.weight_R)
            axes.stairs(np.maximum(heights, 0) / (abs(heights.sum()) or 1), edges, label=of)
        axes.set(xlabel=f"score of {name}", yscale="log", ylim=(1e-4, 1))
        axes.tick_params(labelsize=9)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _edges(found: Scored, values_R: NDArray, bins: int) -> NDArray[np.float64]:
    other = values_R[(found.label_R == 0) & np.isfinite(values_R)]
    if not other.size:
        return np.array([np.nanmin(values_R), np.nanmax(values_R)])
    wanted = max(1, min(bins, other.size // BIN_ROWS))
    return np.unique(np.quantile(other, np.linspace(0, 1, wanted + 1)))


def _draw_efficiency(
    found: Scored, values_R: NDArray, classes: list[str], name: str, bins: int, path: Path
) -> None:
    figure, edges = Figure(figsize=(6, 4.5), layout="constrained"), _edges(found, values_R, bins)
    axes = figure.subplots()
    for signal, label in list(enumerate(classes))[1:]:
        is_pair = np.isin(found.label_R, (0, signal))
        pair, score_R = metrics.discriminant(found, signal)
        passed_R = score_R >= metrics.at_efficiency(metrics.signal_roc(found, signal), 0.5)[1]
        for truth, style in ((signal, "-"), (0, "--")):
            of = pair.label_R == truth
            total, part = (
                np.histogram(values_R[is_pair][it], edges, weights=pair.weight_R[it])[0]
                for it in (of, of & passed_R)
            )
            share = np.divide(part, total, out=np.full(len(total), np.nan), where=total != 0)
            text = label if truth else f"{classes[0]} as {label}"
            axes.stairs(
                share, edges, linestyle=style, color=f"C{signal}", label=text, baseline=None
            )
    axes.set(xlabel=name, ylabel="efficiency", yscale="log", ylim=(1e-4, 3))
    axes.legend(ncols=2, fontsize=8)
    figure.savefig(path, dpi=110)


def _write_rejections(found: Scored, classes: list[str], bins: int, path: Path) -> None:
    """Rejections in all and in bins of transverse momentum, at the efficiencies of each."""
    choices: list[tuple[str, Callable[[Scored], NDArray]]] = [("all", lambda it: it.label_R >= 0)]
    if np.isfinite(found.pt_R).any():
        edges = _edges(found, found.pt_R, bins)
        for low, high in pairwise(edges):
            inside = lambda it, low=low, high=high: (it.pt_R >= low) & (it.pt_R < high)  # noqa: E731
            choices.append((f"{low:.4g}-{high:.4g}", inside))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pt", "signal", "signal_efficiency", "rejection", "error"])
        for name, choose in choices:
            part = found[choose(found)]
            writer.writerows([name, *row] for row in metrics.rejections(part, classes))
