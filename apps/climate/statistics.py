"""Mean, deviation, range and class balance of a data set, in one pass over its samples.

Shapes: C channel, H latitude, W longitude, P pixel, K class.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Statistics:
    """Accumulates samples. Missing values are left out."""

    def __init__(self, channels: int, classes: int) -> None:
        self.count_C = np.zeros(channels)  # values seen
        self.missing_C = np.zeros(channels)
        self.mean_C = np.zeros(channels)
        self.min_C = np.full(channels, np.inf)
        self.max_C = np.full(channels, -np.inf)
        self.pixels_K = np.zeros(classes)  # labelled
        self._squares_C = np.zeros(channels)

    def add(self, image_CHW: NDArray, label_HW: NDArray) -> None:
        """Takes one sample in: the pairwise update of Chan, Golub and LeVeque (1983), eq. 2.1."""
        values_CP = np.asarray(image_CHW, np.float64).reshape(len(self.count_C), -1)
        valid_CP = np.isfinite(values_CP)
        count_C = valid_CP.sum(1)
        mean_C = values_CP.sum(1, where=valid_CP) / np.maximum(count_C, 1)
        squares_C = np.square(values_CP - mean_C[:, None]).sum(1, where=valid_CP)
        total_C = np.maximum(self.count_C + count_C, 1)
        delta_C = mean_C - self.mean_C
        self._squares_C += squares_C + delta_C**2 * self.count_C * count_C / total_C
        self.mean_C += delta_C * count_C / total_C
        self.count_C += count_C
        self.missing_C += values_CP.shape[1] - count_C
        self.min_C = np.minimum(self.min_C, values_CP.min(1, where=valid_CP, initial=np.inf))
        self.max_C = np.maximum(self.max_C, values_CP.max(1, where=valid_CP, initial=-np.inf))
        classes = len(self.pixels_K)
        self.pixels_K += np.bincount(label_HW[label_HW >= 0], minlength=classes)[:classes]

    @property
    def std_C(self) -> NDArray[np.float64]:
        """Standard deviation; 1 for a constant channel, so that nothing is divided by zero."""
        std_C = np.sqrt(self._squares_C / np.maximum(self.count_C, 1))
        return np.where(self.constant_C, 1.0, std_C)

    @property
    def constant_C(self) -> NDArray[np.bool_]:
        """Which channels have one value only."""
        return self.max_C <= self.min_C

    @property
    def fraction_K(self) -> NDArray[np.float64]:
        """Share of each class among the labelled pixels (of pixels, not of area)."""
        return self.pixels_K / max(self.pixels_K.sum(), 1)
