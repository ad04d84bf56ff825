"""Pictures that every pipeline's report has."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

_PANELS_A_ROW = 3


def learning_curves(history: Path, path: Path) -> None:
    """Draws every column of ``metrics.csv`` that belongs to a split, a panel a score, the loss
    first.

    Args:
        history: The CSV file, one row an epoch.
        path: The PNG file to write.
    """
    with history.open() as file:
        rows = list(csv.DictReader(file))
    epochs = [int(row["epoch"]) for row in rows]
    curves: dict[str, dict[str, list[float]]] = {}
    for split, _, score in (name.partition("/") for name in rows[0]):
        if score and score != "score":  # which repeats the one that the best checkpoint goes by
            values = [float(row[f"{split}/{score}"] or "nan") for row in rows]
            curves.setdefault(score, {})[split] = values
    height = -(-len(curves) // _PANELS_A_ROW)
    figure = Figure(figsize=(3.6 * _PANELS_A_ROW, 2.7 * height), layout="constrained")
    panels = iter(figure.subplots(height, _PANELS_A_ROW, squeeze=False).flat)
    for score, lines in curves.items():
        axes = next(panels)
        for split, values in lines.items():
            axes.plot(epochs, values, marker="o", markersize=3, label=split)
        axes.set(title=score.replace("_", " "), xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    for unused in panels:
        unused.set_axis_off()
    figure.savefig(path, dpi=110)


def residuals(
    rows: Sequence[dict[str, float]], times: Sequence[dict[str, float]], path: Path
) -> None:
    """Draws how an ADMM training went.

    Args:
        rows: One an iteration, with ``iteration``, ``primal``, ``dual`` (squared residuals),
            ``scale`` (of what is coupled, squared), ``lagrangian`` and ``rho``.
        times: Of each rank, seconds ``working`` and ``waiting``.
        path: The PNG file to write.
    """
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    steps = [row["iteration"] for row in rows]
    scale = [max(row["scale"], 1e-30) for row in rows]
    for name, squares in (
        ("primal", [row["primal"] / it for row, it in zip(rows, scale, strict=True)]),
        (
            "dual / rho",
            [row["dual"] / row["rho"] ** 2 / it for row, it in zip(rows, scale, strict=True)],
        ),
    ):
        left.semilogy(steps, np.sqrt(np.maximum(squares, 1e-30)), label=name)
    left.set(title="residuals, relative", xlabel="iteration")
    middle.plot(steps, [row["lagrangian"] for row in rows], label="Lagrangian")
    middle.set(title="Lagrangian and penalty", xlabel="iteration")
    penalty = middle.twinx()
    penalty.semilogy(steps, [row["rho"] for row in rows], color="tab:red", label="rho (right)")
    bottom = np.zeros(len(times))
    for name in ("working", "waiting"):
        seconds = np.array([rank[name] for rank in times])
        right.bar(np.arange(len(times)), seconds, bottom=bottom, label=name)
        bottom += seconds
    right.set(title="seconds of each rank", xlabel="rank")
    right.xaxis.get_major_locator().set_params(integer=True)
    for axes in (left, middle, penalty, right):
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def confusion_matrix(matrix: np.ndarray, names: Sequence[str], path: Path) -> None:
    """Draws a confusion matrix as shares of each true class.

    Args:
        matrix: Counts or weights, shape (K, K), rows the truth, columns the prediction.
        names: The K classes.
        path: The PNG file to write.
    """
    total = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, total, out=np.zeros_like(matrix, dtype=float), where=total > 0)
    labels = [name.replace("_", "\n") for name in names]
    figure = Figure(figsize=(1.6 + 1.1 * len(names), 1.4 + 0.9 * len(names)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), labels)
    axes.set_yticks(range(len(names)), labels)
    axes.set(xlabel="prediction", ylabel="truth")
    for (row, column), share in np.ndenumerate(shares):
        axes.text(
            column,
            row,
            f"{share:.3f}",
            ha="center",
            va="center",
            color="white" if share > 0.5 else "black",
        )
    figure.colorbar(image, label="share of the true class", shrink=0.8)
    figure.savefig(path, dpi=110)


def activation_bars(kinds: dict[str, tuple[int, int]], path: Path) -> None:
    """Draws what saved activations take, without and with compression.

    Args:
        kinds: Bytes without and with, by how the tensors are kept.
        path: The PNG file to write.
    """
    names = sorted(kinds, key=lambda name: kinds[name][0])
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(names)), layout="constrained")
    axes = figure.subplots()
    rows = np.arange(len(names))
    for index, (label, colour) in enumerate((("uncompressed", "#b8c4d6"), ("kept", "#17733c"))):
        values = [kinds[name][index] / 2**20 for name in names]
        bars = axes.barh(rows + 0.2 - 0.4 * index, values, 0.4, label=label, color=colour)
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    axes.set_yticks(rows, names)
    axes.set(xlabel="MiB a step")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def reliability(
    sums_KN3: np.ndarray,
    names: Sequence[str],
    path: Path,
    what: str = "weight",
    colours: Sequence[str] = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9"),
) -> None:
    """Draws a reliability diagram: forecast probability against observed frequency.

    Args:
        sums_KN3: Of each of K kinds of forecast, in N bins of probability: sums of weight, weight
            times probability, and weight where it came true.
        names: The kinds.
        path: The PNG file to write.
        what: What is summed, such as ``area``.
        colours: At least K.
    """
    figure = Figure(figsize=(6, 5.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":", label="perfect")
    edges = np.linspace(0, 1, sums_KN3.shape[1] + 1)
    for name, colour, sums_N3 in zip(names, colours, sums_KN3, strict=False):
        weight_N, probability_N, true_N = sums_N3[sums_N3[:, 0] > 0].T
        upper.plot(
            probability_N / weight_N,
            true_N / weight_N,
            "o-",
            color=colour,
            markersize=4,
            label=name.replace("_", " "),
        )
        share_N = np.maximum(sums_N3[:, 0], 0) / max(weight_N.sum(), np.finfo(float).tiny)
        lower.stairs(share_N, edges, color=colour)
    upper.set_ylabel("observed frequency")
    upper.legend(frameon=False, fontsize=8)
    lower.set(yscale="log", xlabel="forecast probability", ylabel=f"share of {what}")
    figure.savefig(path, dpi=110)


def scaling(points: Sequence[tuple[str, int, float]], path: Path) -> None:
    """Draws throughput over ranks, both logarithmic, and the ideal beside it.

    Args:
        points: Method, ranks, samples a second.
        path: The PNG file to write.
    """
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axes = figure.subplots()
    ranks = sorted({count for _, count, _ in points})
    alone = next(rate for _, count, rate in points if count == ranks[0])
    axes.plot(ranks, [alone * r / ranks[0] for r in ranks], ":", color="gray", label="ideal")
    for method in dict.fromkeys(name for name, _, _ in points):
        line = [(count, rate) for name, count, rate in points if name == method]
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, label=method)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="samples a second, predicted")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
