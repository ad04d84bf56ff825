"""Events as objects: connected on the sphere, with centre, area and extreme; matched; in tables.

Suffixes: H latitude, W longitude, N object, P pair.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching

from apps.climate.earth import Earth, arc_km, place, unit_vector
from scadl_core.errors import ConfigError, nearest
from scadl_core.files import written_aside

PRESSURES = ("psl", "msl", "prmsl", "mslp", "slp")
FASTEST_KM_H = 150.0  # of a centre; about 8 degrees in 6 hours, as TempestExtremes joins cyclones
LONGEST_GAP_H = 12.0  # between steps that are joined
SMALLEST_IOU = 0.1  # of two objects that are one event: they overlap, and are alike in size


class Event(NamedTuple):
    """One connected event of one class on one map; degrees, km2, the variable's own unit."""

    class_number: int
    latitude: float  # of its centre of mass on the sphere
    longitude: float  # 0..360
    area_km2: float
    extreme: float  # NaN where the variable is missing
    extreme_latitude: float
    extreme_longitude: float

    def distance_km(self, other: Event) -> float:
        """Between the centres."""
        mine, others = (unit_vector(it.latitude, it.longitude) for it in (self, other))
        return float(arc_km(mine, others))


class Extreme(NamedTuple):
    """Which extreme of which variable an event table gives."""

    variable: str
    kind: str  # "min" or "max"
    unit: str

    @classmethod
    def choose(cls, units: Mapping[str, str], asked: Sequence[str] | None) -> Extreme:
        """What was asked for, a channel and ``min`` or ``max``, or a ConfigError; else the lowest
        pressure at sea level, else the highest value of the first channel.
        """
        pressure = next((name for name in units if name.lower() in PRESSURES), None)
        usual = (pressure, "min") if pressure else (next(iter(units)), "max")
        pair = usual if asked is None else asked
        texts = not isinstance(pair, str) and isinstance(pair, Sequence) and len(pair) == 2
        if not texts or not all(isinstance(it, str) for it in pair):
            found = f"such as [{usual[0]}, {usual[1]}], got {asked!r}"
            raise ConfigError(f"predict.extreme: expected a channel and min or max, {found}")
        variable, kind = pair
        if variable not in units or kind not in ("min", "max"):
            there = nearest(variable, units) if variable not in units else ""
            expected = "predict.extreme: expected a channel and min or max"
            raise ConfigError(f"{expected}, got [{variable}, {kind}]{there}")
        return cls(variable, kind, units[variable])


def components(mask_HW: NDArray[np.bool_], periodic: bool) -> NDArray[np.intp]:
    """Numbers 1..N of the objects of a mask, 0 beside them.

    Pixels that share an edge or a corner are connected; with ``periodic`` those of the last and
    the first column, too. Across a pole there is no connection.
    """
    wide_HW = np.pad(mask_HW, ((0, 0), (0, 1)), "wrap") if periodic else mask_HW
    numbers_HW, count = ndimage.label(wide_HW, np.ones((3, 3)))
    if not periodic:
        return numbers_HW.astype(np.intp)
    # The column that was repeated says which objects are one.
    first, last = numbers_HW[:, 0], numbers_HW[:, -1]
    graph = sparse.coo_array((np.ones(len(first)), (first, last)), (count + 1, count + 1))
    _, joined_N = connected_components(graph, directed=False)
    return joined_N[numbers_HW[:, :-1]].astype(np.intp)


def find_events(
    class_HW: NDArray[np.integer], earth: Earth, values_HW: NDArray[np.floating], kind: str
) -> list[Event]:
    """The events of a map of class numbers, 0 and below being none.

    Args:
        class_HW: The map.
        earth: Where its pixels lie.
        values_HW: The variable whose extreme is wanted, NaN where missing.
        kind: ``min`` or ``max``.
    """
    found = []
    rank_HW = np.where(np.isnan(values_HW), np.inf, values_HW if kind == "min" else -values_HW)
    moment_HW3 = earth.unit_HW3 * earth.area_km2_HW[..., None]
    for number in range(1, int(class_HW.max(initial=0)) + 1):
        objects_HW = components(class_HW == number, earth.periodic)
        numbers_N = np.arange(1, objects_HW.max() + 1)
        area_N, *moment_3N = (
            ndimage.sum_labels(weight_HW, objects_HW, numbers_N)
            for weight_HW in (earth.area_km2_HW, *np.moveaxis(moment_HW3, -1, 0))
        )
        centres = zip(*place(np.stack(moment_3N, -1)), strict=True)
        at_N = ndimage.minimum_position(rank_HW, objects_HW, numbers_N)
        for centre, area, at in zip(centres, area_N, at_N, strict=True):
            where = values_HW[at], earth.latitude_HW[at], earth.longitude_HW[at] % 360
            found.append(Event(number, *map(float, (*centre, area, *where))))
    return found


