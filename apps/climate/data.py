"""Labelled weather maps from any latitude/longitude NetCDF files: checks, statistics, samples.

Shapes: C channel, H latitude, W longitude (canonical, see ``grid``), K class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.climate.catalogue import Catalogue, Paths, find_files
from apps.climate.propose import propose
from apps.climate.splits import SPLITS, check_split, instant, split_samples
from apps.climate.statistics import Statistics
from scadl_core.errors import ConfigError, DataError
from scadl_core.workflow.datareport import DataReport, Table

IGNORED = -1  # label of a pixel with a missing input or a missing label
Sample = dict[str, NDArray]


class ClimateData:
    """A set of maps with one label a pixel; ``catalogue`` has its samples."""

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
    ) -> None:
        """Looks into the files; fields are read later, as they are needed.

        Args:
            path: A file, a folder, a glob pattern, or several of them.
            inputs: Channels: variables, with a level where they have several (``t@500hPa``).
            target: The variable of class numbers, or that of ``thresholds``; None: no labels.
            classes: Names of the classes 0..K-1.
            thresholds: The class is the number of thresholds that the target reaches.
            weight: ``area``: pixels count by cos(latitude); None: all the same.
            split: ``by``, ``val``, ``test`` of ``splits.split_samples``; by folder if not said.
            cache_GiB: Decoded samples kept in the memory of each process.

        Raises:
            ConfigError: Values that do not fit together.
            DataError: Files that are missing, broken, or not what the configuration says.
        """
        self.inputs, self.target = list(inputs), target
        self.classes = list(classes) if target else []
        self.thresholds, self.weight = list(thresholds), weight
        self.split = {"by": "folder", "val": 0.15, "test": 0.2} | dict(split or {})
        self._check()
        self.catalogue = Catalogue(find_files(path), self.inputs, target)
        self._cache: dict[str, Sample] = {}
        self._room_bytes = cache_GiB * 2**30

    def _check(self) -> None:
        names, thresholds = self.classes, self.thresholds
        if not self.inputs:
            raise ConfigError("data.inputs is empty; name variables, for example [TMQ, t@500hPa]")
        if self.weight not in ("area", None):
            raise ConfigError(f"data.weight={self.weight} is unknown; there is: area, null")
        check_split(self.split)
        if self.target and (len(set(names)) != len(names) or len(names) < 2):
            raise ConfigError(f"data.classes={names}: two or more different names are needed")
        if self.target and any(high <= low for low, high in pairwise(thresholds)):
            raise ConfigError(f"data.thresholds={thresholds}: each must exceed the one before")
        if self.target and thresholds and len(names) != len(thresholds) + 1:
            found = f"data.thresholds={thresholds} make {len(thresholds) + 1} classes"
            raise ConfigError(f"{found}, data.classes names {len(names)}: {', '.join(names)}")

    def _path(self, name: str, key: str) -> Path:
        return self.catalogue.places[name][key][0].path

    def files(self) -> list[Path]:
        """The files that were looked into."""
        return self.catalogue.files

    @cached_property
    def splits(self) -> dict[str, list[str]]:
        """Keys of samples by split; all of them are ``train`` where there are no labels.

        Raises:
            DataError: A split is empty.
        """
        keys = self.catalogue.keys
        if not self.target:
            return {"train": keys, "val": [], "test": []}
        folders = {key: self._path(self.inputs[0], key).resolve().parent for key in keys}
        return split_samples(folders, **self.split)

    def samples(self, split: str) -> ClimateSamples:
        """The samples of ``train``, ``val``, ``test``, or ``all``, however they are split."""
        return ClimateSamples(self, self.catalogue.keys if split == "all" else self.splits[split])

    def decode(self, key: str) -> Sample:
        """Reads the sample of a key, from memory where it was read before.

        Returns:
            ``image_CHW`` float32 in the files' units, NaN where missing; ``label_HW`` int64, -1
            where it is to be ignored.

        Raises:
            DataError: A file cannot be read, or a label is no class.
        """
        if key in self._cache:
            return self._cache[key]
        fields_CHW = self.catalogue.read(key)
        image_CHW = fields_CHW[: len(self.inputs)].astype(np.float32)
        label_HW = np.full(image_CHW.shape[1:], IGNORED)
        if self.target:
            label_HW = self._label(fields_CHW[-1], self._path(self.target, key))
        label_HW[np.isnan(image_CHW).any(axis=0)] = IGNORED
        sample = {"image_CHW": image_CHW, "label_HW": label_HW}
        size_bytes = image_CHW.nbytes + label_HW.nbytes
        if size_bytes <= self._room_bytes:
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
    def statistics(self) -> Statistics:
        """Statistics of the train split.

        Raises:
            DataError: A channel has no value at all.
        """
        statistics = Statistics(len(self.inputs), len(self.classes))
        for key in self.splits["train"]:
            statistics.add(**self.decode(key))
        for name, count in zip(self.inputs, statistics.count_C, strict=True):
            if not count:
                where = f"{self._path(name, self.splits['train'][0])}: {name}"
                raise DataError(f"{where} is missing everywhere in train; drop it from data.inputs")
        return statistics

    def dimensions(self) -> dict[str, Any]:
        """The arguments that the data decide for the network."""
        return {"in_channels": len(self.inputs), "num_classes": len(self.classes)}

    def example(self) -> list[Path]:
        """The files of the first sample of the test split."""
        key = self.splits["test"][0] if self.splits["test"] else self.catalogue.keys[0]
        return list(dict.fromkeys(self._path(name, key) for name in self.inputs))

    def facts(self) -> dict[str, Any]:
        """What a model must remember of its data: names, grid, statistics of the train split."""
        grid, statistics = self.catalogue.grid, self.statistics
        return {
            "inputs": self.inputs,
            "classes": self.classes,
            "periodic": grid.periodic,
            "model": self.dimensions(),
            "units": [self.catalogue.fields[name][0].unit for name in self.inputs],
            "mean_C": statistics.mean_C.tolist(),
            "std_C": statistics.std_C.tolist(),
            "class_fraction_K": statistics.fraction_K.tolist(),
            "latitude_H": grid.latitude_H.tolist(),
            "longitude_W": grid.longitude_W.tolist(),
        }

    def report(self) -> DataReport:
        """What was found, in words and tables."""
        keys, catalogue = self.catalogue.keys, self.catalogue
        counts = ", ".join(f"{len(self.splits[name])} {name}" for name in SPLITS)
        facts = {
            "files": f"{len(catalogue.files)}, from {catalogue.files[0]} to {catalogue.files[-1]}",
            "grid": str(catalogue.grid),
            "time": f"{keys[0]} to {keys[-1]}",
            "samples": f"{counts} (by {self.split['by']})",
        }
        tables = [self._channel_table()] + [self._class_table()] * bool(self.target)
        return DataReport("Climate data", facts, tables, self._warnings())

    def _channel_table(self) -> Table:
        of, rows = self.statistics, []
        share_C = of.missing_C / (of.missing_C + of.count_C)
        numbers_CN = np.stack([of.mean_C, of.std_C, of.min_C, of.max_C], 1)
        for name, numbers, share in zip(self.inputs, numbers_CN, share_C, strict=True):
            unit = self.catalogue.fields[name][0].unit
            rows.append((name, unit, *(f"{number:.5g}" for number in numbers), f"{share:.2%}"))
        columns = ("name", "unit", "mean", "std", "min", "max", "missing")
        return Table("Channels (train)", columns, rows)

    def _class_table(self) -> Table:
        shares = zip(self.classes, self.statistics.fraction_K, strict=True)
        rows = [(str(index), name, f"{share:.3%}") for index, (name, share) in enumerate(shares)]
        title = f"Classes of {self.target} (train)"
        return Table(title, ("class", "name", "share of pixels"), rows)

    def _warnings(self) -> list[str]:
        of = self.statistics
        constant = [name for name, yes in zip(self.inputs, of.constant_C, strict=True) if yes]
        absent = [name for name, n in zip(self.classes, of.pixels_K, strict=True) if not n]
        found = list(self.catalogue.warnings)
        found += [f"{name} is constant: nothing can be learnt from it" for name in constant]
        found += [f"class {name} has no pixel in the train split" for name in absent]
        train, val, test = ({instant(key) for key in self.splits[name]} for name in SPLITS)
        if shared := len(test & (train | val)) + len(train & val):
            found.append(f"{shared} instants are in two splits: scores will flatter")
        return found


class ClimateSamples:
    """The samples of one split."""

    def __init__(self, data: ClimateData, keys: Sequence[str]) -> None:
        self._data, self.keys = data, keys

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, index: int, rng: np.random.Generator | None) -> Sample:
        """Reads one sample: that of ``ClimateData.decode`` and ``area_H``, the weight of a pixel.

        Args:
            index: Its position.
            rng: Turns a periodic grid by any number of columns; None: as it is.
        """
        grid = self._data.catalogue.grid
        turn = int(rng.integers(grid.shape[1])) if rng is not None and grid.periodic else 0
        stored = self._data.decode(self.keys[index])
        sample = {name: np.roll(values, turn, -1) for name, values in stored.items()}
        area_H = grid.area_H if self._data.weight else np.ones(grid.shape[0], np.float32)
        return sample | {"area_H": area_H}
