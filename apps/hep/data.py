"""Labelled jets or events from ROOT, HDF5 and Parquet files: checks, statistics, samples.

Suffixes: R row, F input, K class, C chunk, H bin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.hep.ahead import Ahead
from apps.hep.propose import propose
from apps.hep.recipe import recipe_of
from apps.hep.report import report
from apps.hep.rows import Columns, Rows
from apps.hep.samples import HEPSamples
from apps.hep.settings import mapping, number, numbers, texts
from apps.hep.survey import DEFAULT, SPLITS, Survey, check_split, folder_of, split_rows, taken
from apps.hep.tables import Table, cut, find_files, open_tables
from apps.hep.weaver import read_weaver
from scadl_core.errors import ConfigError, DataError, nearest
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport
from scadl_core.workflow.statistics import remembered

CLIP = 5.0  # standardised inputs end here, as in weaver
STANDARDS = ("quantiles", "moments", "none")


class HEPData:
    """A set of rows (jets, events, or objects of events), each with constituents and one class."""

    propose = staticmethod(propose)

    def __init__(
        self,
        path: Paths,
        inputs: Mapping[str, Sequence[str]] | Sequence[str],
        target: str | Sequence[str],
        classes: Sequence[str],
        tree: str | Sequence[str] | None = None,
        constituents: Mapping[str, Any] | None = None,
        derived: Mapping[str, str] | None = None,
        selection: str | None = None,
        sentinels: Sequence[float] = (),
        rows: str | None = None,
        links: Mapping[str, Mapping[str, str]] | None = None,
        weight: str | None = None,
        reweight: Mapping[str, Any] | None = None,
        monitor: Mapping[str, str | None] | None = None,
        split: Mapping[str, Any] | None = None,
        standardise: str = "quantiles",
        fixed: Mapping[str, Sequence[float]] | None = None,
        chunk_rows: int = 8192,
        cache_GiB: float = 1.0,
        statistics: str | None = None,
        weaver: str | None = None,
    ) -> None:
        """Looks into the files; rows are read later, as they are needed.

        Args:
            path: A file, a folder, a glob pattern, or several of them.
            inputs: ``particles``: a list a row each; ``flat``: a number a row each; branches,
                derived variables or formulas. A list means ``flat``.
            target: The number of the class, or a list of conditions, one a class.
            classes: Their names; the first is the background where one is needed.
            tree: The table in each file, or several; None: the one that has what is needed.
            constituents: ``length``: most constituents a row; ``order``: the largest of this are
                kept, None: the first; ``points`` and ``vectors``: coordinates and momenta (px, py,
                pz, energy) for networks that use them.
            derived: Formulas by the name under which others use them.
            selection: Rows for which this is true are trained and tested on.
            sentinels: Values that mean missing.
            rows: A collection (``Jet``) whose objects are the rows; None: the rows of the table.
            links: How constituents belong to objects, see :mod:`apps.hep.unroll`.
            weight: Of each row, negative too; 1 in files that lack its branch.
            reweight: ``by``: one or two formulas, ``bins``: edges for each, ``most``: in training,
                weights are multiplied by up to this so that each class has a flat spectrum, and
                all classes the same total.
            monitor: ``pt`` and ``mass``, in bins of which results are shown.
            split: See :func:`apps.hep.survey.split_rows`.
            standardise: Inputs by ``quantiles``, ``moments`` or ``none``.
            fixed: By input: centre, scale, lowest and highest value.
            chunk_rows: Rows decoded together; of several clusters, or a part of one.
            cache_GiB: Decoded rows kept in the memory of each process.
            statistics: A folder in which statistics are kept for the next run on the same files.
            weaver: A data configuration of weaver, taken instead of what is above it here.

        Raises:
            ConfigError: Values that do not fit together.
            DataError: Files that are missing, broken, or not what the configuration says.
        """
        given: dict[str, Any] = {
            "inputs": inputs, "target": target, "classes": classes, "constituents": constituents,
            "derived": derived, "selection": selection, "weight": weight, "reweight": reweight,
            "fixed": fixed, "tree": tree, "monitor": monitor,
        }  # fmt: skip
        given |= read_weaver(Path(weaver)) if weaver else {}
        self.settings = given if weaver else {}
        self.split = DEFAULT | mapping(split, "data.split", DEFAULT)
        check_split(self.split)
        if standardise not in STANDARDS:
            known = nearest(str(standardise), STANDARDS)
            raise ConfigError(f"data.standardise={standardise}{known}")
        self.standardise, self.fixed = standardise, mapping(given["fixed"], "data.fixed")
        events = texts(_several(self.split["event"]), "data.split.event")
        self.recipe = recipe_of(given, events, rows, links, sentinels)
        self._take_spectrum(given["reweight"] or {})
        self._check_classes()
        self._check_fixed()
        chunk_rows = number(chunk_rows, "data.chunk_rows", 1, whole=True)
        trees = texts(_several(given["tree"]), "data.tree")
        self.tables = [
            table
            for file in find_files(path)
            for table in open_tables(file, trees, self._has_inputs)
        ]
        self.check_branches()
        self.room_bytes = number(cache_GiB, "data.cache_GiB", 0) * 2**30
        self._cache = OrderedDict[int, list[Columns]]()
        self.ahead = Ahead(self._taken)
        self._statistics = statistics
        self.chunks = [
            (number, *part)
            for number, table in enumerate(self.tables)
            for part in cut(table.bounds, table.num_rows, chunk_rows)
        ]

    def _has_inputs(self, table: Table) -> bool:
        return not self.recipe.lacking(table, self.recipe.inputs)

    def _take_spectrum(self, spectrum: Mapping[str, Any]) -> None:
        bins = spectrum.get("bins") or []
        if not isinstance(bins, Sequence):
            raise ConfigError(f"data.reweight.bins: expected a list of edges a formula, got {bins}")
        self.edges = [numbers(it, "data.reweight.bins") for it in bins]
        self._most = number(spectrum.get("most", 10), "data.reweight.most", 1)

    def _check_classes(self) -> None:
        names, target, edges = self.recipe.classes, self.recipe.target, self.edges
        if len(set(names)) != len(names) or len(names) < 2:
            raise ConfigError(f"data.classes={names}: two or more names are needed, all different")
        if not isinstance(target, str) and len(target or []) != len(names):
            raise ConfigError(
                f"data.target has {len(target or [])} conditions for {len(names)} data.classes "
                f"({', '.join(names)})"
            )
        rising = all(low < high for edge in edges for low, high in pairwise(edge))
        if (
            len(edges) != len(self.recipe.spectra)
            or not rising
            or min(map(len, edges), default=2) < 2
        ):
            raise ConfigError("data.reweight.bins: rising edges are needed for each formula in by")

    def _check_fixed(self) -> None:
        names = [*self.recipe.particles, *self.recipe.flat]
        for name, values in self.fixed.items():
            if name not in names:
                raise ConfigError(f"data.fixed.{name} is no input{nearest(name, names)}")
            if len(numbers(values, f"data.fixed.{name}")) != 4:
                raise ConfigError(f"data.fixed.{name}: expected centre, factor, lowest and highest "
                                  f"value, got {values}")  # fmt: skip

    def check_branches(self) -> None:
        """A DataError if a file lacks a branch; a weight may be lacking in some of them."""
        weight = [self.recipe.weight] if self.recipe.weight else []
        if self.tables and all(self.recipe.lacking(table, weight) for table in self.tables):
            self.tables[0].require(self.recipe.needs(weight), "data.weight")
        for table in self.tables:
            self.recipe.branches(table)

    def files(self) -> list[Path]:
        """The files that were looked into."""
        return list(dict.fromkeys(table.path for table in self.tables))

    @property
    def _has_val(self) -> bool:
        return any(folder_of(table) == "val" for table in self.tables)

    def decode(self, chunk: int, then: int | None = None) -> list[Columns]:
        """The rows of a chunk that are taken, of each split; kept while there is room.

        Args:
            chunk: Which.
            then: The one that is needed next: a thread begins with it.
        """
        if then is not None and then not in self._cache:
            self.ahead.begin(then)
        if chunk not in self._cache:
            self._keep(chunk, self.ahead(chunk))
        self._cache.move_to_end(chunk)
        return self._cache[chunk]

    def _taken(self, chunk: int) -> list[Columns]:
        return taken(*self._read(chunk))

    def _read(self, chunk: int) -> tuple[Columns, NDArray[np.int8]]:
        number, start, stop = self.chunks[chunk]
        table = self.tables[number]
        columns = Rows(self.recipe, table, start, stop).columns()
        return columns, split_rows(columns, table, self.split, self._has_val)

    def _keep(self, chunk: int, found: list[Columns]) -> None:
        self._cache[chunk] = found
        while sum(it.nbytes for of in self._cache.values() for it in of) > self.room_bytes:
            if len(self._cache) == 1:
                break
            self._cache.popitem(last=False)

    @cached_property
    def survey(self) -> dict[str, NDArray]:
        """What :class:`apps.hep.survey.Survey` found; a DataError where there is nothing to use."""
        names = (self.recipe, self.split, self.chunks, self.edges)
        settings = {"settings": repr(names)}
        found = remembered(self._statistics, self.files(), settings, self._look)
        self._check_found(found)
        return found

    def _look(self) -> dict[str, NDArray]:
        tables = [number for number, *_ in self.chunks]
        ahead = Ahead(self._read)
        survey = Survey(len(self.tables), tables, len(self.recipe.classes), self.edges)
        for chunk in range(len(self.chunks)):
            if chunk + 1 < len(self.chunks):
                ahead.begin(chunk + 1)
            self._keep(chunk, survey.add(chunk, *ahead(chunk)))
        return survey.found()

    def _check_found(self, found: dict[str, NDArray]) -> None:
        rows, cut_away, unlabelled = found["dropped_T3"].sum(0)
        where = f"{self.tables[0].place}" + f" and {len(self.tables) - 1} more" * (
            len(self.tables) > 1
        )
        if not rows:
            raise DataError(f"{where}: no rows; give data.path files that have some")
        if cut_away == rows:
            raise DataError(f"{where}: data.selection={self.recipe.selection} passes none of "
                            f"{rows:.0f} rows")  # fmt: skip
        if cut_away + unlabelled == rows:
            raise DataError(f"{where}: data.target is true of none of {rows - cut_away:.0f} rows")
        for split, count in zip(SPLITS, found["rows_CS"].sum(0), strict=True):
            if not count and (split == "train" or self.split.get(split) or split == "test"):
                put = f"put files into a folder {split}/, or set data.split.by=random"
                advice = put if self.split["by"] == "folder" else "widen data.split or data.path"
                raise DataError(f"data.split: {split!r} has no row ({where}); {advice}")
        self._check_learnable(found)
        for name, low, high, count in zip(
            [*self.recipe.particles, *self.recipe.flat],
            *(found[it] for it in ("min_F", "max_F", "count_F")),
            strict=True,
        ):
            if not count or (low == high and low < 0 and low == round(low)):
                what = f"{low:g}, a sentinel," if count else "missing"
                raise DataError(f"data.inputs: {name} is {what} everywhere in the training split "
                                f"({where}); leave it out")  # fmt: skip

    def _check_learnable(self, found: dict[str, NDArray]) -> None:
        """There are two classes to tell apart, with weights that do not cancel, and inputs."""
        where, train_K4 = self.tables[0].place, found["weights_SK4"][0]
        if (train_K4[:, 0] > 0).sum() < 2:
            only = self.recipe.classes[int(np.argmax(train_K4[:, 0]))]
            raise DataError(f"data.target: all rows of the training split are of class {only!r} "
                            f"({where}); at least two classes are needed")  # fmt: skip
        if self.recipe.weight and (total := train_K4[:, 1].sum()) <= 0:
            raise DataError(f"data.weight={self.recipe.weight} sums to {total:g} over the training "
                            f"split ({where}); a positive sum is needed")  # fmt: skip
        inputs = [*self.recipe.particles, *self.recipe.flat]
        if len(found.get("count_F", ())) < len(inputs):
            raise DataError(f"data.inputs.particles: no row of the training split has a "
                            f"constituent ({where})")  # fmt: skip

    def standards(self) -> dict[str, list[list[float]]]:
        """Centre, factor, lowest and highest value of each input, by ``particles`` and ``flat``."""
        of, names = self.survey, [*self.recipe.particles, *self.recipe.flat]
        low, middle, high = (of[f"q{it}_F"] for it in (0.16, 0.5, 0.84))
        width = np.maximum(high - middle, middle - low)
        centre, scale = {
            "quantiles": (middle, np.where(width > 0, width, 1)),
            "moments": (of["mean_F"], of["std_F"]),
            "none": (np.zeros_like(middle), np.ones_like(middle)),
        }[self.standardise]
        end = CLIP if self.standardise != "none" else np.inf
        all_of_them = [
            [float(c), 1 / float(s), -end, end] for c, s in zip(centre, scale, strict=True)
        ]
        for place, name in enumerate(names):
            if name in self.fixed:
                all_of_them[place] = list(map(float, self.fixed[name]))
        count = len(self.recipe.particles)
        return {"particles": all_of_them[:count], "flat": all_of_them[count:]}

    @cached_property
    def factors_KH(self) -> NDArray[np.float64]:
        """What training weights are multiplied by, of each class and bin of the spectrum."""
        total_KH = np.maximum(self.survey["spectrum_KH"], 0)
        mean_K = total_KH.sum(1, keepdims=True) / np.maximum(
            (total_KH > 0).sum(1, keepdims=True), 1
        )
        factor_KH = np.divide(mean_K, total_KH, out=np.zeros_like(total_KH), where=total_KH > 0)
        class_K = total_KH.sum() / len(total_KH) / np.maximum(total_KH.sum(1, keepdims=True), 1e-30)
        return np.minimum(factor_KH, self._most) * class_K

    def dimensions(self) -> dict[str, Any]:
        """The arguments that the data decide for the network."""
        recipe = self.recipe
        counts = {"particles": recipe.particles, "flat": recipe.flat, "points": recipe.points}
        counts |= {"vectors": recipe.vectors, "classes": recipe.classes}
        return {f"num_{name}": len(it) for name, it in counts.items()}

    def facts(self) -> dict[str, Any]:
        """What a model must remember of its data."""
        rows_K = self.survey["weights_SK4"][0, :, 0]
        return {
            "model": self.dimensions(),
            "recipe": asdict(self.recipe.for_prediction()),
            "classes": self.recipe.classes,
            "standards": self.standards(),
            "class_fraction_K": (rows_K / rows_K.sum()).tolist(),
            "monitor": {"pt": self.recipe.pt, "mass": self.recipe.mass},
        }

    def example(self) -> list[Path]:
        """The first file with rows of the test split."""
        rows_C = self.survey["rows_CS"][:, 2]
        return [self.tables[self.chunks[int(np.argmax(rows_C > 0))][0]].path]

    def samples(self, split: str) -> HEPSamples:
        """The rows of ``train``, ``val`` or ``test``, or ``all`` of them."""
        return HEPSamples(self, [SPLITS.index(split)] if split != "all" else [0, 1, 2])

    def report(self) -> DataReport:
        """What was found, in words and tables."""
        return report(self)


def _several(names: Any) -> Any:
    return [names] if isinstance(names, str) else names
