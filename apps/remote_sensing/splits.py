"""Which ground trains, chooses the best epoch, judges. Ground of one split is in no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apps.remote_sensing.views import View
from scadl_core.errors import ConfigError, DataError, nearest

SPLITS = ("train", "val", "test")
FOLDERS = {name: name for name in SPLITS} | {"validation": "val", "valid": "val"}
DEFAULT = {"by": "auto", "val": 0.15, "test": 0.2, "gap": 4}
KINDS = ("auto", "folder", "scene", "area")


class Region(NamedTuple):
    """A part of a view: rows and columns of its coarse grid."""

    view: int
    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Coarse rows and columns."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


def check_split(split: Mapping[str, Any]) -> None:
    """A ConfigError if ``data.split`` has unknown words, or shares that leave none to train on."""
    for key in split:
        if key not in DEFAULT:
            raise ConfigError(f"data.split.{key} is unknown{nearest(key, DEFAULT)}")
    if split["by"] not in KINDS:
        raise ConfigError(f"data.split.by={split['by']} is unknown{nearest(split['by'], KINDS)}")
    if isinstance(split["gap"], bool) or not isinstance(split["gap"], int) or split["gap"] < 0:
        raise ConfigError(f"data.split.gap={split['gap']}: expected a whole number from 0")
    if min(split["val"], split["test"]) < 0 or split["val"] + split["test"] >= 1:
        raise ConfigError(f"data.split: val and test must be shares, below 1 in all, got {split}")


def split_ground(
    views: Sequence[View], by: str, val: float, test: float, gap: int
) -> tuple[str, dict[str, list[Region]]]:
    """Deals ground out; gives how that was done, and the regions of each split.

    By ``folder``, scenes lie in folders train, test and perhaps val; without val, the last scenes
    of train are it. By ``scene``, the last scenes are the test, those before validate. By ``area``,
    each scene is cut along its longer side into train, val and test, ``gap`` coarse pixels apart.
    ``auto`` takes the first of these that leaves no split empty.

    Raises:
        DataError: A split is empty.
    """
    there = {name for view in views if (name := _folder(view))}
    kind = by
    if by == "auto":
        kind = "folder" if {"train", "test"} <= there else "scene" if len(views) > 3 else "area"
    if kind == "area":
        regions = _by_area(views, val, test, gap)
    else:
        regions = {
            name: [_whole(views, number) for number in numbers]
            for name, numbers in _by_scene(views, kind, val, test).items()
        }
    for name, share in (("train", 1), ("val", val), ("test", test or kind == "folder")):
        if share and not regions[name]:
            counts = ", ".join(f"{split} {len(regions[split])}" for split in SPLITS)
            advice = (
                f"put scenes into a folder {name}/ below data.path" if kind == "folder"
                else "give larger scenes, or set data.split.by=area"
            )  # fmt: skip
            raise DataError(f"data.split: '{name}' has no ground (by {kind}: {counts}); {advice}")
    return kind, regions


def _by_scene(views: Sequence[View], kind: str, val: float, test: float) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {"train": list(range(len(views))), "val": [], "test": []}
    shares = {"test": test, "val": val}
    if kind == "folder":
        for name in SPLITS:
            numbers[name] = [n for n, view in enumerate(views) if _folder(view) == name]
        shares = {} if numbers["val"] else {"val": val}
    total = len(numbers["train"])
    for name, share in shares.items():
        taken = max(1, round(share * total)) if share else 0
        kept = max(len(numbers["train"]) - taken, 0)
        numbers["train"], numbers[name] = numbers["train"][:kept], numbers["train"][kept:]
    return numbers


def _by_area(views: Sequence[View], val: float, test: float, gap: int) -> dict[str, list[Region]]:
    regions: dict[str, list[Region]] = {name: [] for name in SPLITS}
    for number, view in enumerate(views):
        whole = _whole(views, number)
        axis = 1 if whole.shape[0] >= whole.shape[1] else 2
        size, start = max(whole.shape), 0
        sizes = {"train": size - round(val * size) - round(test * size), "val": round(val * size)}
        for name in SPLITS:
            stop = min(start + sizes.get(name, size), size)
            end = stop - gap * (stop < size and stop - start > 2 * gap)
            if start < stop:
                parts = [number, slice(0, view.shape[0]), slice(0, view.shape[1])]
                parts[axis] = slice(start, end)
                regions[name].append(Region(*parts))  # type: ignore[arg-type]
            start = stop
    return regions


def _whole(views: Sequence[View], number: int) -> Region:
    height, width = views[number].shape
    return Region(number, slice(0, height), slice(0, width))


def _folder(view: View) -> str | None:
    """The split after which the folder of a view is named."""
    parts = reversed(Path(view.scenes[0].files[0]).resolve().parent.parts)
    return next((FOLDERS[part] for part in parts if part in FOLDERS), None)
