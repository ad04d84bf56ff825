"""Labelled weather maps from any gridded files: checks, statistics, samples.

Shapes: C channel, H row, W column (canonical, see ``grid``), K class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.climate.catalogue import Catalogue
from apps.climate.files import find_files
from apps.climate.labeller import UNITS, Labeller
from apps.climate.propose import channels_of, propose
from apps.climate.report import report
from apps.climate.splits import DEFAULT, check_split, split_samples
from apps.climate.units import same_unit
from scadl_core.errors import ConfigError, DataError
from scadl_core.files import Paths
from scadl_core.memory.limits import free_share
from scadl_core.record.datareport import DataReport
from scadl_core.workflow.statistics import Moments, remembered

MOST_CLASSES = 127  # class numbers of predictions are of 8 bits
HEURISTIC = "heuristic"  # as a target: no variable, but what the labeller finds
IGNORED = -1  # label of a pixel with a missing input or a missing label
Sample = dict[str, NDArray]


class ClimateData:
    """A set of maps with one label a pixel; its samples are in ``catalogue``."""

    propose = staticmethod(propose)

    def __init__(
        self,
        path: Paths,
        inputs: Iterable[str],
        target: str | None = None,
        classes: Iterable[str] = (),
        thresholds: Iterable[float] = (),
        weight: str | None = "area",
        split: Mapping[str, Any] | None = None,
        cache_GiB: float = 2.0,
        statistics: str | None = None,
        labeller: Mapping[str, Any] | None = None,
    ) -> None:
        """Looks into the files; fields are read later, as they are needed.

        Args:
            path: A file, a folder, a glob pattern, or several of them.
            inputs: Channels: variables, with a level where they have several (``t@500hPa``).
            target: The variable of class numbers, or that of ``thresholds``; ``heuristic``: by
                the labeller; None: no labels.
            classes: Names of the classes 0..K-1.
            thresholds: The class is the number of thresholds that the target reaches.
            weight: ``area``: pixels count by cos(latitude); None: all the same.
            split: ``by``, ``val``, ``test`` of ``splits.split_samples``; by folder if not said.
            cache_GiB: Decoded samples kept in the memory of each process, at most, and only while
                two thirds of the memory are free.
            statistics: A folder in which statistics are kept for the next run on the same files.
            labeller: Arguments of :class:`Labeller`, whose events the classes from 1 on are.

        Raises:
            ConfigError: Values that do not fit together.
            DataError: Files that are missing, broken, or not what the configuration says.
        """
        self.inputs, self.target = list(inputs), target
        self.classes = [str(name) for name in classes] if target else []
        self.thresholds, self.weight = list(thresholds), weight
        self.split = DEFAULT | dict(split or {})
        if not self.inputs:
            raise ConfigError("data.inputs is empty; name variables, for example [TMQ, t@500hPa]")
        if self.weight not in ("area", None):
            raise ConfigError(f"data.weight={self.weight} is unknown; there is: area, null")
        check_split(self.split)
        self.labeller = Labeller(**labeller or {}) if target == HEURISTIC else None
        if target:
            self._check_classes()
        files, self.roles = find_files(path), dict[str, str]()
        if self.labeller:
            self.roles = self.labeller.find(channels_of(files))
        read = dict.fromkeys([*self.inputs, *self.roles.values()])
        self.catalogue = Catalogue(files, list(read), None if self.labeller else target)
        for role, name in self.roles.items():
            field = self.catalogue.fields[name][0]
            if not any(same_unit(field.unit, unit) for unit in UNITS[role]):
                found = f"{field.path}: {name} is in {field.unit}; the rules take {role} in"
                raise DataError(f"{found} {' or '.join(UNITS[role])}: convert the file")
        self._cache: dict[str, Sample] = {}
        self._room_bytes = cache_GiB * 2**30
        self._statistics = statistics

    def _check_classes(self) -> None:
        names, thresholds = self.classes, self.thresholds
        words = {re.sub(r"\W", "_", name) for name in names}  # as predictions name them
        if len(words) != len(names) or not 2 <= len(names) <= MOST_CLASSES:
            expected = f"two to {MOST_CLASSES} names that differ in letters or figures are needed"
            raise ConfigError(f"data.classes={names}: {expected}")
        if not all(isinstance(it, int | float) and np.isfinite(it) for it in thresholds):
            raise ConfigError(f"data.thresholds={thresholds}: finite numbers are needed")
        if any(high <= low for low, high in pairwise(thresholds)):
            raise ConfigError(f"data.thresholds={thresholds}: each must exceed the one before")
        if self.labeller and len(names) != len(self.labeller.events) + 1:
            found = f"data.classes={names}: one, then one for each of data.labeller.events"
            raise ConfigError(f"{found}, {', '.join(self.labeller.events)}, are needed")
        if thresholds and len(names) != len(thresholds) + 1:
            found = f"data.thresholds={thresholds} make {len(thresholds) + 1} classes"
            raise ConfigError(f"{found}, data.classes names {len(names)}: {', '.join(names)}")

    def _path(self, name: str, key: str) -> Path:
        return self.catalogue.places[name][key][0].path

    def files(self) -> list[Path]:
        """The files that were looked into."""
        return self.catalogue.files

    @cached_property
    def splits(self) -> dict[str, list[str]]:
        """Keys of samples by split, all ``train`` without labels; a DataError if one is empty."""
        keys = self.catalogue.keys
        if not self.target:
            return {"train": keys, "val": [], "test": []}
        files = {key: self._path(self.inputs[0], key) for key in keys}
        return split_samples(files, **self.split)

    def samples(self, split: str) -> ClimateSamples:
        """The samples of ``train``, ``val``, ``test``, or ``all``, however they are split."""
        return ClimateSamples(self, self.catalogue.keys if split == "all" else self.splits[split])

    def decode(self, key: str) -> Sample:
        """Reads the sample of a key, from memory where it was read before.

        ``image_CHW`` is float32 in the files' units, NaN where missing; ``label_HW`` int64, -1
        where it is to be ignored. A DataError if a file cannot be read, or a label is no class.
        """
        if key in self._cache:
            return self._cache[key]
        fields_CHW = self.catalogue.read(key)
        image_CHW = fields_CHW[: len(self.inputs)].astype(np.float32)
        label_HW = np.full(image_CHW.shape[1:], IGNORED)
        if self.labeller:
            fields = dict(zip(self.catalogue.names, fields_CHW, strict=True))
            grid, by_role = self.catalogue.grid, {it: fields[self.roles[it]] for it in self.roles}
            label_HW = self.labeller.label(by_role, grid.latitude, grid.longitude, grid.periodic)
        elif self.target:
            label_HW = self._label(fields_CHW[-1], self._path(self.target, key))
        label_HW[np.isnan(image_CHW).any(axis=0)] = IGNORED
        sample = {"image_CHW": image_CHW, "label_HW": label_HW}
        size_bytes = image_CHW.nbytes + label_HW.nbytes
        if size_bytes <= self._room_bytes and free_share() > 2 / 3:
            self._room_bytes -= size_bytes
            self._cache[key] = sample
        return sample

    def _label(self, target_HW: NDArray[np.float64], path: Path) -> NDArray[np.int64]:
        labelled_HW = ~np.isnan(target_HW)
        if self.thresholds:
            return np.where(labelled_HW, np.digitize(target_HW, self.thresholds), IGNORED)
        values = np.unique(target_HW[labelled_HW])
        wrong = [f"{value:g}" for value in values if value not in range(len(self.classes))]
        if wrong:
            expected = f"0..{len(self.classes) - 1} ({', '.join(self.classes)})"
            advice = "mend data.classes, set data.thresholds, or declare missing as _FillValue"
            found = f"{path}: {self.target} has the values {', '.join(wrong[:5])}"
            raise DataError(f"{found}; the classes are {expected}: {advice}")
        return np.where(labelled_HW, target_HW, IGNORED).astype(np.int64)

    @cached_property
    def statistics(self) -> dict[str, NDArray]:
        """Of the train split: ``mean_C`` and the like of :class:`Moments`, and ``pixels_K``.

        Raises:
            DataError: A channel has no value at all.
        """
        names = ("inputs", "target", "classes", "thresholds", "split")
        settings = {name: getattr(self, name) for name in names} | {"rules": str(self.labeller)}
        found = remembered(self._statistics, self.files(), settings, self._measure)
        for name, count in zip(self.inputs, found["count_C"], strict=True):
            if not count:
                where = f"{self._path(name, self.splits['train'][0])}: {name}"
                raise DataError(f"{where} is missing everywhere in train; drop it from data.inputs")
        return found

    def _measure(self) -> dict[str, NDArray]:
        pixels_K, moments = np.zeros(len(self.classes)), None
        for sample in map(self.decode, self.splits["train"]):
            more = Moments.of(sample["image_CHW"])
            moments = moments + more if moments else more
            labels = sample["label_HW"][sample["label_HW"] >= 0]
            pixels_K += np.bincount(labels, minlength=len(pixels_K))[: len(pixels_K)]
        assert moments is not None  # a split is never empty
        names = ("count_C", "mean_C", "std_C", "min_C", "max_C", "missing_C")
        return {name: getattr(moments, name) for name in names} | {"pixels_K": pixels_K}

    def dimensions(self) -> dict[str, Any]:
        """The arguments that the data decide for the network."""
        return {"in_channels": len(self.inputs), "num_classes": len(self.classes)}

    def example(self) -> list[Path]:
        """The files of the first sample of the test split."""
        key = (self.splits["test"] or self.catalogue.keys)[0]
        return list(dict.fromkeys(self._path(name, key) for name in self.inputs))

    def facts(self) -> dict[str, Any]:
        """What a model must remember of its data: names, grid, statistics of the train split."""
        grid, of = self.catalogue.grid, self.statistics
        return {
            "inputs": self.inputs,
            "classes": self.classes,
            "periodic": grid.periodic,
            "model": self.dimensions(),
            "units": [self.catalogue.fields[name][0].unit for name in self.inputs],
            "mean_C": of["mean_C"].tolist(),
            "std_C": of["std_C"].tolist(),
            "class_fraction_K": (of["pixels_K"] / max(of["pixels_K"].sum(), 1)).tolist(),
            "latitude": grid.latitude.tolist(),  # of each row, or of each point
            "longitude": grid.longitude.tolist(),
            "calendar": self.catalogue.calendar,
        }

    def report(self) -> DataReport:
        """What was found, in words and tables."""
        return report(self)


class ClimateSamples:
    """The samples of one split."""

    def __init__(self, data: ClimateData, keys: Sequence[str]) -> None:
        self._data, self.keys = data, keys

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, index: int, rng: np.random.Generator | None) -> Sample:
        """What :meth:`ClimateData.decode` gives, and ``area_HW`` float32, the weight of a pixel.

        With ``rng`` a periodic grid is turned by any number of columns, as augmentation.
        """
        grid = self._data.catalogue.grid
        turn = int(rng.integers(grid.shape[1])) if rng is not None and grid.periodic else 0
        stored = self._data.decode(self.keys[index])
        sample = {name: np.roll(values, turn, -1) for name, values in stored.items()}
        area_HW = grid.area_HW if self._data.weight else np.ones(grid.shape, np.float32)
        return sample | {"area_HW": np.roll(area_HW, turn, -1)}
