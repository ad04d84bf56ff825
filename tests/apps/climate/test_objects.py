"""Objects against hand-made maps, flood filling by brute force, and rolled copies of themselves."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from apps.climate.earth import Earth
from apps.climate.objects import (
    Event,
    Extreme,
    components,
    find_events,
    find_tracks,
    match,
    write_events,
)
from scadl_core.errors import ConfigError

EARTH = Earth.of(np.linspace(-90, 90, 19), np.arange(0.0, 360, 10), True)


def drawn(*rows: str) -> np.ndarray:
    return np.array([[int(it) for it in row] for row in rows])


def flooded(mask_HW: np.ndarray, periodic: bool) -> np.ndarray:
    """The smallest flat index of each pixel's object, by repeated spreading."""
    height, width = mask_HW.shape
    root_HW = np.where(mask_HW, np.arange(mask_HW.size).reshape(mask_HW.shape), -1)
    steps, changed = list(itertools.product((-1, 0, 1), repeat=2)), True
    while changed:
        changed = False
        for (h, w), (dy, dx) in itertools.product(np.argwhere(mask_HW), steps):
            y, x = h + dy, (w + dx) % width if periodic else w + dx
            if 0 <= y < height and 0 <= x < width and 0 <= root_HW[y, x] < root_HW[h, w]:
                root_HW[h, w], changed = root_HW[y, x], True
    return root_HW


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_components_are_those_of_flooding(seed: int, periodic: bool) -> None:
    mask_HW = np.random.default_rng(seed).random((9, 11)) < 0.3
    numbers_HW, root_HW = components(mask_HW, periodic), flooded(mask_HW, periodic)
    assert sorted(np.unique(numbers_HW)) == list(range(len(np.unique(root_HW))))
    pairs = set(zip(numbers_HW.ravel().tolist(), root_HW.ravel().tolist(), strict=True))
    assert len(pairs) == len(np.unique(root_HW))  # one to one
    assert (numbers_HW > 0).tolist() == mask_HW.tolist()


def test_the_date_line_parts_nothing_on_a_globe() -> None:
    mask_HW = drawn("1000001", "0000000", "0000010", "1000001", "0011000") == 1
    assert components(mask_HW, True).max() == 3
    assert components(mask_HW, False).max() == 5


def test_an_event_across_the_date_line() -> None:
    """Three pixels at 20 N, 350 E..10 E, the extreme in the last column."""
    class_HW, values_HW = np.zeros((19, 36), int), np.full((19, 36), 1000.0)
    class_HW[11, [35, 0, 1]], values_HW[11, 35], values_HW[5, 5] = 2, 950.0, 900.0
    (event,) = find_events(class_HW, EARTH, values_HW, "min")
    assert event.class_number == 2
    # the chord's middle is nearer to the pole than the parallel
    assert event.latitude == pytest.approx(20.2, abs=0.15)
    assert min(event.longitude, 360 - event.longitude) < 1e-9
    assert event.area_km2 == pytest.approx(3 * (6371 * np.deg2rad(10)) ** 2 * 0.9397, rel=0.02)
    assert event[4:] == (950.0, 20.0, 350.0)
    (event,) = find_events(class_HW, EARTH, -values_HW, "max")
    assert event[4:] == (-950.0, 20.0, 350.0)


@pytest.mark.parametrize("turn", [1, 7, 35])
def test_rolled_maps_give_rolled_events(turn: int) -> None:
    rng = np.random.default_rng(0)
    class_HW, values_HW = rng.integers(0, 3, (19, 36)), rng.normal(size=(19, 36))
    class_HW[rng.random((19, 36)) < 0.6] = 0
    fixed = find_events(class_HW, EARTH, values_HW, "max")
    turned = find_events(np.roll(class_HW, turn, 1), EARTH, np.roll(values_HW, turn, 1), "max")
    back = [
        it._replace(
            longitude=(it.longitude - 10 * turn) % 360,
            extreme_longitude=(it.extreme_longitude - 10 * turn) % 360,
        )
        for it in turned
    ]
    order = [sorted(it, key=lambda event: event.extreme) for it in (fixed, back)]
    np.testing.assert_allclose(*order, atol=1e-6)


def test_missing_values_are_no_extreme() -> None:
    class_HW, values_HW = np.zeros((19, 36), int), np.full((19, 36), np.nan)
    class_HW[3, 4:7], class_HW[10, 4], values_HW[3, 5] = 1, 1, 7.0
    for kind in ("min", "max"):
        first, second = find_events(class_HW, EARTH, values_HW, kind)
        assert first[4:] == (7.0, -60.0, 50.0)
        assert np.isnan(second.extreme)
    assert find_events(np.full((19, 36), -1), EARTH, values_HW, "min") == []


