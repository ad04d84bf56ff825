"""The threshold rule: finds what was planted, scores by area, and knows ClimateNet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from apps.climate.baseline import classify, features, score, tune
from apps.climate.sample import map_time, season, simulate

LATITUDE_H = np.linspace(-90, 90, 24)
AREA_H = np.cos(np.deg2rad(LATITUDE_H)).clip(0).astype(np.float32)


@dataclass
class Maps:
    """A split in memory that notes what was read."""

    samples: list[dict[str, np.ndarray]]
    read_: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, np.ndarray]:
        assert rng is None
        self.read_.append(index)
        return self.samples[index]


@dataclass
class Source:
    inputs: list[str]
    classes: list[str]
    splits: dict[str, Maps]
    latitude_H: np.ndarray

    def facts(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "classes": self.classes,
            "latitude": self.latitude_H.tolist(),
        }

    def samples(self, split: str) -> Maps:
        return self.splits[split]


def noise_source(label: Any, maps: int = 4) -> Source:
    """Two variables of standard normal noise, and a label made of them."""
    rng = np.random.default_rng(0)

    def one() -> dict[str, np.ndarray]:
        image_CHW = rng.standard_normal((2, 24, 40)).astype(np.float32)
        return {
            "image_CHW": image_CHW,
            "label_HW": label(*image_CHW).astype(np.int64),
            "area_HW": np.repeat(AREA_H[:, None], 40, 1),
        }

    splits = {split: Maps([one() for _ in range(maps)]) for split in ("train", "test")}
    return Source(["t", "q"], ["none", "event"], splits, LATITUDE_H)


def test_a_planted_threshold_is_found() -> None:
    source = noise_source(lambda t, q: q < np.float32(-1.2816))  # the lowest tenth
    assert tune(source)[1] == (("q", False, pytest.approx(-1.2816, abs=0.05)),)
    assert score(source)["iou_event"] > 0.95
    assert set(score(source)) == {"iou_none", "iou_event", "iou_mean"}


def test_score_is_weighted_by_area_and_leaves_unlabelled_pixels_out() -> None:
    """The truth is what the rule says, but for one row, which at the pole does not count."""

    def wrong_row(row: int) -> float:
        source = noise_source(lambda t, q: t > 0)
        for sample in source.splits["test"].samples:
            sample["label_HW"][row] = 1 - sample["label_HW"][row]
            sample["label_HW"][:, 0] = -1
        return score(source)["iou_event"]

    perfect = score(noise_source(lambda t, q: t > 0))["iou_event"]
    assert wrong_row(0) == pytest.approx(perfect, abs=0.01)
    assert wrong_row(12) < perfect - 0.05


def test_at_most_48_maps_are_used_for_tuning() -> None:
    source = noise_source(lambda t, q: t > 0, maps=60)
    tune(source)
    assert source.splits["train"].read_ == list(range(48))
    assert source.splits["test"].read_ == []


def test_a_variable_of_nothing_but_nan_is_no_candidate_and_nan_is_no_event() -> None:
    source = noise_source(lambda t, q: q > 0.5)
    for split in source.splits.values():
        for sample in split.samples:
            sample["image_CHW"][0] = np.nan
            sample["image_CHW"][1, 3, 4] = np.nan
    rules = tune(source)
    assert [condition[:2] for condition in rules[1]] == [("q", True)]
    image_CHW = source.splits["test"].samples[0]["image_CHW"]
    assert classify(rules, features(source.facts(), image_CHW))[3, 4] == 0


@pytest.fixture(scope="module")
def climatenet() -> Source:
    """The example data set in memory, with the variables in another order."""
    latitude_H = np.linspace(-90, 90, 96)
    area_HW = np.repeat(np.cos(np.deg2rad(latitude_H)).clip(0)[:, None], 144, 1)

    def one(split: int, number: int) -> dict[str, np.ndarray]:
        when = map_time(("train", "test")[split], number)
        weather = simulate(np.random.default_rng([0, split, number]), (96, 144), season(when))
        fields = (weather.pressure_Pa, weather.moisture_kg_m2, weather.east_m_s, weather.north_m_s)
        return {"image_CHW": np.stack(fields), "label_HW": weather.label, "area_HW": area_HW}

    splits = {
        name: Maps([one(split, n) for n in range(24)])
        for split, name in enumerate(("train", "test"))
    }
    classes = ["background", "tropical_cyclone", "atmospheric_river"]
    return Source(["PSL", "TMQ", "U850", "V850"], classes, splits, latitude_H)


def test_on_the_example_a_threshold_is_no_match_for_the_classes(climatenet: Source) -> None:
    """A network has something to learn. One threshold on the best variable is worse still."""
    got = score(climatenet)
    assert 0.18 < got["iou_tropical_cyclone"] < 0.32
    assert 0.42 < got["iou_atmospheric_river"] < 0.56
    climatenet.inputs = ["psl", "tmq", "u850", "v850"]
    assert score(climatenet)["iou_tropical_cyclone"] < got["iou_tropical_cyclone"]
    assert score(climatenet)["iou_atmospheric_river"] < got["iou_atmospheric_river"]
    climatenet.inputs = ["PSL", "TMQ", "U850", "V850"]


def test_the_rarest_class_is_painted_last_and_rules_are_the_usual_ones(
    climatenet: Source,
) -> None:
    rules = tune(climatenet)
    assert list(rules) == [2, 1]
    assert [feature for feature, _, _ in rules[1]] == [
        "PSL", "wind speed at 850 hPa", "degrees from the equator",
    ]  # fmt: skip
