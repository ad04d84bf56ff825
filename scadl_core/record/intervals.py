"""Means of a few repetitions, with what is not known of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def interval(values: Sequence[float] | Any) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval (Student); infinite for a single value.

    Args:
        values: One a seed.
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    if np.ptp(values) == 0:
        return mean, mean, mean
    from scipy.stats import t  # slow to import

    half = t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half
