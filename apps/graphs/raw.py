"""What a reader finds in files, before anything is decided about it.

Suffixes: N node, E edge, F feature, S published split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apps.graphs.csr import Edges, Ints
from scadl_core.errors import DataError

POLICIES = ("error", "drop")
DENSE = 8  # ids below so many times their count are looked up in a list


class Ids:
    """The ids that people gave to nodes, in the order of the nodes.

    Args:
        id_N: Numbers or texts.
        where: The file, for messages.

    Raises:
        DataError: An id is there twice, or missing.
    """

    def __init__(self, id_N: Any, where: Path | str) -> None:
        self.index, self.where = pd.Index(id_N), where
        if self.index.hasnans:
            raise DataError(f"{where}: a node has no id; give each its own")
        if not self.index.is_unique:
            twice = self.index[self.index.duplicated()][0]
            raise DataError(f"{where}: the node id {twice} is there twice; keep one row of each")
        self._place = _places(self.index)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def values(self) -> NDArray[Any]:
        """Shape (N,)."""
        return self.index.to_numpy()

    def positions(self, ids: Any) -> NDArray[np.int64]:
        """The node of each id, -1 for an unknown one."""
        if self._place is not None and np.asarray(ids).dtype.kind in "iu":
            inside = (ids >= 0) & (ids < len(self._place))
            return np.where(inside, self._place[np.where(inside, ids, 0)], -1)
        if self.index.dtype.kind not in "iu" and pd.Index(ids).dtype.kind in "iu":
            ids = np.asarray(ids).astype(str)  # a table of texts, edges that look like numbers
        return self.index.get_indexer(pd.Index(ids)).astype(np.int64)

    def edges(
        self, source: Any, target: Any, weight: Any, where: Path | str, unknown: str
    ) -> Edges:
        """Edges between nodes from edges between ids.

        Args:
            source: Ids.
            target: Ids.
            weight: Numbers, or None.
            where: The file, for messages.
            unknown: What to do with an edge to an id that no node has: ``error`` or ``drop``.

        Raises:
            DataError: There is one, or a weight is no number.
        """
        source_E, target_E = self.positions(source), self.positions(target)
        known_E = (source_E >= 0) & (target_E >= 0)
        weight_E = None if weight is None else np.asarray(_numbers(weight), np.float32)
        if weight_E is not None and not np.isfinite(weight_E).all():
            raise DataError(f"{where}: an edge weight is missing; mend it, or data.weight=null")
        if known_E.all():
            return source_E, target_E, weight_E
        if unknown == "error":
            first = int(np.argmin(known_E))
            name = (source if source_E[first] < 0 else target)[first]
            raise DataError(
                f"{where}: {int((~known_E).sum())} edges lead to ids that no node of {self.where} "
                f"has, such as {name}; add them, or leave such edges out with data.unknown=drop"
            )
        kept = source_E[known_E], target_E[known_E]
        return *kept, None if weight_E is None else weight_E[known_E]


def _places(index: pd.Index) -> Ints | None:
    """The place of each id from 0 on, -1 of what is none; None where that would be too long."""
    if index.dtype.kind not in "iu" or not len(index):
        return None
    if index.min() < 0 or index.max() >= DENSE * len(index):
        return None
    place = np.full(int(index.max()) + 1, -1)
    place[index.to_numpy()] = np.arange(len(index))
    return place


def _numbers(values: Any) -> Any:
    return pd.to_numeric(pd.Series(values), errors="coerce")


@dataclass
class Raw:
    """A graph as it is in its files.

    Attributes:
        layout: The name of the format.
        files: What was read.
        ids: Of the nodes.
        stream: Gives the edges in chunks, each time anew.
        features: float of shape (N, F), NaN where missing, or a SciPy sparse matrix; None: none.
        feature_names: F names; none where the format has none.
        columns: Further columns of the node table by name, each of shape (N,).
        label: Shape (N,), or (N, L) of several; None: none.
        class_names: Of the classes 0.., where the format has them.
        splits: bool of shape (S, N) by name of the split; empty: none.
        directed: What the format says of its edges; None: nothing.
        notes: What a reader should know.
    """

    layout: str
    files: list[Path]
    ids: Ids
    stream: Callable[[], Iterable[Edges]]
    features: Any = None
    feature_names: list[str] = field(default_factory=list)
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    label: NDArray[Any] | None = None
    class_names: list[str] = field(default_factory=list)
    splits: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    directed: bool | None = None
    notes: list[str] = field(default_factory=list)


def once(source: Any, target: Any, weight: Any = None) -> Callable[[], Iterator[Edges]]:
    """A stream of one chunk of edges between nodes that are numbered already."""
    ends = (np.ascontiguousarray(it, np.int64) for it in (source, target))
    edges = (*ends, None if weight is None else np.asarray(weight, np.float32))
    return lambda: iter([edges])


def check_ends(edges: Iterable[Edges], num_nodes: int, where: Path | str) -> None:
    """Refuses edges to nodes beyond the last, in formats where ids are places."""
    for source_E, target_E, _ in edges:
        ends = [it for it in (source_E, target_E) if len(it)]
        if ends and not 0 <= min(map(np.min, ends)) <= max(map(np.max, ends)) < num_nodes:
            highest = max(map(np.max, ends))
            raise DataError(
                f"{where}: an edge leads to node {highest}, there are {num_nodes} (0.."
                f"{num_nodes - 1}); is the file whole?"
            )


def split_masks(num_nodes: int, **places: Any) -> dict[str, NDArray[np.bool_]]:
    """Masks of shape (1, N) from lists of nodes."""
    masks = {name: np.zeros((1, num_nodes), bool) for name in places}
    for name, mask_SN in masks.items():
        mask_SN[0, places[name]] = True
    return masks
