"""A user's scenes, checked: what a run trains and is scored on.

Suffixes: C band, H row, W column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.remote_sensing.propose import propose
from apps.remote_sensing.raster import open_raster
from apps.remote_sensing.report import report
from apps.remote_sensing.samples import Crops
from apps.remote_sensing.scenes import Reading, Scene, find_scenes
from apps.remote_sensing.sensor import Sensor
from apps.remote_sensing.splits import DEFAULT, SPLITS, Region, check_split, split_ground
from apps.remote_sensing.views import Degraded, View, pair_up
from scadl_core.errors import ConfigError, DataError
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport
from scadl_core.workflow.statistics import Moments, remembered

MEASURED = 96  # crops of the train split that statistics look at
WHITE_QUANTILE = 0.999
EIGHT_BIT = 255.0


class SceneData:
    """Georeferenced images, at high resolution, or at both.

    Args:
        path: A file, a folder, a pattern, or several. Without ``target`` they are of high
            resolution, and a sensor model makes the low one.
        inputs: Names of the bands that are used; none: all that share the grid of most.
        target: The same ground at high resolution, or None.
        split: See :func:`apps.remote_sensing.splits.split_ground`.
        weight: Has to be None: all valid pixels count the same.
        scale: How many times finer, 2, 3 or 4.
        sensor: Arguments of :class:`apps.remote_sensing.sensor.Sensor`.
        white: The physical value that counts as 1; ``auto``: 255 of undeclared 8-bit numbers, 1 of
            declared physical values, else measured.
        bands: Names of the bands; this,
        nodata: the number that stands for nothing,
        alpha: what a band tagged so is, and
        mosaic: whether files are one scene, as in :class:`apps.remote_sensing.scenes.Reading`.
        clouds: See :class:`apps.remote_sensing.scenes.Clouds`.
        register: Whether the images of a pair are shifted onto each other.
        crop: Coarse pixels of a training sample.
        window: Of a sample that is scored.
        valid: Share of valid pixels that a training sample should have.
        statistics: Folder for statistics of files seen before, or None.

    Raises:
        ConfigError: A value that does not fit.
        DataError: A file that does not.
    """

    propose = staticmethod(propose)

    def __init__(
        self, path: Paths, inputs: Sequence[str] = (), target: Paths | None = None,
        split: Mapping[str, Any] | None = None, weight: None = None, scale: int = 4,
        sensor: Mapping[str, Any] | None = None, white: str | float = "auto",
        bands: Sequence[str] = (), nodata: float | None = None, alpha: str = "auto",
        mosaic: bool = False, clouds: Mapping[str, Any] | None = None, register: bool = True,
        crop: int = 24, window: int = 96, valid: float = 0.5, statistics: str | None = None,
    ) -> None:  # fmt: skip
        self.split = {**DEFAULT, **(split or {})}
        check_split(self.split)
        if weight is not None:
            raise ConfigError(f"data.weight: pixels have no weights here, got {weight!r}")
        for name, size in (("crop", crop), ("window", window)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 4:
                raise ConfigError(f"data.{name}: expected a whole number from 4, got {size!r}")
        if white != "auto" and (isinstance(white, str | bool) or not white > 0):
            raise ConfigError(f"data.white: expected auto or more than 0, got {white!r}")
        self.sensor = Sensor(**{**(sensor or {}), "scale": scale})
        reading = Reading(bands, nodata, alpha, mosaic)
        scenes = find_scenes(path, reading, clouds=clouds)
        self.inputs = list(inputs) or scenes[0].images
        if not self.inputs:
            found = f"{scenes[0].name}: no band shows the ground ({', '.join(scenes[0].names)})"
            raise DataError(f"{found}; name those to use as data.inputs, if they are images")
        self.sensor.check_bands(len(self.inputs))
        self.notes: list[str] = list(chain(*(scene.notes for scene in scenes)))
        scenes = self._selected(scenes)
        self.target, self.shifts = target, dict[str, tuple[float, float]]()
        if target is not None:
            fine = self._selected(find_scenes(target, reading, "data.target", clouds))
            self.views: list[View] = []
            for pair in pair_up(scenes, fine, scale):
                if register:
                    pair, self.shifts[pair.name] = pair.registered()
                self.views.append(pair)
        else:
            self.views = [Degraded(scene, self.sensor) for scene in scenes]
        self.split["by"], self.regions = split_ground(self.views, **self.split)
        self.crop, self.window, self.valid = crop, window, valid
        self._white, self._statistics = white, statistics

    def _selected(self, scenes: Sequence[Scene]) -> list[Scene]:
        """Those that have all the bands; the others are named in the report."""
        found, missing = list[Scene](), list[DataError]()
        for scene in scenes:
            try:
                found.append(scene.select(self.inputs))
            except DataError as error:
                missing.append(error)
        if not found:
            raise missing[0]
        self.notes += [f"not used: {error}" for error in missing]
        return found

    @cached_property
    def white(self) -> tuple[float, str]:
        """What physical values are divided by, and where it is from: "given", "8-bit", "declared"
        or "measured".
        """
        if self._white != "auto":
            return float(self._white), "given"
        kinds = {white_of(scene) for view in self.views for scene in view.scenes}
        if len(kinds) > 1:
            found = " and ".join(sorted(kinds))
            raise DataError(f"data.path: some numbers are {found}; set data.white for all of them")
        kind = kinds.pop()
        if kind == "measured":
            return float(self.statistics["white"][0]), kind
        return (EIGHT_BIT if kind == "8-bit" else 1.0), kind

    @cached_property
    def statistics(self) -> dict[str, NDArray]:
        """Of the train split, in physical units: ``mean_C`` and the like of :class:`Moments`, and
        ``white``, a high quantile of all bands.

        Raises:
            DataError: There is not one valid pixel.
        """
        settings = {"views": [str(view) for view in self.views], "regions": str(self.regions)}
        settings |= {"inputs": self.inputs, "crop": self.crop}
        found = remembered(self._statistics, self.files(), settings, self._measure)
        if not found["count_C"].all():
            empty = [n for n, count in zip(self.inputs, found["count_C"], strict=True) if not count]
            where = self.views[self.regions["train"][0].view].name
            what = f"{where}: {', '.join(empty)} has no valid pixel in the train split"
            raise DataError(f"{what}; is data.nodata right? Leave the file out or widen data.split")
        return found

    def _measure(self) -> dict[str, NDArray]:
        crops = self._crops("train", self.crop, 1.0, np.zeros(len(self.inputs)))
        chosen = np.unique(np.linspace(0, len(crops) - 1, MEASURED).astype(int))
        moments, pixels = None, []
        for values_CHW in (crops.raw(int(n)) for n in chosen):
            more = Moments.of(values_CHW)
            moments = moments + more if moments else more
            pixels.append(np.abs(values_CHW[np.isfinite(values_CHW)]))
        assert moments is not None
        known = np.concatenate(pixels)
        names = ("count_C", "mean_C", "std_C", "min_C", "max_C", "missing_C")
        white = np.quantile(known, WHITE_QUANTILE) if known.size else 1.0
        return {name: getattr(moments, name) for name in names} | {
            "white": np.array([white if white > 0 else 1.0])
        }

    def _crops(self, split: str, size: int, white: float, level_C: NDArray[np.float64]) -> Crops:
        regions = self._everything() if split == "all" else self.regions[split]
        noisy = self.target is None
        step = size // 2 if split == "train" else size
        return Crops(
            self.views, regions, size, self.sensor, white, level_C, noisy, self.valid, step
        )  # fmt: skip

    def _everything(self) -> list[Region]:
        shapes = (view.shape for view in self.views)
        return [Region(n, slice(0, h), slice(0, w)) for n, (h, w) in enumerate(shapes)]

    def samples(self, split: str) -> Crops:
        """The samples of ``"train"``, ``"val"``, ``"test"`` or ``"all"``."""
        white, _ = self.white
        level_C = self.statistics["mean_C"] / white
        if split == "train":
            return self._crops(split, self.crop, white, level_C)
        regions = self._everything() if split == "all" else self.regions[split]
        largest = max((max(region.shape) for region in regions), default=1)
        return self._crops(split, min(self.window, largest), white, level_C)

    @property
    def settings(self) -> dict[str, Any]:
        """What was left open and is settled now, by its name below ``data``."""
        return {"inputs": self.inputs, "split": self.split}

    def dimensions(self) -> dict[str, Any]:
        """The arguments that the data decide for the network."""
        return {"in_channels": len(self.inputs), "scale": self.sensor.scale}

    def facts(self) -> dict[str, Any]:
        """What a model must remember of its data: bands, white, sensor, and mean values."""
        white, origin = self.white
        mtf = self.sensor.mtf
        return {
            "inputs": self.inputs,
            "model": self.dimensions(),
            "white": white,
            "white_origin": origin,
            "mean_C": (self.statistics["mean_C"] / white).tolist(),
            "sensor": {
                "scale": self.sensor.scale,
                "mtf": mtf if isinstance(mtf, int | float) else list(mtf),
                "snr": self.sensor.snr,
                "shift": list(self.sensor.shift),
            },
        }

    def example(self) -> list[Path]:
        """The files of the first scene of the test split."""
        regions = chain(*(self.regions[name] for name in reversed(SPLITS)))
        return self.views[next(regions).view].scenes[0].files

    def files(self) -> list[Path]:
        """All that are read."""
        scenes = (scene for view in self.views for scene in view.scenes)
        return list(dict.fromkeys(chain(*(scene.files for scene in scenes))))

    def report(self) -> DataReport:
        """What was found, in words and tables."""
        return report(self)


def white_of(scene: Scene) -> str:
    """How numbers of a scene are meant: "8-bit", "declared" as physical values, or "measured"."""
    bands = [*scene.bands, *(band for part, *_ in scene.parts for band in part.bands)]
    if all(band.radiometry.origin for band in bands):
        return "declared"
    kinds = {open_raster(band.path).dtypes[band.index - 1] for band in bands}
    return "8-bit" if kinds == {"uint8"} else "measured"
