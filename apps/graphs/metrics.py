"""Scores of predictions on nodes.

Suffixes: N node, C class or output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from scipy.stats import rankdata

Floats = NDArray[np.float64]
BINS = 10


def probabilities(kind: str, logits_NC: Floats) -> Floats:
    """What a network says, as probabilities; values, as they are."""
    if kind == "regression":
        return logits_NC
    return softmax(logits_NC, 1) if kind == "classes" else expit(logits_NC)


def scores(kind: str, said_NC: Floats, label: NDArray, names: Sequence[str]) -> dict[str, float]:
    """Scores of a split; what cannot be said is NaN.

    Args:
        kind: ``classes``, ``multilabel`` or ``regression``.
        said_NC: See :func:`probabilities`.
        label: (N,) of classes, or (N, C), NaN where unknown.
        names: C names.
    """
    if kind == "classes":
        return _of_classes(said_NC, label, names)
    if kind == "multilabel":
        return _of_labels(said_NC, label)
    error_NC = said_NC - label
    spread_C = np.nansum(np.square(label - np.nanmean(label, 0)), 0)
    return {
        "r2": float(np.mean(1 - np.nansum(np.square(error_NC), 0) / spread_C)),
        "mae": float(np.nanmean(np.abs(error_NC))),
        "rmse": float(np.sqrt(np.nanmean(np.square(error_NC)))),
    }


def _of_classes(said_NC: Floats, label_N: NDArray, names: Sequence[str]) -> dict[str, float]:
    matrix_CC = confusion(said_NC, label_N)
    f1_C = f1(matrix_CC)
    true_C = matrix_CC.sum(1)
    recall_C = np.divide(
        matrix_CC.diagonal(), true_C, out=np.full(len(f1_C), np.nan), where=true_C > 0
    )
    found = {
        "accuracy": float(matrix_CC.diagonal().sum() / len(label_N)),
        "accuracy_balanced": float(np.nanmean(recall_C)),
        "f1_macro": float(np.nanmean(f1_C)),
        "ece": calibration_error(said_NC, label_N),
    }
    if len(names) == 2:
        found["roc_auc"] = roc_auc(said_NC[:, 1], label_N == 1)
    return found


def _of_labels(said_NC: Floats, label_NC: NDArray) -> dict[str, float]:
    known_NC = np.isfinite(label_NC)
    hit_NC, true_NC = (said_NC > 0.5) & known_NC, (label_NC == 1) & known_NC
    both_C, sum_C = (hit_NC & true_NC).sum(0), hit_NC.sum(0) + true_NC.sum(0)
    areas = [
        roc_auc(said_NC[known_NC[:, c], c], label_NC[known_NC[:, c], c] == 1)
        for c in range(said_NC.shape[1])
    ]
    f1_C = np.divide(2 * both_C, sum_C, out=np.full(len(sum_C), np.nan), where=sum_C > 0)
    return {
        "accuracy": float((hit_NC == true_NC)[known_NC].mean()),
        "f1_micro": float(2 * both_C.sum() / max(sum_C.sum(), 1)),
        "f1_macro": float(np.nanmean(f1_C)) if sum_C.any() else float("nan"),
        "roc_auc": float(np.nanmean(areas)) if np.isfinite(areas).any() else float("nan"),
    }


def confusion(said_NC: Floats, label_N: NDArray) -> NDArray[np.int64]:
    """Counts, shape (C, C), rows the truth."""
    classes = said_NC.shape[1]
    cell_N = label_N * classes + said_NC.argmax(1)
    return np.bincount(cell_N, minlength=classes**2).reshape(classes, classes)


def f1(matrix_CC: NDArray[np.int64]) -> Floats:
    """Of each class; NaN of one that is neither there nor said to be."""
    sum_C = matrix_CC.sum(0) + matrix_CC.sum(1)
    hit_C = 2.0 * matrix_CC.diagonal()
    return np.divide(hit_C, sum_C, out=np.full(len(sum_C), np.nan), where=sum_C > 0)


def roc_auc(said_N: Floats, true_N: NDArray[np.bool_]) -> float:
    """The area under the ROC curve, by ranks (Hanley and McNeil 1982,
    doi:10.1148/radiology.143.1.7063747); NaN if all or none are true.
    """
    positive = int(true_N.sum())
    negative = len(true_N) - positive
    if not positive or not negative:
        return float("nan")
    above = rankdata(said_N)[true_N].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def reliability(said_NC: Floats, label_N: NDArray) -> NDArray[np.float64]:
    """By bin of the likeliest class's probability: count, mean probability, share that is right;
    shape (3, bins).
    """
    best_N, right_N = said_NC.max(1), said_NC.argmax(1) == label_N
    bin_N = np.minimum((best_N * BINS).astype(int), BINS - 1)
    count, said, right = (
        np.bincount(bin_N, weights, BINS) for weights in (np.ones(len(best_N)), best_N, right_N)
    )
    return np.stack([count, said / np.maximum(count, 1), right / np.maximum(count, 1)])


def calibration_error(said_NC: Floats, label_N: NDArray) -> float:
    """The expected calibration error: Guo et al. 2017, arXiv:1706.04599, eq. 3."""
    count, said, right = reliability(said_NC, label_N)
    return float((count * np.abs(said - right)).sum() / count.sum())
