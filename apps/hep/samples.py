"""Rows of a split in batches, all of one length; and an order of them that suits files.

Suffixes: R row, B row of a batch, P constituent, N constituent (all rows one after another), D
coordinate, F feature, G feature of a row, C chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apps.hep.rows import Columns
from apps.hep.survey import bins

if TYPE_CHECKING:
    from apps.hep.data import HEPData

LANES = 16  # with so many ranks, or a divisor of it, each reads its share of a streamed set only
Batch = dict[str, NDArray]


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
        return bool(self._data.survey["nbytes"][0] <= self._data.room_bytes)

    def order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A shuffled order: of all rows where they fit into memory, else of as many chunks at a
        time as do.
        """
        if self._is_small:
            return rng.permutation(len(self))
        chunks = rng.permutation(np.flatnonzero(self._rows_C))
        chunk_bytes = self._data.survey["nbytes"][0] / len(self._rows_C)
        held = max(1, int(0.7 * self._data.room_bytes / chunk_bytes))
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
