"""Labelled weather maps from any latitude/longitude NetCDF files: checks, statistics, samples.

Shapes: C channel, H latitude, W longitude (canonical, see ``grid``), P pixel, K class.
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
from scadl_core.errors import ConfigError, DataError
from scadl_core.record.datareport import DataReport, Table

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
        if not self.inputs:
            raise ConfigError("data.inputs is empty; name variables, for example [TMQ, t@500hPa]")
        if self.weight not in ("area", None):
            raise ConfigError(f"data.weight={self.weight} is unknown; there is: area, null")
        check_split(self.split)
        if target:
            self._check_classes()
        self.catalogue = Catalogue(find_files(path), self.inputs, target)
        self._cache: dict[str, Sample] = {}
        self._room_bytes = cache_GiB * 2**30

    def _check_classes(self) -> None:
        names, thresholds = self.classes, self.thresholds
        if len(set(names)) != len(names) or len(names) < 2:
            raise ConfigError(f"data.classes={names}: two or more different names are needed")
        if any(high <= low for low, high in pairwise(thresholds)):
            raise ConfigError(f"data.thresholds={thresholds}: each must exceed the one before")
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
        folders = {key: self._path(self.inputs[0], key).resolve().parent for key in keys}
        return split_samples(folders, **self.split)

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
    def statistics(self) -> dict[str, NDArray]:
        """``statistics_of`` the train split; a DataError if a channel has no value at all."""
        keys = self.splits["train"]
        found = statistics_of(map(self.decode, keys), len(self.classes))
        for name, count in zip(self.inputs, found["count_C"], strict=True):
            if not count:
                where = f"{self._path(name, keys[0])}: {name}"
                raise DataError(f"{where} is missing everywhere in train; drop it from data.inputs")
        return found

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
            "latitude_H": grid.latitude_H.tolist(),
            "longitude_W": grid.longitude_W.tolist(),
        }

    def report(self) -> DataReport:
        """What was found, in words and tables."""
        keys, files, facts = self.catalogue.keys, self.catalogue.files, self.facts()
        counts = ", ".join(f"{len(self.splits[name])} {name}" for name in SPLITS)
        found = {
            "files": f"{len(files)}, from {files[0]} to {files[-1]}",
            "grid": str(self.catalogue.grid),
            "time": f"{keys[0]} to {keys[-1]}",
            "samples": f"{counts} (by {self.split['by']})",
        }
        columns = ("name", "unit", "mean", "std", "min", "max", "missing")
        *numbers, share_C = (self.statistics[f"{name}_C"] for name in columns[2:])
        cells = [[f"{value:.5g}" for value in values_C] for values_C in numbers]
        shares = [f"{share:.2%}" for share in share_C]
        rows = list(zip(self.inputs, facts["units"], *cells, shares, strict=True))
        tables = [Table("Channels (train)", columns, rows)]
        if self.target:
            shares = [f"{share:.3%}" for share in facts["class_fraction_K"]]
            rows = list(zip(map(str, range(len(shares))), self.classes, shares, strict=True))
            title = f"Classes of {self.target} (train)"
            tables.append(Table(title, ("class", "name", "share of pixels"), rows))
        return DataReport("Climate data", found, tables, self._warnings())

    def _warnings(self) -> list[str]:
        of, found = self.statistics, list(self.catalogue.warnings)
        constant_C = of["max_C"] <= of["min_C"]
        constant = [name for name, yes in zip(self.inputs, constant_C, strict=True) if yes]
        absent = [name for name, n in zip(self.classes, of["pixels_K"], strict=True) if not n]
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
        """What :meth:`ClimateData.decode` gives, and ``area_H`` float32, the weight of a pixel.

        With ``rng`` a periodic grid is turned by any number of columns, as augmentation.
        """
        grid = self._data.catalogue.grid
        turn = int(rng.integers(grid.shape[1])) if rng is not None and grid.periodic else 0
        stored = self._data.decode(self.keys[index])
        sample = {name: np.roll(values, turn, -1) for name, values in stored.items()}
        area_H = grid.area_H if self._data.weight else np.ones(grid.shape[0], np.float32)
        return sample | {"area_H": area_H}


def statistics_of(samples: Iterable[Sample], classes: int) -> dict[str, NDArray]:
    """Statistics of valid values in one pass: Chan, Golub and LeVeque (1983), eq. 2.1.

    Returns:
        Of channels ``count_C``, ``mean_C``, ``std_C`` (1 where constant: it is divided by),
        ``min_C``, ``max_C``, ``missing_C`` (a share); of classes ``pixels_K``, the labelled ones.
    """
    count_C, mean_C, squares_C, missing_C, pixels_K = 0, 0, 0, 0, np.zeros(classes)
    min_C, max_C = np.inf, -np.inf
    for sample in samples:
        values_CP = sample["image_CHW"].astype(np.float64)
        values_CP = values_CP.reshape(len(values_CP), -1)
        valid_CP = np.isfinite(values_CP)
        new_C = valid_CP.sum(1)
        new_mean_C = values_CP.sum(1, where=valid_CP) / np.maximum(new_C, 1)
        new_squares_C = np.square(values_CP - new_mean_C[:, None]).sum(1, where=valid_CP)
        total_C, delta_C = np.maximum(count_C + new_C, 1), new_mean_C - mean_C
        squares_C += new_squares_C + delta_C**2 * count_C * new_C / total_C
        mean_C += delta_C * new_C / total_C
        count_C += new_C
        missing_C += values_CP.shape[1] - new_C
        min_C = np.minimum(min_C, values_CP.min(1, where=valid_CP, initial=np.inf))
        max_C = np.maximum(max_C, values_CP.max(1, where=valid_CP, initial=-np.inf))
        known = sample["label_HW"][sample["label_HW"] >= 0]
        pixels_K += np.bincount(known, minlength=classes)[:classes]
    std_C = np.where(max_C <= min_C, 1, np.sqrt(squares_C / np.maximum(count_C, 1)))
    return {
        "count_C": count_C, "mean_C": mean_C, "std_C": std_C, "min_C": min_C, "max_C": max_C,
        "missing_C": missing_C / (missing_C + count_C), "pixels_K": pixels_K,
    }  # fmt: skip
