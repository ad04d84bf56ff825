"""One pass over all rows: how many there are of each split and class, and what the inputs are like.

Suffixes: C chunk, S split, T table, K class, F input (of constituents, then of rows), H bin.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.hep.rows import BLOCK, UNLABELLED, Columns
from apps.hep.settings import number
from apps.hep.tables import Table
from scadl_core.errors import ConfigError
from scadl_core.workflow.statistics import Moments

SPLITS = ("train", "val", "test")
DEFAULT = {"by": "random", "event": [], "val": 0.15, "test": 0.2, "fold": 0}
SAMPLED = 400_000  # values of an input, at most, from which quantiles are taken
SHARED = 0.9  # of the constituents of a chunk: where fewer are used, those are copied
THINNER = 3  # odd: rows are often cut to 64 or 128, of which only the first would be seen
QUANTILES = (0.16, 0.5, 0.84)  # as weaver has them


def check_split(split: Mapping[str, Any]) -> None:
    """A ConfigError if ``data.split`` has unknown words, or shares that leave none to train on."""
    if split["by"] not in ("folder", "random", "event"):
        raise ConfigError(
            f"data.split.by={split['by']} is unknown; there is: event, folder, random"
        )
    if (split["by"] == "event") != bool(split["event"]):
        raise ConfigError("data.split.event names the branches of an event's number, for by=event")
    val, test = (number(split[it], f"data.split.{it}", 0) for it in ("val", "test"))
    if val + test >= 1:
        raise ConfigError(f"data.split: val={val} and test={test} must be shares")
    number(split["fold"], "data.split.fold", 0, whole=True)


def folder_of(table: Table) -> str | None:
    """The split that the file or its folder is named for, as ``val`` in ``val_5M/``."""
    path = table.path.resolve()
    for part in (path.stem, *reversed(path.parent.parts)):
        if found := next((it for it in SPLITS if part.lower().startswith(it)), None):
            return found
    return None


def split_rows(
    columns: Columns, table: Table, split: Mapping[str, Any], has_val: bool
) -> NDArray[np.int8]:
    """The split of each row: a function of its event, or of its file and place there.

    Rows of one event are never parted. ``fold`` turns the shares, so that in turn every row is in
    the test split.
    """
    mixed_R = columns.event_R.copy()
    if split["by"] != "event":  # an event's number is the same wherever its file is cut
        where = f"{table.path.parent.name}/{table.path.name}:{table.tree}"
        mixed_R ^= np.uint64(zlib.crc32(where.encode()) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed_R = (mixed_R ^ (mixed_R >> np.uint64(shift))) * np.uint64(factor)  # splitmix64
    u_R, folder = mixed_R / 2.0**64, folder_of(table)
    if split["by"] == "folder":
        is_val_R = (folder == "train") & (not has_val) & (u_R < split["val"])
        number = SPLITS.index(folder) if folder else UNLABELLED
        return np.where(is_val_R, 1, number).astype(np.int8)
    u_R = (u_R + split["fold"] * split["test"]) % 1
    borders = [split["test"], split["test"] + split["val"]]
    return np.array([2, 1, 0], np.int8)[np.digitize(u_R, borders)]


class Survey:
    """What is added up over chunks; :meth:`found` gives plain arrays, to be kept.

    Args:
        tables: How many there are.
        chunks: Rows of which table each has.
        classes: How many there are.
        edges: Bins of each variable of the spectrum that reweighting makes flat.
    """

    def __init__(
        self, tables: int, chunks: Sequence[int], classes: int, edges: Sequence[Sequence[float]]
    ) -> None:
        self._table_of, self._edges = chunks, edges
        self.rows_CS, self.classes_TK = np.zeros((len(chunks), 3)), np.zeros((tables, classes))
        self.dropped_T3 = np.zeros((tables, 3))  # rows, not selected, without a label
        self.weights_SK4 = np.zeros((3, classes, 4))  # rows, sum, sum of sizes, negative rows
        self.spectrum_KH = np.zeros((classes, math.prod(len(it) - 1 for it in edges)))
        self.nbytes = np.zeros(1)
        self._moments: dict[str, Moments] = {}
        self._lowest: dict[str, NDArray] = {}
        self._sampled: dict[str, list[NDArray]] = {"particles": [], "flat": []}
        self._steps = {"particles": 1, "flat": 1}

    def add(self, chunk: int, columns: Columns, split_R: NDArray[np.int8]) -> list[Columns]:
        """Takes a chunk into account; gives its rows of each split, without those that fall out."""
        table, label_R = self._table_of[chunk], columns.label_R
        fallen = (~columns.passed_R, columns.passed_R & (label_R < 0))
        self.dropped_T3[table] += [len(label_R), fallen[0].sum(), fallen[1].sum()]
        found = taken(columns, split_R)
        for split, part in enumerate(found):
            self.rows_CS[chunk, split] = len(part.label_R)
            for kind, weight_R in enumerate(_counted(part.weight_R)):
                count_K = np.bincount(part.label_R, weight_R, minlength=self.classes_TK.shape[1])
                self.weights_SK4[split, :, kind] += count_K
                self.classes_TK[table] += count_K * (kind == 0)
        self.nbytes += sum(part.nbytes for part in found)
        train = found[0].compact()
        self._add_inputs("particles", train.features_NF)
        self._add_inputs("flat", train.flat_RG)
        bins_R = bins(train.spectra_RD, self._edges)
        np.add.at(self.spectrum_KH, (train.label_R, bins_R), train.weight_R)
        return found

    def _add_inputs(self, kind: str, values_NF: NDArray[np.float32]) -> None:
        if not values_NF.size:
            return
        blocks = (values_NF[at : at + BLOCK].T for at in range(0, len(values_NF), BLOCK))
        more = reduce(add, (Moments.of(np.ascontiguousarray(it)) for it in blocks))
        low_F = np.fmin.reduce(values_NF, axis=0, initial=np.inf)
        at_low_F = (values_NF == low_F).sum(0)
        if kind not in self._moments:
            self._moments[kind], self._lowest[kind] = more, np.stack([low_F, at_low_F])
        else:
            before, count = self._lowest[kind]
            low = np.minimum(before, low_F)
            self._moments[kind] += more
            self._lowest[kind] = np.stack(
                [low, np.where(before == low, count, 0) + np.where(low_F == low, at_low_F, 0)]
            )
        self._sample(kind, values_NF)

    def _sample(self, kind: str, values_NF: NDArray[np.float32]) -> None:
        """Keeps every n-th value, and fewer where they become too many."""
        parts = self._sampled[kind]
        parts.append(values_NF[:: self._steps[kind]].copy())  # a view would keep all that was read
        while sum(map(len, parts)) > SAMPLED:
            self._steps[kind] *= THINNER
            parts[:] = [it[::THINNER].copy() for it in parts]

    def found(self) -> dict[str, NDArray]:
        """All of it, inputs of constituents before those of rows."""
        names = ("rows_CS", "classes_TK", "dropped_T3", "weights_SK4", "spectrum_KH", "nbytes")
        kinds = [it for it in self._sampled if it in self._moments]
        parts: dict[str, list[NDArray]] = {}
        for kind in kinds:
            sample = np.concatenate(self._sampled[kind])
            empty_F = ~np.isfinite(sample).any(0)
            sample[:, empty_F] = 0
            for q, values in zip(QUANTILES, np.nanquantile(sample, QUANTILES, axis=0), strict=True):
                parts.setdefault(f"q{q}_F", []).append(values)
            for name in ("count_C", "mean_C", "std_C", "min_C", "max_C", "missing_C"):
                parts.setdefault(f"{name[:-1]}F", []).append(getattr(self._moments[kind], name))
            parts.setdefault("at_lowest_F", []).append(self._lowest[kind][1])
        together = {name: np.concatenate(values) for name, values in parts.items()}
        return {name: getattr(self, name) for name in names} | together


def _counted(weight_R: NDArray[np.float64]) -> Iterable[NDArray[np.float64]]:
    return np.ones_like(weight_R), weight_R, np.abs(weight_R), (weight_R < 0).astype(np.float64)


def taken(columns: Columns, split_R: NDArray[np.int8]) -> list[Columns]:
    """The rows of each split that pass the selection and have a label.

    They share their constituents, unless so many fall out that these would hold memory for nothing.
    """
    usable_R = columns.passed_R & (columns.label_R >= 0)
    found = [columns[usable_R & (split_R == number)] for number in range(len(SPLITS))]
    used = sum(int(it.number_R.sum()) for it in found)
    is_shared = used >= SHARED * len(columns.features_NF)
    return found if is_shared else [it.compact() for it in found]


def bins(spectra_RD: NDArray[np.float32], edges: Sequence[Sequence[float]]) -> NDArray[np.int64]:
    """The bin of each row, those beyond the last edges in the first and last."""
    number_R = np.zeros(len(spectra_RD), np.int64)
    for values_R, edge in zip(spectra_RD.T, edges, strict=True):
        inside_R = np.clip(np.digitize(values_R, edge) - 1, 0, len(edge) - 2)
        number_R = number_R * (len(edge) - 1) + inside_R
    return number_R
