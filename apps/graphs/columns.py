"""Columns of a table of nodes, in memory or in files, and matrices of features made of them.

Suffixes: R row of a block, F feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

NUMBERS = "iufb"
BLOCK = 65536  # rows that are worked on at a time
Frames = Callable[[], Iterator[pd.DataFrame]]  # a table in pieces, each time anew


class Matrix:
    """Features of which a block of rows is made when it is asked for: ``matrix[rows]``, float32.

    Args:
        read: Gives the rows that a slice or an array of numbers names.
        shape: Of the whole.
        fill_F: What stands for values that are not finite; None: they stay.
    """

    def __init__(
        self, read: Callable[[Any], NDArray[Any]], shape: tuple[int, int], fill_F: Any = None
    ) -> None:
        self.read, self.shape, self.fill_F = read, shape, fill_F

    @classmethod
    def of(cls, columns: Sequence[NDArray[Any]]) -> Matrix:
        """Columns side by side."""
        return cls(
            lambda rows: np.stack([it[rows] for it in columns], 1), (len(columns[0]), len(columns))
        )

    def filled(self, fill_F: NDArray[np.float32]) -> Matrix:
        """The same, without gaps."""
        return Matrix(self.read, self.shape, fill_F)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        block_RF = np.asarray(self.read(rows), np.float32)
        if self.fill_F is None:
            return block_RF
        return np.where(np.isfinite(block_RF), block_RF, self.fill_F)


def columns_of(frames: Frames, folder: Path | None) -> dict[str, NDArray[Any]]:
    """The columns of a table by name.

    Args:
        frames: The table, read twice if there is a folder: for the types, and for the values.
        folder: Where columns of numbers lie as files, mapped into memory; None: in memory.
    """
    if folder is None:
        frame = pd.concat(frames(), ignore_index=True)
        return {name: frame[name].to_numpy() for name in frame}
    kinds, rows = _kinds(frames)
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for number, (name, kind) in enumerate(kinds.items()):
        found[name] = np.empty(rows, object)
        if kind.kind in NUMBERS and rows:
            path = folder / f"column-{number}.npy"
            found[name] = np.lib.format.open_memmap(path, "w+", kind, (rows,))
    at = 0
    for frame in frames():
        for name in frame:
            found[name][at : at + len(frame)] = frame[name].to_numpy()
        at += len(frame)
    return found


def _kinds(frames: Frames) -> tuple[dict[str, np.dtype], int]:
    kinds: dict[str, np.dtype] = {}
    rows = 0
    for frame in frames():
        rows += len(frame)
        for name in frame:
            kind = frame[name].to_numpy().dtype
            before = kinds.get(name, kind)
            same = {kind.kind, before.kind} <= set(NUMBERS)
            kinds[name] = np.promote_types(kind, before) if same else np.dtype(object)
    return kinds, rows
