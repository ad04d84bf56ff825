"""What one looks at first: degrees, classes, calibration, an embedding, and where it fails.

Suffixes: N node, C class.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from apps.graphs.hops import propagate, scales
from apps.graphs.metrics import confusion, f1, reliability
from scadl_core.record.plots import confusion_matrix

if TYPE_CHECKING:
    from apps.graphs.data import GraphData
    from apps.graphs.task import NodeTask

MOST_CLASSES = 20
MOST_POINTS = 5000


def draw(task: NodeTask, source: GraphData, folder: Path) -> dict[str, str]:
    """Draws PNG files of a trained task's test, and gives their captions."""
    said, names = task.said, task.facts["classes"]
    pictures: dict[str, tuple[Any, str]] = {
        "degrees": (lambda axes: _degrees(axes, source), "How many nodes have at least a degree.")
    }
    if said is not None and task.kind == "classes":
        right_N = said.said_NC.argmax(1) == said.label
        by_degree, by_share = (
            _degree_groups(source, said.node_N),
            _alike_groups(source, said.node_N),
        )
        pictures |= {
            "classes": (lambda axes: _classes(axes, said, names), "F1 of each class in the test."),
            "calibration": (
                lambda axes: _calibration(axes, said),
                "How often the likeliest class is right, by its probability; bars: share of nodes.",
            ),
            "embedding": (
                lambda axes: _embedding(axes, said, names),
                "Test nodes in the plane of the two main directions of their log probabilities.",
            ),
            "accuracy_by_degree": (
                lambda axes: _by(axes, right_N, *by_degree, "degree"),
                "Accuracy of test nodes by their degree.",
            ),
            "accuracy_by_homophily": (
                lambda axes: _by(axes, right_N, *by_share, "share"),
                "Accuracy of test nodes by the share of labelled neighbours of their class.",
            ),
        }
    captions = {}
    for name, (picture, caption) in pictures.items():
        axes: Axes = Figure(figsize=(6, 3.6), layout="constrained").subplots()
        axes.grid(alpha=0.3)
        picture(axes)
        axes.figure.savefig(folder / f"{name}.png", dpi=110)
        captions[f"{name}.png"] = caption
    if len(pictures) > 1 and len(names) <= MOST_CLASSES:
        matrix_CC = confusion(said.said_NC, said.label).astype(float)
        confusion_matrix(matrix_CC, names, folder / "confusion_matrix.png")
        captions["confusion_matrix.png"] = "Confusion matrix of the test nodes."
    return captions


def _degrees(axes: Axes, source: GraphData) -> None:
    degree, count = np.unique(source.graph.degree_N, return_counts=True)
    axes.loglog(np.maximum(degree, 0.5), count[::-1].cumsum()[::-1], ".", color="#2b6ca3")
    axes.set(xlabel="degree (0 at the left end)", ylabel="nodes of at least this degree")


def _classes(axes: Axes, said: Any, names: list[str]) -> None:
    f1_C = np.nan_to_num(f1(confusion(said.said_NC, said.label)))
    shown = np.argsort(-f1_C, kind="stable")[:50]
    axes.bar(range(len(shown)), f1_C[shown], color="#2b6ca3")
    axes.set_xticks(range(len(shown)), [names[c] for c in shown], rotation=90, fontsize=7)
    axes.set(ylabel="F1", ylim=(0, 1))


def _calibration(axes: Axes, said: Any) -> None:
    count, probability, right = reliability(said.said_NC, said.label)
    there = count > 0
    axes.bar(probability[there], count[there] / count.sum(), 0.05, color="#d0d7de")
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    axes.plot(probability[there], right[there], marker="o", color="#2b6ca3")
    axes.set(xlabel="probability of the likeliest class", ylabel="share that is right")


def _embedding(axes: Axes, said: Any, names: list[str]) -> None:
    step = max(1, len(said.label) // MOST_POINTS)
    log_NC = np.log(said.said_NC[::step].clip(1e-6))
    log_NC = log_NC - log_NC.mean(0)
    _, _, direction_CC = np.linalg.svd(log_NC, full_matrices=False)
    point_N2 = log_NC @ direction_CC[:2].T
    for c, name in enumerate(names[:MOST_CLASSES]):
        axes.plot(*point_N2[said.label[::step] == c].T, ".", markersize=2, label=name)
    axes.legend(fontsize=6, markerscale=4, loc="center left", bbox_to_anchor=(1, 0.5))


def _degree_groups(source: GraphData, node_N: NDArray[Any]) -> tuple[NDArray[Any], list[str]]:
    ends = [1, 2, 4, 8, 16, 32, 64, 128]
    names = [
        "0",
        *(f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in pairwise(ends)),
    ]
    return np.digitize(source.graph.degree_N[node_N], ends), [*names, f"{ends[-1]}+"]


def _alike_groups(source: GraphData, node_N: NDArray[Any]) -> tuple[NDArray[Any], list[str]]:
    label_N = source.target.label
    known_NC = np.eye(len(source.target.names), dtype=np.float32)[label_N] * (label_N >= 0)[:, None]
    near_NC = propagate(source.graph, scales(source.graph, "row"), known_NC)
    total_N = near_NC.sum(1)[node_N]
    share_N = near_NC[node_N, label_N[node_N]] / np.maximum(total_N, 1e-9)
    group_N = np.minimum((share_N * 5).astype(int), 4)
    group_N[total_N == 0] = 5
    return group_N, ["0-.2", ".2-.4", ".4-.6", ".6-.8", ".8-1", "no neighbour"]


def _by(axes: Axes, right_N: Any, group_N: Any, names: list[str], what: str) -> None:
    count = np.bincount(group_N, minlength=len(names))
    right = np.bincount(group_N, right_N, minlength=len(names))
    there = np.flatnonzero(count)
    error = np.sqrt(right / count.clip(1) * (1 - right / count.clip(1)) / count.clip(1))
    axes.errorbar(there, (right / count.clip(1))[there], error[there], fmt="o", color="#2b6ca3")
    axes.set_xticks(there, [f"{names[g]}\n{count[g]} nodes" for g in there], fontsize=7)
    axes.set(xlabel=f"{what} (bars: one standard error)", ylabel="accuracy", ylim=(0, 1.02))
