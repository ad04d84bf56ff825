"""A graph as compressed sparse rows, built from a stream of edges in bounded memory.

Suffixes: N node, E edge, R row of the part at hand, B bucket of rows, M message (an edge one way).
A row holds the nodes from which messages come: row i lists j where there is an edge j -> i.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.cpu.chunks import Kernel
from scadl_core.compress.threads import get_num_threads, run
from scadl_core.errors import DataError

Ints = NDArray[np.int64]
Edges = tuple[Ints, Ints, NDArray[np.float32] | None]  # sources, targets, weights
MOST_NODES = 1 << 30  # a row, a column and a direction share 63 bits
SMALL = 1 << 16  # nodes of a graph that is sorted in one piece
COLUMN = (1 << 32) - 1
DIGIT = 12  # bits, at most, by which keys are sorted at a time
ENDINGS = (".int64", ".int32", ".float32")  # of files that hold the bare values


@dataclass(frozen=True)
class CSR:
    """Rows in order of nodes, columns of a row ascending, no edge twice.

    Attributes:
        indptr: int64 of shape (N + 1,): where each row begins.
        indices: int32 of shape (M,): columns.
        weight: float32 of shape (M,); None: all 1.
        counts: Edges of the stream: ``read``; of these ``loops``; and ``distinct``, without those
            left out.
    """

    indptr: Ints
    indices: NDArray[np.int32]
    weight: NDArray[np.float32] | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """How many rows there are."""
        return len(self.indptr) - 1

    @cached_property
    def degree_N(self) -> Ints:
        """The length of each row."""
        return np.diff(self.indptr)

    @cached_property
    def strength_N(self) -> NDArray[np.float64]:
        """The sum of the weights of each row."""
        if self.weight is None:
            return self.degree_N.astype(np.float64)
        ends = np.concatenate([[0.0], np.cumsum(self.weight, dtype=np.float64)])
        return ends[self.indptr[1:]] - ends[self.indptr[:-1]]

    def rows_of_messages(self) -> NDArray[np.int32]:
        """The row of every entry, int32 of shape (M,)."""
        return np.repeat(np.arange(self.num_nodes, dtype=np.int32), self.degree_N)

    def subgraph(self, nodes_R: Ints, columns: Ints | None = None) -> tuple[Ints, Ints, Ints]:
        """Entries of some rows whose columns are among ``columns``, by default the same nodes.

        Returns:
            Of each entry its row and its column, as places in the two lists, and its place in
            ``indices``; int64.
        """
        place_N = np.full(self.num_nodes, -1)
        columns = nodes_R if columns is None else columns
        place_N[columns] = np.arange(len(columns))
        length_R = self.degree_N[nodes_R]
        entry_M = np.arange(length_R.sum()) + np.repeat(
            self.indptr[nodes_R] - np.cumsum(length_R) + length_R, length_R
        )
        column_M = place_N[self.indices[entry_M]]
        inside_M = column_M >= 0
        row_M = np.repeat(np.arange(len(nodes_R)), length_R)
        return row_M[inside_M], column_M[inside_M], entry_M[inside_M]

    @classmethod
    def load(cls, folder: Path) -> CSR:
        """Maps what :func:`build` wrote to a folder into memory, to be read as needed."""
        found = {path.stem: _mapped(path) for path in folder.iterdir() if path.suffix in ENDINGS}
        return cls(found["indptr"], found["indices"], found.get("weight"))


def build(
    stream: Iterable[Edges],
    num_nodes: int,
    directed: bool = False,
    loops: bool = False,
    folder: Path | None = None,
) -> CSR:
    """Sorts a stream of edges into rows.

    Messages go to buckets of neighbouring rows, and each bucket is sorted by itself: an external
    radix sort, whose memory is one chunk of the stream and a bucket a thread. Weights of an edge
    that is there several times are summed; of its two directions, the larger counts for both.

    Args:
        stream: Chunks of edges between nodes 0..N-1, all with weights or none.
        num_nodes: N.
        directed: Whether messages go from source to target only, else both ways.
        loops: Whether edges from a node to itself are kept.
        folder: Where buckets and the result lie as files; None: in memory.

    Raises:
        DataError: More nodes than 2^30, or an edge to none of them.
    """
    if num_nodes > MOST_NODES:
        raise DataError(f"{num_nodes} nodes: at most {MOST_NODES} can be stored")
    counts = Counter(read=0, loops=0, distinct=0)
    buckets = _Buckets(num_nodes, not directed, loops)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            buckets.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        for source_E, target_E, weight_E in stream:
            counts["read"] += len(source_E)
            counts["loops"] += int(np.count_nonzero(source_E == target_E))
            buckets.add(source_E, target_E, weight_E)
        parts = _Parts(folder)
        for first in range(0, buckets.count, get_num_threads()):
            for result in run(buckets.merged, range(first, first + get_num_threads())):
                counts["distinct"] += parts.add(*result)
    degree_N = np.concatenate(parts.degrees)[:num_nodes]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(degree_N)])
    if folder is None:
        weight = np.concatenate(parts.weights) if parts.weights else None
        return CSR(indptr, np.concatenate(parts.columns), weight, dict(counts))
    indptr.tofile(folder / "indptr.int64")
    return replace(CSR.load(folder), counts=dict(counts))


class _Buckets:
    """Messages by range of rows, in memory or in a file a range."""

    def __init__(self, num_nodes: int, both: bool, loops: bool) -> None:
        self.both, self.loops, self.num_nodes = both, loops, num_nodes
        self.folder: Path | None = None
        self.shift = max(0, (num_nodes - 1).bit_length() - 8) if num_nodes > SMALL else 32
        self.count = -(-num_nodes // (1 << self.shift)) or 1
        self.rows = min(num_nodes, 1 << self.shift)
        node_bits = max(1, (num_nodes - 1).bit_length())
        # Of a key: direction and column, and of the row what the rows of a bucket do not share.
        self.digits = [*_digits(0, 1 + node_bits), *_digits(33, min(self.shift, node_bits))]
        self.kept: dict[str, list[NDArray[Any]]] = defaultdict(list)

    def add(self, *edges: Any) -> None:
        """Scatters a chunk of edges, a piece a thread."""
        ends = np.linspace(0, len(edges[0]), get_num_threads() + 1).astype(int)
        places = [slice(*pair) for pair in pairwise(ends)]
        pieces = [[it if it is None else it[place] for it in edges] for place in places]
        for keys_M, weight_M, ends_B in run(lambda piece: self._scattered(*piece), pieces):
            for bucket, (start, end) in enumerate(pairwise([0, *ends_B[:-1]])):
                self._keep(f"{bucket}.int64", keys_M[start:end])
                if weight_M is not None:
                    self._keep(f"{bucket}.float32", weight_M[start:end])

    def _scattered(self, source_E: Ints, target_E: Ints, weight_E: Any) -> tuple[Any, Any, Ints]:
        keys_M = np.empty(len(source_E) * (1 + self.both), np.uint64)
        entry_M = np.empty(len(keys_M) if weight_E is not None else 0, np.int64)
        ends_B = np.zeros(self.count + 1, np.int64)
        highest = _scatter(
            source_E, target_E, self.shift, self.both, self.loops, ends_B, keys_M, entry_M
        )
        if len(source_E) and highest >= self.num_nodes:
            raise DataError(f"an edge leads to a node that is not one of 0..{self.num_nodes - 1}")
        used = ends_B[self.count - 1]
        weight_M = None if weight_E is None else weight_E[entry_M[:used]].astype(np.float32)
        return keys_M.view(np.int64), weight_M, ends_B

    def _keep(self, name: str, values: NDArray[Any]) -> None:
        if self.folder is None:
            self.kept[name].append(values)
        else:
            with (self.folder / name).open("ab") as file:
                values.tofile(file)

    def _taken(self, name: str) -> list[NDArray[Any]]:
        if self.folder is None:
            return self.kept.pop(name, [])
        path = self.folder / name
        return [np.fromfile(path, name.partition(".")[2])] if path.exists() else []

    def merged(self, bucket: int) -> tuple[Ints, NDArray[Any], NDArray[Any] | None, int]:
        """Lengths of the rows of a bucket, its columns and weights, and its distinct edges."""
        keys, weights = self._taken(f"{bucket}.int64"), self._taken(f"{bucket}.float32")
        weight_M = None
        if weights:
            keys_M, weight_M = np.concatenate(keys), np.concatenate(weights)
            order_M = np.argsort(keys_M, kind="stable")
            keys_M, weight_M = keys_M[order_M], weight_M[order_M]
        else:
            keys_M = _sorted(keys, self.digits)
        degree_R = np.zeros(self.rows if bucket < self.count else 0, np.int64)
        column_M = np.empty(len(keys_M), np.int32)
        given_M = np.empty(0, np.float32) if weight_M is None else weight_M
        kept, distinct = _merge(keys_M, given_M, bucket << self.shift, degree_R, column_M)
        return (
            degree_R,
            column_M[:kept],
            weight_M if weight_M is None else weight_M[:kept],
            distinct,
        )


class _Parts:
    """The result, part by part."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.degrees: list[Ints] = []
        self.columns: list[NDArray[np.int32]] = []
        self.weights: list[NDArray[np.float32]] = []
        if folder is not None:
            for ending in ENDINGS:
                for path in folder.glob(f"*{ending}"):
                    path.unlink()
            (folder / "indices.int32").touch()

    def add(self, degree_R: Ints, column_M: Any, weight_M: Any, distinct: int) -> int:
        self.degrees.append(degree_R)
        if self.folder is None:
            self.columns.append(column_M)
            self.weights += [weight_M] * (weight_M is not None)
        else:
            for name, values in (("indices.int32", column_M), ("weight.float32", weight_M)):
                if values is not None:
                    with (self.folder / name).open("ab") as file:
                        values.tofile(file)
        return distinct