def test_matching_is_one_to_one_and_the_best_in_sum() -> None:
    """Against all permutations: weights by row, objects that overlap two others."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        truth_HW, said_HW = (np.repeat(rng.integers(0, 5, (4, 8)), 2, 1) for _ in range(2))
        area_H1 = rng.random((4, 1)) + 0.1
        iou = np.zeros((5, 5))
        for a, b in itertools.product(range(1, 5), repeat=2):
            one, two = truth_HW == a, said_HW == b
            area_HW = np.broadcast_to(area_H1, one.shape)
            iou[a, b] = area_HW[one & two].sum() / max(area_HW[one | two].sum(), 1e-9)
        best = max(
            sum(iou[a, b] for a, b in zip(range(1, 5), order, strict=True))
            for order in itertools.permutations(range(1, 5))
        )
        pairs = match(truth_HW, said_HW, area_H1)
        assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs)
        assert all(iou[a, b] >= 0.1 for a, b in pairs)
        assert sum(iou[a, b] for a, b in pairs) == pytest.approx(best, abs=0.1 * 4)


def test_more_objects_than_their_pairs_would_fit_into_memory() -> None:
    """A label of single pixels, as a threshold on noise gives it."""
    truth_HW = np.zeros((300, 400), int)
    truth_HW[::2, ::2] = np.arange(1, 30_001).reshape(150, 200)
    said_HW = np.where(truth_HW % 3, 30_001 - truth_HW, 0)
    pairs = match(truth_HW, said_HW, np.ones((300, 1)))
    both = (truth_HW > 0) & (said_HW > 0)
    assert both.sum() > 15_000
    assert {*map(tuple, pairs)} == {*zip(truth_HW[both], said_HW[both], strict=True)}


def test_a_slight_touch_is_no_match() -> None:
    truth_HW, said_HW = drawn("1111111111100022"), drawn("0000000000111122")
    assert match(truth_HW, said_HW, np.ones((1, 1))).tolist() == [[2, 2]]
    assert match(np.zeros((1, 16), int), said_HW, np.ones((1, 1))).shape == (0, 2)


def test_the_table_has_units_in_its_names(tmp_path: Path) -> None:
    event = Event(1, 12.5, 359.0, 1234567.8, 95012.0, 12.0, 0.5)
    path = tmp_path / "events.csv"
    rows = [("2001-02-03T06:00:00", event), ("b", event._replace(extreme=np.nan))]
    write_events(path, rows, ["none", "tropical cyclone"], Extreme("wind@850hPa", "max", "m s-1"))
    first, second = csv.DictReader(path.read_text().splitlines())
    assert first == {
        "sample": "2001-02-03T06:00:00",
        "class": "tropical cyclone",
        "latitude_degree_north": "12.5",
        "longitude_degree_east": "359",
        "area_km2": "1234568",
        "max_wind@850hPa_m_s-1": "95012",
        "max_wind@850hPa_latitude_degree_north": "12",
        "max_wind@850hPa_longitude_degree_east": "0.5",
    }
    assert second["max_wind@850hPa_m_s-1"] == "nan"
    assert [file.name for file in tmp_path.iterdir()] == ["events.csv"]


def at(latitude: float, longitude: float, number: int = 1) -> Event:
    return Event(number, latitude, longitude, 1.0, 0.0, 0.0, 0.0)


def test_tracks_follow_the_nearest_centre_across_the_date_line() -> None:
    """Two cyclones that move by 5 degrees in 6 hours, a new one, and one of another class."""
    events_T = [
        [at(10, 355), at(10, 100)],
        [at(10, 105), at(11, 0), at(10, 0, number=2)],
        [at(12, 5), at(-40, 200), at(10, 110)],
    ]
    tracks = find_tracks(events_T, [0.0, 6.0, 12.0])
    paths = sorted([event.longitude for event in track] for track in tracks)
    assert paths == [[0], [100, 105, 110], [200], [355, 0, 5]]


def test_tracks_end_at_the_speed_limit_and_at_gaps() -> None:
    """8 degrees of the equator are 890 km: 148 km/h in 6 hours, 296 in 3."""
    events_T = [[at(0, 0)], [at(0, 8)]]
    assert len(find_tracks(events_T, [0.0, 6.0])) == 1
    for hours_T in ([0.0, 3.0], [0.0, 24.0]):
        assert len(find_tracks(events_T, hours_T)) == 2
    assert find_tracks([[], [], [at(0, 0)]], [0.0, 6.0, 12.0]) == [[at(0, 0)]]


def test_the_sum_of_distances_is_least() -> None:
    """Greedily, 1 would go to 2 and leave 4 without a partner within the limit."""
    tracks = find_tracks([[at(0, 1), at(0, -6)], [at(0, 2), at(0, 9)]], [0.0, 6.0])
    paths = sorted([event.longitude for event in track] for track in tracks)
    assert paths == [[-6, 2], [1, 9]]


def test_the_extreme_is_that_of_pressure_if_there_is_one() -> None:
    units = {"TMQ": "kg/m^2", "PSL": "Pa"}
    assert Extreme.choose(units, None) == ("PSL", "min", "Pa")
    assert Extreme.choose({"uwnd": "m/s"}, None) == ("uwnd", "max", "m/s")
    assert Extreme.choose(units, ["TMQ", "max"]) == ("TMQ", "max", "kg/m^2")
    with pytest.raises(ConfigError, match=r"min or max, got \[TMG, max\]; did you mean 'TMQ'"):
        Extreme.choose(units, ["TMG", "max"])
    with pytest.raises(ConfigError, match=r"got \[TMQ, most\]"):
        Extreme.choose(units, ["TMQ", "most"])
