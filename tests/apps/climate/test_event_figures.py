"""What figures and tables of events are drawn from, on maps with events at known places."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from apps.climate.event_figures import Survey, draw_events
from apps.climate.objects import find_tracks
from scadl_core.record.plots import reliability

FACTS = {
    "inputs": ["v", "psl"],
    "units": ["m s-1", "Pa"],
    "classes": ["none", "some_event"],
    "latitude": np.linspace(-90, 90, 19).tolist(),
    "longitude": np.arange(0, 360, 10.0).tolist(),
    "periodic": True,
}


class Samples(list):
    """Maps whose labelled event moves east by a pixel a step; the prediction lags by one."""

    def __init__(self, keys: list[str]) -> None:
        for step in range(len(keys)):
            image_CHW = np.zeros((2, 19, 36), np.float32)
            image_CHW[1] = np.arange(36) * 100.0
            label_HW = np.zeros((19, 36), np.int64)
            label_HW[9:11, np.arange(34, 37) + step - 36] = 1
            image_CHW[0] = np.roll(label_HW, -1, 1)
            self.append({"image_CHW": image_CHW, "label_HW": label_HW})
        self.keys = keys

    def read(self, index: int, rng: None) -> dict[str, Any]:
        return self[index]


def survey(keys: list[str], most_maps: int = 9, **facts: Any) -> Survey:
    def probabilities(image_CHW: np.ndarray, periodic: bool) -> np.ndarray:
        return np.stack([0.5 + 0 * image_CHW[0], image_CHW[0]])

    task = SimpleNamespace(facts=FACTS | facts, probabilities=probabilities)
    return Survey(task, Samples(keys), most_maps, None)


# A pixel of ten degrees in twelve hours is 92 km/h.
TWICE_DAILY = [f"2000-02-{day}T{hour:02}:00:00" for day in range(27, 31) for hour in (0, 12)]


def test_events_and_their_matches() -> None:
    found = survey(TWICE_DAILY, most_maps=5)
    assert found.which == "5 of the 8 test maps"
    assert found.labelled_T == [6] * 5
    assert [len(events) for events in (*found.truth_T, *found.said_T)] == [1] * 10
    for truth, said in found.pairs:
        assert truth.distance_km(said) == pytest.approx(1108, abs=10)  # ten degrees at 5 N
    # lowest pressure is the westernmost, in the columns 0..35
    errors = [said.extreme - truth.extreme for truth, said in found.pairs]
    assert errors == [3300, 0, 0, -100, -100]


def test_the_event_is_one_track_across_the_date_line() -> None:
    found = survey(TWICE_DAILY, calendar="360_day")
    (track,) = find_tracks(found.truth_T, found.hours_T)
    assert [round(event.longitude) % 360 for event in track] == [
        *range(350, 360, 10),
        *range(0, 70, 10),
    ]


def test_ignored_pixels_hold_no_prediction() -> None:
    keys = ["a"]
    samples = Samples(keys)
    samples[0]["label_HW"][:] = -1
    task = SimpleNamespace(facts=FACTS, probabilities=lambda image_CHW, _: image_CHW)
    found = Survey(task, samples, 9, None)
    assert (found.truth_T, found.said_T, found.pairs) == ([[]], [[]], [])


def test_hours_where_maps_are_consecutive() -> None:
    assert survey(TWICE_DAILY, calendar="360_day").hours_T[6] % 24 == 0
    assert np.diff(survey(TWICE_DAILY, calendar="360_day").hours_T).tolist() == [12.0] * 7
    assert survey(TWICE_DAILY).hours_T is None  # no 30 February
    assert survey(["a", "b"]).hours_T is None
    assert survey(["2000-01-01T00:00:00", "2000-01-05T00:00:00"]).hours_T is None


@pytest.mark.parametrize("calendar", ["360_day", ""])
def test_tables_and_pictures_are_written(tmp_path: Path, calendar: str) -> None:
    captions = draw_events(survey(TWICE_DAILY, calendar=calendar), tmp_path, [])
    assert sorted(captions) == sorted(path.name for path in tmp_path.iterdir())
    assert captions["events_predicted.csv"] == "The 8 predicted events of 8 of the 8 test maps."
    assert ("km/h" in captions["events.png"]) == bool(calendar)
    rows = list(csv.DictReader((tmp_path / "events_labelled.csv").read_text().splitlines()))
    assert [row["sample"] for row in rows] == TWICE_DAILY
    assert [row["longitude_degree_east"] for row in rows[:3]] == ["350", "0", "10"]
    for name in ("events.png", "event_errors.png"):
        assert image.imread(tmp_path / name).std() > 0.05


def test_reliability_without_some_bins(tmp_path: Path) -> None:
    sums_KN3 = np.zeros((2, 15, 3))
    sums_KN3[0, [3, 8]] = [[10, 2.3, 2], [5, 2.8, 3]]
    reliability(sums_KN3, FACTS["classes"], tmp_path / "reliability.png")
    assert image.imread(tmp_path / "reliability.png").shape[1] == 660