def _digits(start: int, bits: int) -> list[tuple[int, int]]:
    """Where each digit begins, and its bits."""
    count = -(-bits // DIGIT)
    return [(start + n * bits // count, (n + 1) * bits // count - n * bits // count)
            for n in range(count)]  # fmt: skip


def _mapped(path: Path) -> NDArray[Any]:
    dtype = path.suffix[1:]
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def _scatter_messages(
    source_E: Any, target_E: Any, shift: Any, both: Any, loops: Any, ends_B: Any, keys_M: Any,
    entry_M: Any,
) -> int:  # fmt: skip
    """Keys, row | column | direction, in order of buckets, which end at ``ends_B``; gives the
    highest node, a negative one as a number beyond all.
    """
    one, by, highest = np.uint64(1), np.uint64(shift), np.uint64(0)
    for e in range(len(source_E)):
        highest = max(highest, np.uint64(source_E[e]), np.uint64(target_E[e]))
    if highest >> by >= len(ends_B) - 1:
        return highest
    for e in range(len(source_E)):
        source, target = np.uint64(source_E[e]), np.uint64(target_E[e])
        ends_B[(target >> by) + one] += source != target or loops
        ends_B[(source >> by) + one] += both and source != target
    for b in range(1, len(ends_B)):
        ends_B[b] += ends_B[b - 1]
    for e in range(len(source_E)):
        source, target = np.uint64(source_E[e]), np.uint64(target_E[e])
        if source != target or loops:
            place = ends_B[target >> by]
            ends_B[target >> by] += 1
            keys_M[place] = (target << np.uint64(33)) | (source << one)
            if len(entry_M):
                entry_M[place] = e
            if both and source != target:
                place = ends_B[source >> by]
                ends_B[source >> by] += 1
                keys_M[place] = (source << np.uint64(33)) | (target << one) | one
                if len(entry_M):
                    entry_M[place] = e
    return highest


def _sorted(keys: list[Ints], digits: list[tuple[int, int]]) -> Ints:
    """Keys in order, least digits first: each pass keeps the order of the one before. A bucket lies
    in the processor's cache, where this takes 6 ns a key, and NumPy's sort 11.
    """
    spare = [np.empty(sum(map(len, keys)), np.int64) for _ in range(2)]
    for turn, (first, bits) in enumerate(digits):
        place_D = np.zeros((1 << bits) + 1, np.int64)
        for keys_M in keys:
            _count(keys_M, first, place_D)
        np.cumsum(place_D, out=place_D)
        for keys_M in keys:
            _move(keys_M, first, place_D, spare[turn % 2])
        keys = [spare[turn % 2]]
    return keys[0]


def _count_digits(keys_M: Any, first: Any, place_D: Any) -> None:
    """Counts each digit behind its own place, so that the sums are where it begins."""
    by, one, mask = np.uint64(first), np.uint64(1), np.uint64(len(place_D) - 2)
    for m in range(len(keys_M)):
        place_D[((np.uint64(keys_M[m]) >> by) & mask) + one] += 1


def _move_by_digit(keys_M: Any, first: Any, place_D: Any, sorted_M: Any) -> None:
    by, mask = np.uint64(first), np.uint64(len(place_D) - 2)
    for m in range(len(keys_M)):
        digit = (np.uint64(keys_M[m]) >> by) & mask
        sorted_M[place_D[digit]] = keys_M[m]
        place_D[digit] += 1


def _merge_messages(
    keys_M: Any, weight_M: Any, first: Any, degree_R: Any, column_M: Any
) -> tuple[int, int]:
    """Writes each message of sorted keys once, and counts them and the distinct edges; weights are
    summed and compared where they stand.
    """
    kept, distinct, total, best = 0, 0, 0.0, 0.0
    for m in range(len(keys_M)):
        key, before = keys_M[m], keys_M[m - 1] if m else np.int64(-2)
        distinct += key != before and not key & 1
        if key >> 1 != before >> 1:
            column_M[kept] = (key >> 1) & COLUMN
            degree_R[(key >> 33) - first] += 1
            kept, best = kept + 1, -np.inf
        if len(weight_M):
            total = weight_M[m] + (total if key == before else 0.0)
            if m + 1 == len(keys_M) or keys_M[m + 1] != key:
                best = max(best, total)
                weight_M[kept - 1] = best
    return kept, distinct


_scatter, _merge = Kernel(_scatter_messages), Kernel(_merge_messages)
_count, _move = Kernel(_count_digits), Kernel(_move_by_digit)
