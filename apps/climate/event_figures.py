"""Events of a split as objects, in tables and figures, and the reliability of probabilities.

Suffixes: T map, K class, N bin of probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cftime
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from apps.climate.coast import Lines, draw_coast
from apps.climate.earth import Earth
from apps.climate.objects import (
    FASTEST_KM_H,
    LONGEST_GAP_H,
    Event,
    Extreme,
    components,
    find_events,
    find_tracks,
    match,
    write_events,
)
from scadl_core.workflow.contracts import Samples

COLOURS = ("#c8443c", "#2f6db3", "#3f9a5a", "#8a5fb0", "#d99a2b", "#4bb3b8", "#7a6652")
BACKGROUND = "#f3f1ec"
MOST_TRACKED = 300  # events a map


class Survey:
    """The events of the first maps of a split, as labelled and as predicted by a trained task."""

    def __init__(
        self, task: Any, samples: Samples, most_maps: int, asked: Sequence[str] | None
    ) -> None:
        facts, count = task.facts, min(len(samples), most_maps)
        self.facts, self.which = facts, f"{count} of the {len(samples)} test maps"
        self.extreme = Extreme.choose(
            dict(zip(facts["inputs"], facts["units"], strict=True)), asked
        )
        # Times (ISO 8601) or names of the maps.
        self.keys = list(getattr(samples, "keys", map(str, range(count))))[:count]
        self.labelled_T: list[int] = []  # pixels
        self.truth_T: list[list[Event]] = []
        self.said_T: list[list[Event]] = []
        self.pairs: list[tuple[Event, Event]] = []  # a labelled event, the predicted one it matches
        earth = Earth.of(facts["latitude"], facts["longitude"], facts["periodic"])
        for index in range(count):
            sample = samples.read(index, None)
            said_HW = task.probabilities(sample["image_CHW"], earth.periodic).argmax(0)
            said_HW[sample["label_HW"] < 0] = 0
            values_HW = sample["image_CHW"][facts["inputs"].index(self.extreme.variable)]
            self._add(sample["label_HW"], said_HW, values_HW, earth)

    def _add(
        self, truth_HW: NDArray[Any], said_HW: NDArray[Any], values_HW: NDArray[Any], earth: Earth
    ) -> None:
        maps = truth_HW, said_HW
        truth, said = (find_events(it, earth, values_HW, self.extreme.kind) for it in maps)
        self.truth_T.append(truth)
        self.said_T.append(said)
        self.labelled_T.append(int((truth_HW > 0).sum()))
        for number in {event.class_number for event in truth}:
            alike = [
                [event for event in it if event.class_number == number] for it in (truth, said)
            ]
            objects = (components(it == number, earth.periodic) for it in maps)
            pairs = match(*objects, earth.area_km2_HW) - 1
            self.pairs += [(alike[0][mine], alike[1][other]) for mine, other in pairs]

    @property
    def hours_T(self) -> list[float] | None:
        """Times in hours where some maps are consecutive, and events few enough for tracks."""
        if max(map(len, [*self.truth_T, *self.said_T]), default=0) > MOST_TRACKED:
            return None
        calendar = self.facts.get("calendar") or "standard"
        try:
            dates = [
                cftime.datetime.strptime(it, "%Y-%m-%dT%H:%M:%S", calendar) for it in self.keys
            ]
        except ValueError:  # names
            return None
        hours = np.float64(cftime.date2num(dates, "hours since 1900-01-01", calendar))
        return hours.tolist() if (np.diff(hours) <= LONGEST_GAP_H).any() else None


def draw_events(survey: Survey, folder: Path, coast: Lines) -> dict[str, str]:
    """Writes tables, and draws where events are and how far off matching ones; gives captions."""
    captions, classes, which = {}, survey.facts["classes"], survey.which
    for name, events_T in (("labelled", survey.truth_T), ("predicted", survey.said_T)):
        maps = zip(survey.keys, events_T, strict=True)
        rows = [(key, event) for key, events in maps for event in events]
        write_events(folder / f"events_{name}.csv", rows, classes, survey.extreme)
        captions[f"events_{name}.csv"] = f"The {len(rows)} {name} events of {which}."
    _draw_places(survey, folder / "events.png", coast)
    joined = f"tracks of centres that move at most {FASTEST_KM_H:.0f} km/h, a ring at their start"
    captions["events.png"] = f"Events of {which}: {joined if survey.hours_T else 'centres'}."
    if survey.pairs:
        _draw_errors(survey, folder / "event_errors.png")
        captions["event_errors.png"] = f"Errors of the predicted events of {which} that match."
    return captions


def _draw_places(survey: Survey, path: Path, coast: Lines) -> None:
    lat, lon = (np.asarray(survey.facts[name]) for name in ("latitude", "longitude"))
    half = float(np.nanmedian(np.abs(np.diff(lon)))) / 2
    (south, north), (west, east) = ((np.nanmin(it), np.nanmax(it)) for it in (lat, lon))
    height = 8 * float(np.clip((north - south) / (east - west), 0.3, 1.0)) + 0.7
    figure = Figure(figsize=(9, 2 * height), layout="constrained")
    both = (("labels", survey.truth_T), ("prediction", survey.said_T))
    for axes, (title, events_T) in zip(figure.subplots(2, 1), both, strict=True):
        axes.set(
            facecolor=BACKGROUND,
            xlim=(west - half, east + half),
            ylim=(south, north),
        )
        axes.set_title(title, fontsize=10, loc="left")
        draw_coast(axes, coast)
        tracks = [[event] for events in events_T for event in events]
        if survey.hours_T:
            tracks = find_tracks(events_T, survey.hours_T)
        _draw_tracks(axes, tracks, survey.facts["classes"])
    figure.savefig(path, dpi=110)


def _draw_tracks(axes: Axes, tracks: list[list[Event]], classes: Sequence[str]) -> None:
    longest, limits = max(map(len, tracks), default=0), axes.axis()
    for number, name in enumerate(classes[1:], 1):
        style = {"color": COLOURS[(number - 1) % len(COLOURS)], "alpha": 0.8}
        here = [track for track in tracks if track[0].class_number == number]
        lines = [np.array([(event.longitude, event.latitude) for event in it]) for it in here]
        lines = [np.stack([np.unwrap(it[:, 0], period=360), it[:, 1]], -1) for it in lines]
        starts = np.array([line[0] for line in lines]).reshape(-1, 2)
        for turn in (-360, 0, 360):  # what lies over an edge of the map shows at both
            moved = [line + np.array([turn, 0]) for line in lines]
            axes.add_collection(LineCollection(moved, linewidths=1.2, **style))
            axes.plot(starts[:, 0] + turn, starts[:, 1], "o", markersize=3.5, mfc="none", **style)
        kind, mark = ("tracks", "o-") if longest > 1 else ("events", "o")
        label = f"{name.replace('_', ' ')}: {len(here)} {kind}"
        axes.plot([], [], mark, markersize=3.5, mfc="none", label=label, **style)
    axes.axis(limits)
    place = {"loc": "upper left", "bbox_to_anchor": (0, -0.06)}
    axes.legend(fontsize=8, ncols=4, frameon=False, **place)


def _draw_errors(survey: Survey, path: Path) -> None:
    """Histograms of the distance between centres and of the difference of the extremes."""
    variable, kind, unit = survey.extreme
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    far, off = figure.subplots(1, 2)
    distances = [truth.distance_km(said) for truth, said in survey.pairs]
    errors = [said.extreme - truth.extreme for truth, said in survey.pairs]
    number_N = np.array([truth.class_number for truth, _ in survey.pairs])
    for axes, values_N in ((far, np.array(distances)), (off, np.array(errors))):
        finite = values_N[np.isfinite(values_N)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
        half = max((high - low) / 2, 1e-3 * max(abs(low), abs(high), 1.0))  # where all are alike
        edges = np.linspace((low + high) / 2 - half, (low + high) / 2 + half, 26)
        for number in np.unique(number_N):
            here = values_N[(number_N == number) & np.isfinite(values_N)]
            median = f"median {np.median(here):.3g}" if here.size else "none"
            label = f"{survey.facts['classes'][number].replace('_', ' ')}: {len(here)}, {median}"
            colour = COLOURS[(number - 1) % len(COLOURS)]
            axes.hist(here, edges, color=colour, alpha=0.5, label=label)
        axes.legend(fontsize=8, frameon=False)
        axes.set_ylabel("events")
    far.set_xlabel("distance between the centres (km)")
    off.set_xlabel(f"{kind} {variable}: prediction less labels ({unit or 'unit unknown'})")
    figure.savefig(path, dpi=110)
