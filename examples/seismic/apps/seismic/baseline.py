"""The simple rule: the ratio of power in a short and a long window (Allen 1978).

Suffixes: R record, P phase, T sample in time.
"""

from __future__ import annotations

import numpy as np
from apps.seismic.data import SeismicData, SeismicSamples
from apps.seismic.picks import scores
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

RATIOS = (3.0, 5.0, 8.0, 12.0)
SHORT_S, LONG_S = 0.3, 3.0


def score(source: SeismicData) -> dict[str, float]:
    """Scores of the rule on the test split, by the ratio that is best on the training split."""
    ranked = [(_scored(source, "train", ratio)["f1"], ratio) for ratio in RATIOS]
    return _scored(source, "test", max(ranked)[1])


def _scored(source: SeismicData, split: str, ratio: float) -> dict[str, float]:
    samples, facts = source.samples(split), source.facts()
    found = [_picks(samples, index, source.rate_Hz, ratio) for index in range(len(samples))]
    true_RP = np.array([it.arrivals for it in samples.traces])
    return scores(np.array(found)[:, : true_RP.shape[1]], true_RP, facts["phases"], source.rate_Hz)


def _picks(samples: SeismicSamples, index: int, rate_Hz: float, ratio: float) -> list[float]:
    """P where the ratio is first exceeded; S where power rises most, a second or more later."""
    power_T = np.square(samples.read(index, None)["record_CT"]).sum(0)
    rise_T = _rise(power_T, rate_Hz)
    above = np.flatnonzero(rise_T > ratio)
    if not len(above):
        return [np.nan, np.nan]
    later = above[0] + int(rate_Hz)
    s = later + int(rise_T[later:].argmax()) if later < len(rise_T) else np.nan
    return [float(above[0]), float(s)]


def _rise(power_T: NDArray[np.float32], rate_Hz: float) -> NDArray[np.float64]:
    short, long = round(SHORT_S * rate_Hz), round(LONG_S * rate_Hz)
    after_T = uniform_filter1d(power_T.astype(float), short, origin=-(short // 2))
    before_T = uniform_filter1d(power_T.astype(float), long, origin=(long - 1) // 2)
    return after_T / np.maximum(before_T, 1e-12 + 0.05 * power_T.mean())
