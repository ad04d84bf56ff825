"""Labelled jets or events from ROOT, HDF5 and Parquet files: checks, statistics, samples.

Suffixes: R row, B row of a batch, P constituent, F feature, G feature of a row, K class, C chunk.
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

from apps.hep.propose import propose
from apps.hep.recipe import Recipe
from apps.hep.report import report
from apps.hep.rows import Columns, Rows
from apps.hep.survey import DEFAULT, SPLITS, Survey, bins, check_split, folder_of, split_rows, taken
from apps.hep.tables import Table, find_files, open_tables
from apps.hep.weaver import read_weaver
from scadl_core.errors import ConfigError, DataError, nearest
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport
from scadl_core.workflow.statistics import remembered

CLIP = 5.0  # standardised inputs end here, as in weaver
LANES = 16  # with so many ranks, or a divisor of it, each reads its share of a streamed set only
STANDARDS = ("quantiles", "moments", "none")
Batch = dict[str, NDArray]


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
        given: dict[str, Any] = {"inputs": inputs, "target": target, "classes": classes}
        given |= {"constituents": constituents, "derived": derived, "selection": selection}
        given |= {"weight": weight, "reweight": reweight, "fixed": fixed, "tree": tree}
        given |= {"monitor": monitor}
        if weaver:
            given |= read_weaver(Path(weaver))
        self.settings = given if weaver else {}
        reweight, self.fixed = given["reweight"] or {}, dict(given["fixed"] or {})
        self.split = DEFAULT | dict(split or {})
        check_split(self.split)
        if standardise not in STANDARDS:
            raise ConfigError(f"data.standardise={standardise}{nearest(standardise, STANDARDS)}")
        of, monitor, target = given["inputs"], given["monitor"] or {}, given["target"]
        of = of if isinstance(of, Mapping) else {"flat": of}
        known = {"particles", "flat"}
        if wrong := [it for it in of if it not in known] or (not any(of.values()) and ["nothing"]):
            raise ConfigError(f"data.inputs: {wrong[0]}: expected lists under particles and flat")
        more, event = dict(given["constituents"] or {}), self.split["event"]
        if wrong := [it for it in more if it not in ("length", "order", "points", "vectors")]:
            raise ConfigError(f"data.constituents.{wrong[0]} is unknown")
        self.edges = [list(map(float, it)) for it in reweight.get("bins", [])]
        self._most = float(reweight.get("most", 10))
        self.recipe = Recipe(
            particles=list(of.get("particles") or []),
            flat=list(of.get("flat") or []),
            derived=dict(given["derived"] or {}),
            selection=given["selection"],
            target=target if isinstance(target, str) else [str(it) for it in target],
            classes=[str(name) for name in given["classes"]],
            weight=given["weight"],
            pt=monitor.get("pt"),
            mass=monitor.get("mass"),
            spectra=[str(it) for it in reweight.get("by", [])],
            event=[event] if isinstance(event, str) else list(event),
            rows=rows,
            links={name: dict(it) for name, it in (links or {}).items()},
            sentinels=[float(it) for it in sentinels],
            **more,
        )
        self._check_classes()
        self.standardise, self._statistics = standardise, statistics
        trees = [given["tree"]] if isinstance(given["tree"], str) else list(given["tree"] or [])
        needed = self.recipe.inputs
        self.tables: list[Table] = []
        for file in find_files(path):
            has = lambda table: not self.recipe.lacking(table, needed)  # noqa: E731
            self.tables += open_tables(file, trees, has)
        self.check_branches()
        self._room_bytes, self._cache = cache_GiB * 2**30, OrderedDict[int, list[Columns]]()
        self.chunks = [
            (number, *part)
            for number, table in enumerate(self.tables)
            for part in cut(table.bounds, table.num_rows, chunk_rows)
        ]

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

    def decode(self, chunk: int) -> list[Columns]:
        """The rows of a chunk that are taken, of each split; kept while there is room."""
        if chunk in self._cache:
            self._cache.move_to_end(chunk)
            return self._cache[chunk]
        columns, split_R = self._read(chunk)
        return self._keep(chunk, taken(columns, split_R))

    def _read(self, chunk: int) -> tuple[Columns, NDArray[np.int8]]:
        number, start, stop = self.chunks[chunk]
        table = self.tables[number]
        columns = Rows(self.recipe, table, start, stop).columns()
        return columns, split_rows(columns, table, self.split, self._has_val)

    def _keep(self, chunk: int, found: list[Columns]) -> list[Columns]:
        self._cache[chunk] = found
        while sum(it.nbytes for of in self._cache.values() for it in of) > self._room_bytes:
            if len(self._cache) == 1:
                break
            self._cache.popitem(last=False)
        return found

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
        survey = Survey(len(self.tables), tables, len(self.recipe.classes), self.edges)
        for chunk in range(len(self.chunks)):
            self._keep(chunk, survey.add(chunk, *self._read(chunk)))
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
        for name, low, high, count in zip(
            [*self.recipe.particles, *self.recipe.flat],
            *(found[it] for it in ("min_F", "max_F", "count_F")),
            strict=True,
        ):
            if not count or (low == high and low < 0 and low == round(low)):
                what = f"{low:g}, a sentinel," if count else "missing"
                raise DataError(f"data.inputs: {name} is {what} everywhere in the training split "
                                f"({where}); leave it out")  # fmt: skip

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
        for number, name in enumerate(names):
            if name in self.fixed:
                all_of_them[number] = list(map(float, self.fixed[name]))
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


def cut(bounds: Sequence[int], rows: int, most: int) -> list[tuple[int, int]]:
    """Cuts rows into chunks, at given bounds where these are close enough."""
    cuts, start = [], 0
    ends = [*bounds[1:-1], rows]
    for end, after in zip(ends, [*ends[1:], None], strict=True):
        while end - start > 2 * most:
            cuts.append((start, start + most))
            start += most
        if end > start and (after is None or after - start > most):
            cuts.append((start, end))
            start = end
    return cuts


class HEPSamples:
    """The rows of one split, or of several, read in batches."""

    def __init__(self, data: HEPData, splits: Sequence[int]) -> None:
        self._data, self._splits = data, splits
        rows_C = data.survey["rows_CS"][:, splits].sum(1).astype(np.int64)
        self._first_C = np.cumsum(rows_C) - rows_C
        self._rows_C = rows_C

    def __len__(self) -> int:
        return int(self._rows_C.sum())

    @property
    def _is_small(self) -> bool:
        return bool(self._data.survey["nbytes"][0] <= self._data._room_bytes)

    def order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A shuffled order: of all rows where they fit into memory, else of as many chunks at a
        time as do.
        """
        if self._is_small:
            return rng.permutation(len(self))
        chunks = rng.permutation(np.flatnonzero(self._rows_C))
        chunk_bytes = self._data.survey["nbytes"][0] / len(self._rows_C)
        held = max(1, int(0.7 * self._data._room_bytes / chunk_bytes))
        lanes = min(LANES, 1 << int(np.log2(min(held, len(chunks)))))
        dealt, left = [], [np.zeros(0, np.int64)] * lanes
        for start in range(0, len(chunks), held):
            for lane in range(lanes):  # every lanes-th row is of the same few chunks
                mine = chunks[start : start + held][lane::lanes]
                rows = [self._first_C[it] + np.arange(self._rows_C[it]) for it in mine]
                more = rng.permutation(np.concatenate([*rows, np.zeros(0, np.int64)]))
                left[lane] = np.concatenate([left[lane], more])
            even = min(map(len, left))
            dealt.append(np.stack([it[:even] for it in left], 1).ravel())
            left = [it[even:] for it in left]
        return np.concatenate([*dealt, rng.permutation(np.concatenate(left))])

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, Any]:
        """One row; nothing is drawn, as nothing is augmented."""
        return {name: values[0] for name, values in self.batch([index]).items()}

    def batch(self, indices: Sequence[int], key: int | None = None) -> Batch:
        """Some rows, with zeros where there is no constituent; nothing is drawn.

        ``features_BPF``, ``points_BPD``, ``vectors_BPD``, ``flat_BG``, ``pt_B`` and ``mass_B`` are
        float32, ``mask_BP`` bool, ``label_B`` int64, ``weight_B`` and ``factor_B``, by which it is
        multiplied in training, float64.
        """
        index_B = np.asarray(indices)
        chunk_B = np.searchsorted(self._first_C, index_B, side="right") - 1
        parts = []
        order = np.argsort(chunk_B, kind="stable")
        for chunk in np.unique(chunk_B):
            here = order[chunk_B[order] == chunk]
            parts.append(self._rows(int(chunk), index_B[here] - self._first_C[chunk]))
        back = np.argsort(order)
        return {name: np.concatenate([it[name] for it in parts])[back] for name in parts[0]}

    def _rows(self, chunk: int, rows: NDArray) -> Batch:
        found = self._data.decode(chunk)
        if len(self._splits) == 1:
            return padded(found[self._splits[0]], rows, self._data)
        sizes = np.cumsum([len(found[it].label_R) for it in self._splits])
        which = np.searchsorted(sizes, rows, side="right")
        starts = [0, *sizes[:-1]]
        batches = [
            padded(found[self._splits[w]], rows[[i]] - starts[w], self._data)
            for i, w in enumerate(which)
        ]
        return {name: np.concatenate([it[name] for it in batches]) for name in batches[0]}


