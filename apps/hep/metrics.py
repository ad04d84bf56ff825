"""Scores of a classification with weights, of either sign; all are ratios of sums of weights.

With negative weights a ROC curve may turn back and an AUC leave [0, 1], as it should: its expected
value is that of the distribution which the weights stand for.

Suffixes: R row, K class, T threshold.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
EFFICIENCIES = (0.3, 0.5, 0.7, 0.99)  # of the signal, at which rejections are given
BINS = 15  # of probability
MASS_BINS = 40


@dataclass
class Scored:
    """Rows with what was predicted and what is true: probabilities RK, class, weight, transverse
    momentum and mass R, NaN where there is none.
    """

    probability_RK: Floats
    label_R: NDArray[np.int64]
    weight_R: Floats
    pt_R: Floats
    mass_R: Floats

    def __getitem__(self, chosen_R: NDArray) -> Scored:
        return Scored(*(values[chosen_R] for values in vars(self).values()))


def auc(true_R: Flags, score_R: Floats, weight_R: Floats) -> float:
    """Probability that a true row scores above another, ties counted half; NaN of nothing."""
    _, place_R = np.unique(score_R, return_inverse=True)
    signal, other = (np.bincount(place_R, weight_R * of, minlength=1) for of in (true_R, ~true_R))
    above = (signal * (np.cumsum(other) - other / 2)).sum()
    total = signal.sum() * other.sum()
    return float(above / total) if total else np.nan


def roc(true_R: Flags, score_R: Floats, weight_R: Floats) -> tuple[Floats, Floats, Floats]:
    """Efficiency of signal and background above each distinct score, and the scores, falling; the
    first is above all.
    """
    scores, place_R = np.unique(score_R, return_inverse=True)
    found = []
    for of in (true_R, ~true_R):
        sums = np.bincount(place_R, weight_R * of, minlength=len(scores))[::-1]
        found.append(np.concatenate([[0], np.cumsum(sums)]) / (sums.sum() or np.nan))
    return found[0], found[1], np.concatenate([[np.inf], scores[::-1]])


def effective(weight_R: Floats) -> float:
    """How many rows of equal weight tell as much: (sum of weights)^2 / sum of squares."""
    squares = np.square(weight_R).sum()
    return float(weight_R.sum() ** 2 / squares) if squares else 0.0


def at_efficiency(curve: tuple[Floats, Floats, Floats], wanted: float) -> tuple[float, float]:
    """Background efficiency and threshold where the signal's first reaches a value."""
    signal_T, other_T, score_T = curve
    reached = signal_T >= wanted
    if not reached.any():
        return np.nan, np.nan
    last = int(np.argmax(reached))
    if not last:
        return float(other_T[0]), float(score_T[0])
    before, after = signal_T[last - 1], signal_T[last]
    share = (wanted - before) / (after - before)
    return float(other_T[last - 1] + share * (other_T[last] - other_T[last - 1])), score_T[last]


def rejection(background: float, rows: float) -> tuple[float, float]:
    """1 / efficiency of the background, and its statistical error.

    Args:
        background: The efficiency.
        rows: Background rows, see :func:`effective`: with none left, one of these is assumed.
    """
    if not rows or np.isnan(background):
        return np.nan, np.nan
    passing = max(background, 1 / rows)
    error = np.sqrt(max(passing * (1 - passing), 0) / rows)
    return 1 / passing, float(error / passing**2)


def discriminant(found: Scored, signal: int, background: int = 0) -> tuple[Scored, Floats]:
    """The rows of two classes, and p_signal / (p_signal + p_background) of each."""
    pair = found[np.isin(found.label_R, (signal, background))]
    p_R, q_R = pair.probability_RK[:, signal], pair.probability_RK[:, background]
    return pair, p_R / np.maximum(p_R + q_R, 1e-300)


def signal_roc(found: Scored, signal: int) -> tuple[Floats, Floats, Floats]:
    """The ROC curve of a class against the first, see :func:`roc`."""
    pair, score_R = discriminant(found, signal)
    return roc(pair.label_R == signal, score_R, pair.weight_R)


def rejections(found: Scored, classes: Sequence[str]) -> Iterator[tuple[str, float, float, float]]:
    """Signal, its efficiency, rejection of the first class, and the error of that."""
    rows = effective(found.weight_R[found.label_R == 0])
    for signal, name in list(enumerate(classes))[1:]:
        curve = signal_roc(found, signal)
        for wanted in EFFICIENCIES:
            yield name, wanted, *rejection(at_efficiency(curve, wanted)[0], rows)


