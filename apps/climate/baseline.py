"""The tuned threshold rule that every model has to beat.

A rule is a conjunction of conditions, each a feature above or below a threshold. For the variables
and classes of ClimateNet the conditions are those of the usual detection schemes; for others, every
single variable in both directions is tried. The thresholds are those with the best area-weighted
IoU on the training split.

Suffixes: C channel, H latitude, W longitude, N pixel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from apps.climate.metrics import confusion, scores

Array = NDArray[np.float32]

TUNING_MAPS = 48
TUNING_PIXELS = 1_000_000  # of all maps together; finer grids are thinned out
TAIL = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # finely, as events are rare
QUANTILES = (*TAIL, *(n / 10 for n in range(1, 10)), *(1 - share for share in TAIL))

CLIMATENET_INPUTS = {"TMQ", "U850", "V850", "PSL"}
WIND, DISTANCE = "wind speed at 850 hPa", "degrees from the equator"


class Samples(Protocol):
    """A split of a data set, as `apps.climate.data` has it."""

    def __len__(self) -> int: ...

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, NDArray[Any]]:
        """One map: "image_CHW", "label_HW" (-1: none) and "area_H"."""


class Source(Protocol):
    """A data set, as `apps.climate.data` has it."""

    def facts(self) -> Mapping[str, Any]:
        """Among others "inputs", "classes" and "latitude_H"."""

    def samples(self, split: str) -> Samples:
        """The maps of "train" or "test"."""


@dataclass(frozen=True)
class Condition:
    """A feature on one side of a threshold, of which there are candidates. NaN does not meet it."""

    feature: str
    above: bool
    candidates: tuple[float, ...]

    def mask(self, values: Array, threshold: float) -> NDArray[np.bool_]:
        """Where the condition is met."""
        return values > threshold if self.above else values < threshold


@dataclass(frozen=True)
class FittedRule:
    """A conjunction with its thresholds, and its IoU where it was tuned."""

    conditions: tuple[Condition, ...]
    thresholds: tuple[float, ...]
    iou: float

    def mask(self, features: Mapping[str, Array]) -> NDArray[np.bool_]:
        """Where the rule says yes."""
        pairs = zip(self.conditions, self.thresholds, strict=True)
        return np.logical_and.reduce(
            [c.mask(features[c.feature], threshold) for c, threshold in pairs]
        )

    def __str__(self) -> str:
        pairs = zip(self.conditions, self.thresholds, strict=True)
        return " and ".join(
            f"{c.feature} {'>' if c.above else '<'} {threshold:g}" for c, threshold in pairs
        )


CLIMATENET_RULES = {
    "tropical_cyclone": (
        Condition("PSL", False, tuple(range(98_000, 101_501, 250))),  # Pa
        Condition(WIND, True, tuple(range(8, 29, 2))),  # m/s
        Condition(DISTANCE, False, (20.0, 25.0, 30.0, 35.0, 40.0, 45.0)),
    ),
    "atmospheric_river": (
        Condition("TMQ", True, tuple(range(14, 43, 2))),  # kg/m^2
        Condition(WIND, True, tuple(range(6, 21))),  # m/s
        Condition(DISTANCE, True, (14.0, 18.0, 22.0, 26.0)),
    ),
}


def score(source: Source) -> dict[str, float]:
    """Area-weighted IoU of the tuned rules on the test split: `iou_<class>` of every class, and
    `iou_mean`.

    Args:
        source: The data set; rules are tuned on its training split.
    """
    classes = source.facts()["classes"]
    rules = tune(source)
    total_KK = torch.zeros(len(classes), len(classes), dtype=torch.float64)
    for sample in _read(source, "test", None):
        predicted_HW = classify(rules, features(source.facts(), sample["image_CHW"]))
        fields = (predicted_HW, sample["label_HW"], sample["area_H"])
        total_KK += confusion(
            *(torch.from_numpy(field)[None] for field in fields), num_classes=len(classes)
        )
    return {
        name: value for name, value in scores(total_KK, classes).items() if name.startswith("iou_")
    }


def tune(source: Source) -> dict[int, FittedRule]:
    """The best rule of every class but the first, which is where no rule applies; the most common
    class first.

    Args:
        source: The data set, of whose training split at most the first `TUNING_MAPS` maps are read.
    """
    facts = source.facts()
    values, label_N, area_N = _tuning_pixels(source)
    fitted = {}
    for number, name in list(enumerate(facts["classes"]))[1:]:
        rules = candidate_rules(name, facts["inputs"], values)
        options = [_fit(rule, values, label_N == number, area_N) for rule in rules]
        if options:
            fitted[number] = max(options, key=lambda rule: rule.iou)
    share = {number: float(area_N[label_N == number].sum()) for number in fitted}
    return dict(sorted(fitted.items(), key=lambda item: -share[item[0]]))


def candidate_rules(
    name: str, inputs: Sequence[str], values: Mapping[str, Array]
) -> list[tuple[Condition, ...]]:
    """Rules to try for a class: the known one, or every variable in both directions with quantiles
    as thresholds.

    Args:
        name: Of the class.
        inputs: Names of the variables.
        values: Their values, from which the quantiles are taken.
    """
    if set(inputs) >= CLIMATENET_INPUTS and name in CLIMATENET_RULES:
        return [CLIMATENET_RULES[name]]
    rules: list[tuple[Condition, ...]] = []
    for variable in inputs:
        finite = values[variable][np.isfinite(values[variable])]
        if finite.size:
            candidates = tuple(np.unique(np.quantile(finite, QUANTILES)).tolist())
            rules += [(Condition(variable, above, candidates),) for above in (True, False)]
    return rules


def classify(rules: Mapping[int, FittedRule], values: Mapping[str, Array]) -> NDArray[np.int64]:
    """Class numbers; where several rules apply the last wins, which is that of the rarest class."""
    predicted = np.zeros(next(iter(values.values())).shape, dtype=np.int64)
    for number, rule in rules.items():
        predicted[rule.mask(values)] = number
    return predicted


def features(facts: Mapping[str, Any], image_CHW: Array) -> dict[str, Array]:
    """What conditions can be about, by name, each HW; with ClimateNet also wind and latitude."""
    values = dict(zip(facts["inputs"], image_CHW, strict=True))
    if set(values) >= CLIMATENET_INPUTS:
        values[WIND] = np.hypot(values["U850"], values["V850"])
        distance_H = np.abs(np.asarray(facts["latitude_H"], dtype=np.float32))
        values[DISTANCE] = np.broadcast_to(distance_H[:, None], image_CHW.shape[1:])
    return values


def _fit(
    rule: tuple[Condition, ...],
    values: Mapping[str, Array],
    truth_N: NDArray[np.bool_],
    area_N: Array,
) -> FittedRule:
    masks = [{t: c.mask(values[c.feature], t) for t in c.candidates} for c in rule]
    truth_area = area_N[truth_N].sum()
    best = FittedRule(rule, tuple(c.candidates[0] for c in rule), -1.0)
    for thresholds in itertools.product(*masks):
        said_N = np.logical_and.reduce([mask[t] for mask, t in zip(masks, thresholds, strict=True)])
        hit, said = area_N[said_N & truth_N].sum(), area_N[said_N].sum()
        iou = float(hit / max(said + truth_area - hit, np.finfo(np.float32).tiny))
        if iou > best.iou:
            best = FittedRule(rule, thresholds, iou)
    return best


def _tuning_pixels(source: Source) -> tuple[dict[str, Array], NDArray[np.int64], Array]:
    """Features, labels and areas of the labelled pixels of the first maps, each N."""
    facts = source.facts()
    parts: list[tuple[Array, ...]] = []
    names: list[str] = []
    for sample in _read(source, "train", TUNING_MAPS):
        label_HW = sample["label_HW"]
        step = math.ceil(math.sqrt(label_HW.size * TUNING_MAPS / TUNING_PIXELS))
        values = features(facts, sample["image_CHW"])
        names = list(values)
        area_HW = np.broadcast_to(sample["area_H"][:, None], label_HW.shape)
        known_HW = label_HW[::step, ::step] >= 0
        parts.append(
            tuple(
                field[::step, ::step][known_HW] for field in (label_HW, area_HW, *values.values())
            )
        )
    label_N, area_N, *values_N = (np.concatenate(part) for part in zip(*parts, strict=True))
    return dict(zip(names, values_N, strict=True)), label_N, area_N


def _read(source: Source, split: str, most: int | None) -> Iterator[dict[str, NDArray[Any]]]:
    samples = source.samples(split)
    for index in range(min(len(samples), most or len(samples))):
        yield samples.read(index, None)