def padded(columns: Columns, rows_B: NDArray, data: HEPData) -> Batch:
    """Rows as a batch, all of the same length."""
    batch = pad(columns, rows_B, data.recipe.length if data.recipe.particles else 0)
    label_B = columns.label_R[rows_B]
    factor_B = data.factors_KH[label_B, bins(columns.spectra_RD[rows_B], data.edges)]
    return batch | {
        "label_B": label_B,
        "weight_B": columns.weight_R[rows_B],
        "factor_B": factor_B if data.edges else np.ones(len(rows_B)),
        "pt_B": columns.pt_R[rows_B],
        "mass_B": columns.mass_R[rows_B],
    }


def pad(columns: Columns, rows_B: NDArray, length: int) -> Batch:
    """What a network takes of some rows."""
    number_B = columns.number_R[rows_B]
    first_B = (np.cumsum(columns.number_R) - columns.number_R)[rows_B]
    mask_BP = np.arange(length) < number_B[:, None]
    index_N = np.repeat(first_B - (np.cumsum(number_B) - number_B), number_B)
    index_N += np.arange(len(index_N))
    batch: Batch = {"mask_BP": mask_BP, "flat_BG": columns.flat_RG[rows_B]}
    for name in ("features_NF", "points_ND", "vectors_ND"):
        values = getattr(columns, name)
        batch[name.replace("_N", "_BP")] = filled = np.zeros(
            (*mask_BP.shape, values.shape[1]), "f4"
        )
        filled[mask_BP] = values[index_N]
    return batch
