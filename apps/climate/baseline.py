"""The tuned threshold rule that every model has to beat.

A rule is a conjunction of conditions, each a feature above or below a threshold. For the variables
and classes of ClimateNet the conditions are those of the usual detection schemes; for others, every
single variable in both directions is tried. The thresholds are those with the best area-weighted
IoU on the training split.

Suffixes: C channel, H latitude, W longitude, N pixel, K class.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apps.climate.metrics import confusion, scores
from scadl_core.workflow.contracts import Source

Array = NDArray[np.float32]
# Conditions, each a feature, whether it has to be above, and the threshold.
Rule = tuple[tuple[str, bool, float], ...]
Candidates = tuple[tuple[str, bool, Sequence[float]], ...]  # the same with thresholds to try

TUNING_MAPS = 48
TUNING_PIXELS = 1_000_000  # of all maps together; finer grids are thinned out
TAIL = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # finely, as events are rare
QUANTILES = (*TAIL, *(n / 10 for n in range(1, 10)), *(1 - share for share in TAIL))
CLIMATENET_INPUTS = {"TMQ", "U850", "V850", "PSL"}
WIND, DISTANCE = "wind speed at 850 hPa", "degrees from the equator"
CLIMATENET_RULES: dict[str, Candidates] = {
    "tropical_cyclone": (
        ("PSL", False, range(98_000, 101_501, 250)),  # Pa
        (WIND, True, range(8, 29, 2)),  # m/s
        (DISTANCE, False, range(20, 46, 5)),
    ),
    "atmospheric_river": (
        ("TMQ", True, range(14, 43, 2)),  # kg/m^2
        (WIND, True, range(6, 21)),
        (DISTANCE, True, range(14, 27, 4)),
    ),
}


def _met(values: Mapping[str, Array], name: str, above: bool, threshold: float) -> NDArray:
    """Where a condition is met; never by NaN."""
    return values[name] > threshold if above else values[name] < threshold


def score(source: Source) -> dict[str, float]:
    """Area-weighted IoU of the tuned rules on the test split: `iou_<class>` and `iou_mean`."""
    facts, rules = source.facts(), tune(source)
    classes = facts["classes"]
    total_KK = torch.zeros(len(classes), len(classes), dtype=torch.float64)
    for sample in _read(source, "test"):
        predicted_HW = classify(rules, features(facts, sample["image_CHW"]))
        fields = (predicted_HW, sample["label_HW"], sample["area_HW"])
        total_KK += confusion(*(torch.from_numpy(it)[None] for it in fields), len(classes))
    found = scores(total_KK, classes)
    return {name: value for name, value in found.items() if name.startswith("iou_")}


def tune(source: Source) -> dict[int, Rule]:
    """The best rule of every class but the first, the most common class first, by class number.

    The first is where no rule applies. At most the first `TUNING_MAPS` training maps are read.
    """
    facts = source.facts()
    values, label_N, area_N = _tuning_pixels(source)
    rules, share = {}, {}
    for number, name in list(enumerate(facts["classes"]))[1:]:
        truth_N = label_N == number
        share[number] = float(area_N[truth_N].sum())
        tried = _candidates(name, facts["inputs"], values)
        if options := [_fit(rule, values, truth_N, area_N) for rule in tried]:
            rules[number] = max(options, key=itemgetter(0))[1]
    return {number: rules[number] for number in sorted(rules, key=lambda it: -share[it])}


def _candidates(name: str, inputs: Sequence[str], values: Mapping[str, Array]) -> list[Candidates]:
    """Rules to try for a class: the known one, or every variable with quantiles as thresholds."""
    if set(inputs) >= CLIMATENET_INPUTS and name in CLIMATENET_RULES:
        return [CLIMATENET_RULES[name]]
    finite = {name: values[name][np.isfinite(values[name])] for name in inputs}
    tried = {name: np.quantile(it, QUANTILES) for name, it in finite.items() if it.size}
    sorted_ = {name: np.unique(quantiles).tolist() for name, quantiles in tried.items()}
    return [((name, above, it),) for name, it in sorted_.items() for above in (True, False)]


def classify(rules: Mapping[int, Rule], values: Mapping[str, Array]) -> NDArray[np.int64]:
    """Class numbers; where several rules apply the last wins, which is that of the rarest class."""
    predicted = np.zeros(next(iter(values.values())).shape, dtype=np.int64)
    for number, rule in rules.items():
        predicted[np.logical_and.reduce([_met(values, *condition) for condition in rule])] = number
    return predicted


def features(facts: Mapping[str, Any], image_CHW: Array) -> dict[str, Array]:
    """What conditions can be about, by name, each HW; with ClimateNet also wind and latitude."""
    values = dict(zip(facts["inputs"], image_CHW, strict=True))
    if set(values) >= CLIMATENET_INPUTS:
        values[WIND] = np.hypot(values["U850"], values["V850"])
        distance = np.abs(np.asarray(facts["latitude"], dtype=np.float32))
        distance = distance if distance.ndim == 2 else distance[:, None]
        values[DISTANCE] = np.broadcast_to(distance, image_CHW.shape[1:])
    return values


def _fit(
    rule: Candidates, values: Mapping[str, Array], truth_N: NDArray, area_N: Array
) -> tuple[float, Rule]:
    """The best IoU, and the rule that has it."""
    choices = [[(name, above, value) for value in tried] for name, above, tried in rule]
    masks = {choice: _met(values, *choice) for choice in itertools.chain(*choices)}
    truth_area, best = area_N[truth_N].sum(), (-1.0, ())
    for conditions in itertools.product(*choices):
        said_N = np.logical_and.reduce([masks[condition] for condition in conditions])
        hit, said = area_N[said_N & truth_N].sum(), area_N[said_N].sum()
        iou = float(hit / max(said + truth_area - hit, np.finfo(np.float32).tiny))
        best = (iou, conditions) if iou > best[0] else best
    return best


def _tuning_pixels(source: Source) -> tuple[dict[str, Array], NDArray[np.int64], Array]:
    """Features, labels and areas of the labelled pixels of the first maps, each N."""
    facts, parts, values = source.facts(), [], {}
    for sample in itertools.islice(_read(source, "train"), TUNING_MAPS):
        label_HW = sample["label_HW"]
        step = math.ceil(math.sqrt(label_HW.size * TUNING_MAPS / TUNING_PIXELS))
        values = features(facts, sample["image_CHW"])
        known_HW = label_HW[::step, ::step] >= 0
        fields = (label_HW, sample["area_HW"], *values.values())
        parts.append([field[::step, ::step][known_HW] for field in fields])
    label_N, area_N, *values_N = (np.concatenate(part) for part in zip(*parts, strict=True))
    return dict(zip(values, values_N, strict=True)), label_N, area_N


def _read(source: Source, split: str) -> Iterator[dict[str, NDArray[Any]]]:
    samples = source.samples(split)
    return (samples.read(index, None) for index in range(len(samples)))
