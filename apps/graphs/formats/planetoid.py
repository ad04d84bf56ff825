"""Planetoid's raw files (Yang et al. 2016, arXiv:1603.08861)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from apps.graphs.raw import Ids, Raw, check_ends, once, split_masks
from scadl_core.errors import DataError
from scadl_core.pickles import unpickle

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VALIDATION = 500  # nodes after those of training, as in all published tables


def read_planetoid(path: Path) -> Raw:
    """A graph from ``ind.<name>.*``.

    Args:
        path: One of the files; the others lie beside it.

    Raises:
        DataError: One is missing, damaged, or does not fit the others.
    """
    stem = path.with_name(".".join(path.name.split(".")[:2]))
    files = [stem.with_name(f"{stem.name}.{part}") for part in PARTS]
    for file in files:
        if not file.is_file():
            raise DataError(f"{file}: is missing; a Planetoid graph has {', '.join(PARTS)}")
    parts = [unpickle(file.read_bytes(), file) for file in files[:-1]]
    try:
        return _assemble(stem.name, files, *parts, np.loadtxt(files[-1], np.int64, ndmin=1))
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise DataError(f"{stem}.*: the files do not fit one another ({error})") from None


def _assemble(
    name: str, files: list[Path], x: Any, y: Any, tx: Any, ty: Any, allx: Any, ally: Any,
    neighbours: Any, test: Any,
) -> Raw:  # fmt: skip
    nodes = max(int(test.max()) + 1, len(ally) + len(ty))
    features, label_NC = sp.lil_matrix((nodes, x.shape[1])), np.zeros((nodes, y.shape[1]))
    features[: allx.shape[0]], label_NC[: len(ally)] = allx, ally
    features[test], label_NC[test] = tx, ty
    source, target = (
        np.array([pair[end] for pair in ((u, v) for u in neighbours for v in neighbours[u])])
        for end in (0, 1)
    )
    given = label_NC.any(1)
    stream = once(source, target)
    check_ends(stream(), nodes, files[-2])
    missing = sorted(set(range(int(test.min()), int(test.max()) + 1)) - set(test.tolist()))
    return Raw(
        "Planetoid",
        files,
        Ids(np.arange(nodes), files[0]),
        stream,
        features.tocsr().astype(np.float32),
        label=np.where(given, label_NC.argmax(1), -1),
        splits=split_masks(
            nodes,
            train=np.arange(len(y)),
            val=np.arange(len(y), min(len(y) + VALIDATION, len(ally))),
            test=test,
        ),
        directed=False,
        notes=[f"{len(missing)} nodes of {name} have neither features nor label"] * bool(missing),
    )