def find_tracks(events_T: Sequence[Sequence[Event]], hours_T: Sequence[float]) -> list[list[Event]]:
    """Joins events of one class on consecutive maps, so that the distances are least in sum.

    No centre moves faster than ``FASTEST_KM_H``, and maps more than ``LONGEST_GAP_H`` apart are not
    consecutive.
    """
    tracks: list[list[Event]] = []
    before: list[list[Event]] = []  # those that reach the map before
    for events, gap_h in zip(events_T, np.diff(hours_T, prepend=np.nan), strict=True):
        far = np.full((len(before), len(events)), np.inf)
        if 0 < gap_h <= LONGEST_GAP_H:
            for old, new in np.ndindex(far.shape):
                if before[old][-1].class_number == events[new].class_number:
                    far[old, new] = before[old][-1].distance_km(events[new])
        is_near = far <= FASTEST_KM_H * gap_h
        pairs = zip(*linear_sum_assignment(np.where(is_near, far, 1e6)), strict=True)
        joined = {new: before[old] for old, new in pairs if is_near[old, new]}
        before = [joined.get(new, []) for new in range(len(events))]
        for track, event in zip(before, events, strict=True):
            track.append(event)
        tracks += [track for track in before if len(track) == 1]
    return tracks


def match(
    truth_HW: NDArray[np.intp], said_HW: NDArray[np.intp], area_HW: NDArray[np.floating]
) -> NDArray[np.intp]:
    """Which objects are the same event: pairs of numbers, P2, each object in one pair at most.

    The assignment with the largest sum of intersections over unions (weighted by area), without
    those below ``SMALLEST_IOU``. Arguments are numbers as `components` gives them.
    """
    area_HW = np.broadcast_to(area_HW, truth_HW.shape)
    both = sparse.coo_array((area_HW.ravel(), (truth_HW.ravel(), said_HW.ravel()))).tocsr()
    wholes, both = (both.sum(1), both.sum(0)), both[1:, 1:].tocoo()
    both.eliminate_zeros()
    if not both.nnz:
        return np.empty((0, 2), np.intp)
    either = wholes[0][both.row + 1] + wholes[1][both.col + 1] - both.data
    iou = sparse.coo_array((both.data / either, both.coords), both.shape)
    # A column for each row that has no partner: there are too many pairs to write them all out.
    alone = sparse.eye_array(iou.shape[0]) * np.finfo(float).tiny
    weights = sparse.hstack([iou, alone], format="csr")
    first, second = min_weight_full_bipartite_matching(weights, maximize=True)
    kept = weights[first, second] >= SMALLEST_IOU
    return np.stack([first[kept], second[kept]], -1) + 1


def write_events(
    path: Path, rows: Iterable[tuple[str, Event]], classes: Sequence[str], extreme: Extreme
) -> None:
    """Writes a CSV file, whole or not at all: a row an event, with the time (ISO 8601) or name of
    its sample.
    """
    unit = re.sub(r"[^\w-]+", "_", extreme.unit).strip("_") or "unit_unknown"
    name = f"{extreme.kind}_{extreme.variable}"
    places = [f"{it}_degree_{to}" for it, to in (("latitude", "north"), ("longitude", "east"))]
    columns = [*places, "area_km2", f"{name}_{unit}", *(f"{name}_{it}" for it in places)]
    with written_aside(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["sample", "class", *columns])
        for key, (number, *values) in rows:
            table.writerow([key, classes[number], *(f"{value:.7g}" for value in values)])
