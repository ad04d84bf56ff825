"""Rows of a file, decoded: what the formulas of a recipe give for them.

Suffixes: R row (jet or event), N constituent (all rows one after another), F feature, G feature of
a row, D coordinate, K class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from apps.hep.jagged import Jagged, awkward, compact
from apps.hep.kernels import copy_lists, interleave
from apps.hep.recipe import Recipe
from apps.hep.tables import Table, naming
from apps.hep.unroll import Unrolled
from scadl_core.errors import DataError

UNLABELLED = -1
# Constituents that are turned from columns into rows while in the processor's cache, and what lies
# between columns there: a power of two apart, all would want the same few lines of it.
BLOCK, APART = 4096, 16
OF_CONSTITUENTS = ("features_NF", "points_ND", "vectors_ND")


@dataclass
class Columns:
    """Some rows of a file, decoded; all of them, or those that can be trained on."""

    number_R: NDArray[np.int64]  # of constituents
    first_R: NDArray[np.int64]  # where they begin; there may be others between them
    features_NF: NDArray[np.float32]
    points_ND: NDArray[np.float32]
    vectors_ND: NDArray[np.float32]
    flat_RG: NDArray[np.float32]
    label_R: NDArray[np.int64]
    weight_R: NDArray[np.float64]
    pt_R: NDArray[np.float32]
    mass_R: NDArray[np.float32]
    spectra_RD: NDArray[np.float32]  # that reweighting makes flat
    source_R: NDArray[np.int64]  # row of the file, before unrolling
    event_R: NDArray[np.uint64]  # what a split goes by
    passed_R: NDArray[np.bool_]  # the selection

    def __getitem__(self, chosen_R: NDArray | slice) -> Columns:
        """Those rows, by a mask or by ascending numbers; constituents stay where they are."""
        parts = {it.name: getattr(self, it.name) for it in fields(self)}
        rows = {name: it[chosen_R] for name, it in parts.items() if name not in OF_CONSTITUENTS}
        return Columns(**parts | rows)

    def compact(self) -> Columns:
        """The same without constituents of none of the rows."""
        total = self.number_R.sum()
        if total == len(self.features_NF):
            return self
        first_R = np.cumsum(self.number_R) - self.number_R
        found: dict[str, Any] = {"first_R": first_R}
        for name in OF_CONSTITUENTS:
            values = getattr(self, name)
            found[name] = np.empty((total, values.shape[1]), values.dtype)
            copy_lists(values, self.first_R, self.number_R, first_R, found[name])
        return replace(self, **found)

    @property
    def nbytes(self) -> int:
        """Memory, in bytes; of constituents that other rows share, what its own rows take."""
        sizes = {it.name: getattr(self, it.name).nbytes for it in fields(self)}
        shared = sum(sizes.pop(name) for name in OF_CONSTITUENTS)
        own = int(self.number_R.sum()) / max(1, len(self.features_NF))
        return sum(sizes.values()) + int(own * shared)


class Rows:
    """The values of formulas in some rows of a table.

    Args:
        recipe: What is computed.
        table: Where from.
        start: Its first row.
        stop: The row after its last.
        texts: Formulas beside those of the recipe.
    """

    def __init__(
        self, recipe: Recipe, table: Table, start: int, stop: int, texts: Iterable[str] = ()
    ) -> None:
        names = recipe.branches(table, texts)
        branches = table.read(names, start, stop)
        self._recipe, self._table = recipe, table
        self._known, self._found = dict[str, Any](), dict[str, Any]()
        self._places = {"file": str(table.path), "tree": table.tree}
        unrolled = Unrolled(branches.__getitem__, names, recipe.rows or "", recipe.links)
        self._branch = unrolled if recipe.rows else branches.__getitem__
        self._first, events = start, np.arange(stop - start)
        with naming(table.place):
            self.event_R = unrolled.event_R if recipe.rows else events
        self.count = len(self.event_R)

    def _lookup(self, name: str) -> Any:
        if name not in self._known:
            if name in self._recipe.derived:
                text = self._recipe.derived[name]
                self._known[name] = self._value(text, f"data.derived.{name}")
            else:
                self._known[name] = compact(self._branch(name))
        return self._known[name]

    def _value(self, text: str, key: str) -> Any:
        return self._recipe.formula(text, key)(self._lookup, self._places)

    def value(self, text: str) -> Any:
        """What a formula gives, of NumPy or awkward: a value or a list a row; a DataError if it
        cannot be computed.
        """
        return awkward(self._computed(text))

    def _computed(self, text: str) -> Any:
        if text not in self._found:
            with naming(self._table.place):
                found = self._value(text, self._recipe.key(text))
            whole = found if getattr(found, "ndim", 0) else np.full(self.count, found)
            self._found[text] = whole
        return self._found[text]

    def flat(self, text: str) -> NDArray:
        """The same, where there is one number a row."""
        found, key = self._computed(text), self._recipe.key(text)
        if found.ndim > 1:
            raise DataError(
                f"{self._table.place}: {key}: {text} has a list a row where one number is needed; "
                f"take an entry ({text}[0]) or a reduction (max({text}), num({text}))"
            )
        return self._numbers(found, text)

    def _numbers(self, found: Any, text: str) -> NDArray:
        try:
            values = np.asarray(ak.to_numpy(found)) if isinstance(found, ak.Array) else found
        except (TypeError, ValueError):  # of records, or of several kinds
            raise DataError(
                f"{self._table.place}: {text} is {found.type.content}, no numbers"
            ) from None
        if values.dtype.kind not in "biuf":
            raise DataError(f"{self._table.place}: {text} is text, not numbers")
        return values

    def columns(self) -> Columns:
        """All rows, decoded."""
        recipe, nan_R = self._recipe, np.full(self.count, np.nan, np.float32)
        number_R = self._numbers_of_constituents()
        chosen_N, *where = self._constituents(number_R)
        groups = [self._stacked(texts, chosen_N, number_R)
                  for texts in (recipe.particles, recipe.points, recipe.vectors)]  # fmt: skip
        single = [
            self.flat(it).astype(np.float32) if it else nan_R for it in (recipe.pt, recipe.mass)
        ]
        passed_R = self.flat(recipe.selection) if recipe.selection else np.ones(self.count)
        return Columns(
            *where,
            *groups,
            self._cleaned(self._table_of(recipe.flat)),
            self._label(),
            self._weight(),
            *single,
            self._table_of(recipe.spectra),
            self._first + self.event_R,
            self._event(),
            np.nan_to_num(passed_R).astype(bool),
        )

    def _table_of(self, texts: list[str]) -> NDArray[np.float32]:
        columns = [self.flat(text).astype(np.float32) for text in texts]
        return np.stack(columns, 1) if columns else np.zeros((self.count, 0), np.float32)

    def _cleaned(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        for it in self._recipe.sentinels:
            values[values == np.float32(it)] = np.nan
        values[np.isinf(values)] = np.nan
        return values

    def _numbers_of_constituents(self) -> NDArray[np.int64]:
        recipe = self._recipe
        lists = {text: it for text in recipe.particles if (it := self._computed(text)).ndim > 1}
        if recipe.particles and not lists:
            text = recipe.particles[0]
            raise DataError(f"{self._table.place}: data.inputs.particles: {text} has one value a "
                            "row, no list: move it to data.inputs.flat")  # fmt: skip
        if not lists:
            return np.zeros(self.count, np.int64)
        first, *others = lists
        number_R = _lengths(lists[first])
        for text in others:
            if not np.array_equal(_lengths(lists[text]), number_R):
                raise DataError(f"{self._table.place}: {first} and {text} have other numbers of "
                                "constituents in the same row")  # fmt: skip
        return number_R

    def _constituents(self, number_R: NDArray[np.int64]) -> tuple[Any, NDArray, NDArray]:
        """Which are taken, of all one after another (None: all); how many of each row are used,
        and where they begin.
        """
        length, kept_R = self._recipe.length, np.minimum(number_R, self._recipe.length)
        first_R = np.cumsum(number_R) - number_R
        if self._recipe.order and number_R.max(initial=0) > length:
            key_N = self._flattened(self._recipe.order, number_R)
            if not _fall(key_N, first_R):  # largest first, as files often have them
                row_N = np.repeat(np.arange(self.count), number_R)
                order_N = np.lexsort((-key_N, row_N))
                place_N = np.arange(len(row_N)) - np.repeat(first_R, number_R)
                return order_N[place_N < length], kept_R, np.cumsum(kept_R) - kept_R
        return None, kept_R, first_R

    def _flattened(self, text: str, number_R: NDArray[np.int64]) -> NDArray:
        """The values of constituents, one after another."""
        found = self._computed(text)
        if found.ndim == 1:  # the row's own
            return np.repeat(self._numbers(found, text), number_R)
        if found.ndim > 2:
            raise DataError(
                f"{self._table.place}: {text} has lists of lists; take an entry or a sum"
            )
        if not np.array_equal(_lengths(found), number_R):
            raise DataError(f"{self._table.place}: {text} has another number of constituents than "
                            f"{self._recipe.particles[0]} in the same row")  # fmt: skip
        content = found.content_N if isinstance(found, Jagged) else ak.flatten(found, axis=1)
        return self._numbers(content, text)

    def _stacked(
        self, texts: list[str], chosen_N: NDArray[np.int64] | None, number_R: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        columns = [self._flattened(text, number_R) for text in texts]
        total = number_R.sum() if chosen_N is None else len(chosen_N)
        stacked_NF = np.empty((total, len(texts)), np.float32)
        wide_FN = np.empty((len(texts), BLOCK + APART), np.float32)
        for start in range(0, total, BLOCK):
            block = slice(start, min(start + BLOCK, total))
            block_FN = wide_FN[:, : block.stop - start]
            for values_N, column in zip(block_FN, columns, strict=True):
                values_N[:] = column[block if chosen_N is None else chosen_N[block]]
            for it in self._recipe.sentinels:
                block_FN[block_FN == np.float32(it)] = np.nan
            interleave(block_FN, stacked_NF[block])
        return stacked_NF

    def _label(self) -> NDArray[np.int64]:
        recipe = self._recipe
        if not recipe.labels:
            return np.full(self.count, UNLABELLED)
        values = [self.flat(text).astype(np.float64) for text in recipe.labels]
        if isinstance(recipe.target, str):
            return self._numbered(np.where(np.isnan(values[0]), UNLABELLED, values[0]))
        true_KR = np.nan_to_num(np.stack(values)) != 0
        total_R = true_KR.sum(0)
        if (total_R > 1).any():
            row = int(np.argmax(total_R > 1))
            names = " and ".join(np.array(recipe.classes)[true_KR[:, row]])
            raise DataError(
                f"{self._table.place}: row {self._first + self.event_R[row]} is labelled {names}; "
                "data.target must be true for one class a row"
            )
        return np.where(total_R == 1, true_KR.argmax(0), UNLABELLED)

    def _numbered(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        known = range(len(self._recipe.classes))
        if wrong := [f"{it:g}" for it in np.unique(values) if it >= 0 and it not in known]:
            raise DataError(
                f"{self._table.place}: data.target={self._recipe.target} has the values "
                f"{', '.join(wrong[:5])}, but data.classes are numbers {known[0]} to {known[-1]} "
                f"({', '.join(self._recipe.classes)}); write a list of conditions, one a class"
            )
        return np.where(values < 0, UNLABELLED, values).astype(np.int64)

    def _weight(self) -> NDArray[np.float64]:
        text = self._recipe.weight
        if not text or self._recipe.lacking(self._table, [text]):
            return np.ones(self.count)
        weight_R = self.flat(text).astype(np.float64)
        if not np.isfinite(weight_R).all():
            row = int(np.argmin(np.isfinite(weight_R)))
            raise DataError(
                f"{self._table.place}: data.weight={text} is {weight_R[row]} in row "
                f"{self._first + self.event_R[row]}; every weight has to be a number"
            )
        return weight_R

    def _event(self) -> NDArray[np.uint64]:
        """Numbers that are the same for rows that must not be parted."""
        if not self._recipe.event:
            return (self._first + self.event_R).astype(np.uint64)
        mixed_R = np.zeros(self.count, np.uint64)
        for text in self._recipe.event:
            value_R = self.flat(text)
            if not np.isfinite(value_R).all():
                raise DataError(f"{self._table.place}: data.split.event: {text} is not a number in "
                                "some rows; every event needs one")  # fmt: skip
            with np.errstate(invalid="ignore"):  # of negative fractions, on some processors
                mixed_R = mixed_R * np.uint64(0x9E3779B97F4A7C15) + value_R.astype(np.uint64)
        return mixed_R


def _lengths(lists: Any) -> NDArray[np.int64]:
    if isinstance(lists, Jagged):
        return lists.number_R
    return np.asarray(ak.num(lists, axis=1), np.int64)


def _fall(key_N: NDArray, first_R: NDArray[np.int64]) -> bool:
    """Whether the values of each row fall."""
    rise_N = key_N[1:] > key_N[:-1]
    rise_N[first_R[(first_R > 0) & (first_R < len(key_N))] - 1] = False
    return not rise_N.any()
