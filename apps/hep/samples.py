"""Rows of a split in batches, all of one length; and an order of them that suits files.

Suffixes: R row, B row of a batch, P constituent, N constituent (all rows one after another), D
coordinate, F feature, G feature of a row, C chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apps.hep.kernels import copy_lists
from apps.hep.recipe import Recipe
from apps.hep.rows import OF_CONSTITUENTS, Columns
from apps.hep.survey import bins

if TYPE_CHECKING:
    from apps.hep.data import HEPData

LANES = 16  # with so many ranks, or a divisor of it, each reads its share of a streamed set only
HELD = 0.3  # of the room, for the chunks in use; what is left of those before, and those that come
# next take as much
OF_ROWS = {"label_B": np.int64, "weight_B": np.float64, "pt_B": np.float32, "mass_B": np.float32}
Batch = dict[str, NDArray]


class HEPSamples:
    """The rows of one split, or of several, read in batches."""

    def __init__(self, data: HEPData, splits: Sequence[int]) -> None:
        self._data, self._splits = data, splits
        rows_C = data.survey["rows_CS"][:, splits].sum(1).astype(np.int64)
        self._first_C = np.cumsum(rows_C) - rows_C
        self._rows_C = rows_C
        self._after: dict[int, int] = {}  # by chunk, the one that is asked for when it is done

    def __len__(self) -> int:
        return int(self._rows_C.sum())

    @property
    def _is_small(self) -> bool:
        return bool(self._data.survey["nbytes"][0] <= self._data.room_bytes)

    def order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A shuffled order: of all rows where they fit into memory, else of as many chunks at a
        time as do.
        """
        self._data.ahead.forget()
        self._after = {}
        if self._is_small:
            return rng.permutation(len(self))
        chunks = rng.permutation(np.flatnonzero(self._rows_C))
        chunk_bytes = self._data.survey["nbytes"][0] / max(1, len(chunks))
        held = max(1, int(HELD * self._data.room_bytes / chunk_bytes))
        lanes = min(LANES, 1 << int(np.log2(max(1, min(held, len(chunks))))))
        dealt, left = [], [np.zeros(0, np.int64)] * lanes
        before: list[list[int]] = []
        for start in range(0, len(chunks), held):
            group = self._in_lanes(chunks[start : start + held], [len(it) for it in left])
            for now, coming in zip(before, group, strict=False):
                self._after |= dict(zip(now, coming, strict=False))
            before = group
            for lane, mine in enumerate(group):  # every lanes-th row is of the same few chunks
                rows = [self._first_C[it] + np.arange(self._rows_C[it]) for it in mine]
                more = rng.permutation(np.concatenate([*rows, np.zeros(0, np.int64)]))
                left[lane] = np.concatenate([left[lane], more])
            even = min(map(len, left))
            dealt.append(np.stack([it[:even] for it in left], 1).ravel())
            left = [it[even:] for it in left]
        return np.concatenate([*dealt, rng.permutation(np.concatenate(left))])

    def _in_lanes(self, chunks: NDArray[np.int64], lengths: list[int]) -> list[list[int]]:
        """Chunks by lane, each to the one with the fewest rows: what a lane has more than others
        waits for the next group, and its chunks take memory as long as it does.
        """
        lanes: list[list[int]] = [[] for _ in lengths]
        for chunk in sorted(chunks.tolist(), key=lambda it: -self._rows_C[it]):
            lane = lengths.index(min(lengths))
            lanes[lane].append(chunk)
            lengths[lane] += int(self._rows_C[chunk])
        return lanes

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, Any]:
        """One row; nothing is drawn, as nothing is augmented."""
        return {name: values[0] for name, values in self.batch([index]).items()}

    def batch(self, indices: Sequence[int], key: int | None = None) -> Batch:
        """Some rows, with zeros where there is no constituent; nothing is drawn.

        ``features_BPF``, ``points_BPD``, ``vectors_BPD``, ``flat_BG``, ``pt_B`` and ``mass_B`` are
        float32, ``mask_BP`` bool, ``label_B`` int64, ``weight_B`` and ``factor_B``, by which it is
        multiplied in training, float64.
        """
        index_B = np.asarray(indices, np.int64)
        chunk_B = np.searchsorted(self._first_C, index_B, side="right") - 1
        padded = Padded(self._data.recipe, len(index_B))
        about: Batch = {name: np.zeros(len(index_B), dtype) for name, dtype in OF_ROWS.items()}
        about["factor_B"] = np.ones(len(index_B))
        for chunk in np.unique(chunk_B):
            place_B = np.flatnonzero(chunk_B == chunk)
            rows_B = index_B[place_B] - self._first_C[chunk]
            found = self._data.decode(int(chunk), self._after.pop(int(chunk), None))
            for columns in (found[it] for it in self._splits):
                here_B = (rows_B >= 0) & (rows_B < len(columns.label_R))
                self._put(padded, about, place_B[here_B], columns, rows_B[here_B])
                rows_B -= len(columns.label_R)
        return padded.batch() | about

    def _put(
        self, padded: Padded, about: Batch, place_B: NDArray, columns: Columns, rows_B: NDArray
    ) -> None:
        padded.put(place_B, columns, rows_B)
        for name in OF_ROWS:
            about[name][place_B] = getattr(columns, name.replace("_B", "_R"))[rows_B]
        if edges := self._data.edges:
            bins_B = bins(columns.spectra_RD[rows_B], edges)
            about["factor_B"][place_B] = self._data.factors_KH[columns.label_R[rows_B], bins_B]


class Padded:
    """Rows as a network takes them, all of the same length, put in part by part, each once.

    Args:
        recipe: How long, and how many features.
        rows: How many.
    """

    def __init__(self, recipe: Recipe, rows: int) -> None:
        self._length = recipe.length if recipe.particles else 0
        self._number_B = np.zeros(rows, np.int64)
        widths = {"features_BPF": recipe.particles, "points_BPD": recipe.points}
        widths |= {"vectors_BPD": recipe.vectors}
        shapes = {name: (rows, self._length, len(of)) for name, of in widths.items()}
        shapes["flat_BG"] = (rows, len(recipe.flat))
        self._values = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}

    def put(self, place_B: NDArray, columns: Columns, rows_B: NDArray) -> None:
        """Takes over some rows, to some places."""
        number_B, first_B = columns.number_R[rows_B], columns.first_R[rows_B]
        self._number_B[place_B] = number_B
        self._values["flat_BG"][place_B] = columns.flat_RG[rows_B]
        for name in OF_CONSTITUENTS:
            out_BPF = self._values[name.replace("_N", "_BP")]
            out_MF = out_BPF.reshape(len(out_BPF) * self._length, out_BPF.shape[2])
            start_B, values_NF = place_B * self._length, getattr(columns, name)
            copy_lists(values_NF, first_B, number_B, start_B, out_MF, self._length)

    def batch(self) -> Batch:
        """All of it, and where there is a constituent."""
        return self._values | {"mask_BP": np.arange(self._length) < self._number_B[:, None]}
