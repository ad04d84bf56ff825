"""From probabilities to picks, and how good these are.

Suffixes: R record, P phase, T sample in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.3
TOLERANCE_S = 0.3


def picks_of(probability_RPT: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The likeliest sample of each phase, NaN below the threshold, and its probability: (R, P)."""
    best_RP = probability_RPT.max(-1).astype(float)
    at_RP = probability_RPT.argmax(-1).astype(float)
    return np.where(best_RP >= THRESHOLD, at_RP, np.nan), best_RP


def scores(
    found_RP: NDArray[Any], true_RP: NDArray[Any], phases: Sequence[str], rate_Hz: float
) -> dict[str, float]:
    """F1 of each phase, of picks within the tolerance, their mean absolute error, and the mean F1.

    Args:
        found_RP: Picks in samples, NaN for none.
        true_RP: Arrivals in samples, NaN for none.
        phases: Their names.
        rate_Hz: Samples a second.
    """
    named = {}
    for phase, found_R, true_R in zip(phases, found_RP.T, true_RP.T, strict=True):
        error_R = np.abs(found_R - true_R) / rate_Hz
        right_R = error_R <= TOLERANCE_S
        both = np.isfinite(found_R).sum() + np.isfinite(true_R).sum()
        named[f"f1_{phase}"] = float(2 * right_R.sum() / both) if both else float("nan")
        if right_R.any():
            named[f"mae_{phase}_seconds"] = float(error_R[right_R].mean())
    return named | {"f1": float(np.mean([named[f"f1_{phase}"] for phase in phases]))}