def pair_aucs(found: Scored, classes: Sequence[str]) -> dict[str, float]:
    """``auc_<a>_<b>`` of each pair: the mean of both classes' probabilities as a score (Hand and
    Till 2001, doi:10.1023/A:1010920819831), and of all pairs ``auc_macro``.
    """
    pairs = {}
    for a, b in itertools.combinations(range(len(classes)), 2):
        rows = found[np.isin(found.label_R, (a, b))]
        both = [auc(rows.label_R == it, rows.probability_RK[:, it], rows.weight_R) for it in (a, b)]
        pairs[f"auc_{classes[a]}_{classes[b]}"] = sum(both) / 2
    known = [it for it in pairs.values() if not np.isnan(it)]
    return {"auc_macro": float(np.mean(known)) if known else np.nan} | pairs


def accuracy(found: Scored) -> float:
    """Share of the weight that is in the class which is likeliest."""
    right_R = found.probability_RK.argmax(1) == found.label_R
    return float((found.weight_R * right_R).sum() / (found.weight_R.sum() or np.nan))


def calibration(found: Scored) -> Floats:
    """Sums of weight, weight x probability, and weight that is right, of the likeliest class, by
    bins of its probability; shape (BINS, 3).
    """
    p_R = found.probability_RK.max(1)
    right_R = found.probability_RK.argmax(1) == found.label_R
    bin_R = np.minimum((p_R * BINS).astype(int), BINS - 1)
    sums = (found.weight_R, found.weight_R * p_R, found.weight_R * right_R)
    return np.stack([np.bincount(bin_R, it, minlength=BINS) for it in sums], 1)


def mass_sculpting(found: Scored, signal: int, wanted: float = 0.5) -> float:
    """Jensen-Shannon divergence, in bits, between the background's mass above and below the
    threshold of a signal efficiency: 0 where the score does not know the mass.
    """
    pair, score_R = discriminant(found, signal)
    _, threshold = at_efficiency(signal_roc(found, signal), wanted)
    known_R = (pair.label_R != signal) & np.isfinite(pair.mass_R)
    if not known_R.any() or np.isnan(threshold):
        return np.nan
    mass_R, weight_R = pair.mass_R[known_R], pair.weight_R[known_R]
    edges = np.quantile(mass_R, np.linspace(0, 1, MASS_BINS + 1))
    passed_R = score_R[known_R] >= threshold
    sides = [
        np.histogram(mass_R[it], edges, weights=weight_R[it])[0] for it in (passed_R, ~passed_R)
    ]
    return jensen_shannon(*(np.maximum(it, 0) for it in sides))


def jensen_shannon(first: Floats, second: Floats) -> float:
    """The divergence between two histograms, in bits; NaN if one is empty."""
    if not first.sum() or not second.sum():
        return np.nan
    p, q = first / first.sum(), second / second.sum()
    mean = (p + q) / 2

    def relative(it: Floats) -> float:
        there = it > 0
        return float((it[there] * np.log2(it[there] / mean[there])).sum())

    return (relative(p) + relative(q)) / 2


def scores(found: Scored, classes: Sequence[str]) -> dict[str, float]:
    """All of a test: what a validation has, rejections of the first class with their errors, the
    best significance improvement, mass sculpting, and the calibration error (Guo et al. 2017,
    arXiv:1706.04599, eq. 3).
    """
    named = {"accuracy": accuracy(found), **pair_aucs(found, classes)}
    for name, wanted, value, error in rejections(found, classes):
        key = f"rejection_{name}_at_{wanted * 100:.0f}"
        named |= {key: value, f"{key}_error": error}
    rows = effective(found.weight_R[found.label_R == 0])
    for signal, name in list(enumerate(classes))[1:]:
        curve = signal_roc(found, signal)
        named[f"sic_{name}"] = float(np.fmax.reduce(significance(curve, rows)))
        named[f"mass_js_{name}"] = mass_sculpting(found, signal)
    weight, probability, right = calibration(found).T
    named["ece"] = float(np.abs(probability - right).sum() / (np.abs(weight).sum() or np.nan))
    return named


def significance(curve: tuple[Floats, Floats, Floats], rows: float) -> Floats:
    """Signal efficiency / sqrt(background efficiency): what a cut does to S / sqrt(B); NaN where
    fewer than ten background rows are left to say so.
    """
    signal_T, other_T, _ = curve
    return np.where(other_T * rows >= 10, signal_T / np.sqrt(np.maximum(other_T, 1e-300)), np.nan)
