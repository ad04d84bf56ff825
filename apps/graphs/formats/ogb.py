"""Folders of the Open Graph Benchmark (Hu et al. 2020, arXiv:2005.00687), without its package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apps.graphs.columns import BLOCK, Matrix, columns_of
from apps.graphs.raw import Ids, Raw, check_ends, once, split_masks
from scadl_core.errors import DataError


def read_ogb(
    folder: Path, place: Callable[[Sequence[Path]], Path | None] = lambda files: None
) -> Raw:
    """A node-level graph from ``raw/edge.csv.gz`` and its fellows; one table of split/ is used.

    Args:
        folder: Of the graph.
        place: See :func:`apps.graphs.files.read`.

    Raises:
        DataError: A file is missing or broken, or the graph has several kinds of nodes.
    """
    raw = folder / "raw"
    if (raw / "triplet-type-list.csv.gz").exists():
        raise DataError(
            f"{folder}: has nodes of several kinds, which is not read here; keep one kind and its "
            "edges, as raw/edge.csv.gz and raw/node-feat.csv.gz"
        )
    names = ("edge", "node-label", "num-node-list")
    edge, label, count = (_read(raw / f"{name}.csv.gz") for name in names)
    if edge is None or count is None:
        raise DataError(f"{raw}: edge.csv.gz and num-node-list.csv.gz are needed")
    nodes = int(count[0, 0])
    stream = once(*edge.astype(np.int64).T[:2])
    check_ends(stream(), nodes, raw / "edge.csv.gz")
    files = sorted([*raw.glob("*.csv.gz"), *folder.glob("split/*/*.csv.gz")])
    features = _features(raw / "node-feat.csv.gz", place(files))
    masks = {}
    for split in sorted(folder.glob("split/*"))[:1]:
        places = {ours: _read(split / f"{it}.csv.gz") for ours, it in _SPLITS.items()}
        found = {it: place.ravel().astype(int) for it, place in places.items() if place is not None}
        masks = split_masks(nodes, **found)
    ids = _mapping(folder, nodes)
    label = label if label is None or label.shape[1] > 1 else label.ravel()
    return Raw("OGB", files, ids, stream, features, label=label, splits=masks, directed=None)


_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def _features(path: Path, folder: Path | None) -> Matrix | None:
    if not path.exists():
        return None

    def frames() -> Iterator[pd.DataFrame]:
        with pd.read_csv(path, header=None, chunksize=BLOCK) as reader:
            yield from reader

    try:
        return Matrix.of(list(columns_of(frames, folder).values()))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None


def _read(path: Path) -> NDArray | None:
    if not path.exists():
        return None
    try:
        return pd.read_csv(path, header=None).to_numpy()
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None


def _mapping(folder: Path, nodes: int) -> Ids:
    for path in sorted(folder.glob("mapping/nodeidx2*.csv.gz")):
        table = pd.read_csv(path).sort_values("node idx")
        if len(table) == nodes:
            return Ids(table.iloc[:, 1].to_numpy(), path)
    return Ids(np.arange(nodes), folder)
