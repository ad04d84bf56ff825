"""Cora and CiteSeer as published with Planetoid (Yang et al. 2016, arXiv:1603.08861).

The files are pickles of Python 2, read by :mod:`scadl_core.pickles`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from scadl_core.errors import DataError
from scadl_core.pickles import unpickle


class Graph(NamedTuple):
    """Nodes with features, labels and the public split.

    Attributes:
        features: Of all nodes, [A^4 H, ..., A H, H] as pdADMM-G has them, float32 (N, 5 F).
        labels: int64 (N,).
        train: Indices of 20 nodes a class.
        val: Of 500 nodes.
        test: Of 1000 nodes.
    """

    features: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor


def read_graph(folder: Path, name: str, hops: int = 4) -> Graph:
    """Reads ``ind.<name>.*``.

    Args:
        folder: Of the files.
        name: "cora" or "citeseer".
        hops: Powers of the normalised adjacency beside the features themselves.

    Raises:
        DataError: A file is absent or is not what it should be.
    """
    x, tx, allx, y, ty, ally, graph = (
        _read(folder / f"ind.{name}.{part}")
        for part in ("x", "tx", "allx", "y", "ty", "ally", "graph")
    )
    index = np.loadtxt(folder / f"ind.{name}.test.index", dtype=int)
    first, nodes = int(index.min()), int(index.max()) + 1
    features = sp.lil_matrix((nodes, x.shape[1]), dtype=np.float32)  # CiteSeer has isolated nodes
    onehot = np.zeros((nodes, y.shape[1]))
    features[: allx.shape[0]], onehot[: len(ally)] = allx, ally
    features[index], onehot[index] = tx, ty
    assert first == allx.shape[0], "test nodes follow all others"
    pairs = np.array([(a, b) for a, others in graph.items() for b in others])
    hidden = np.asarray(features.todense(), np.float32)
    adjacency = _normalised(pairs, nodes)
    parts = [hidden]
    for _ in range(hops):
        parts.append(np.asarray(adjacency @ parts[-1], np.float32))
    known = len(y)
    return Graph(
        torch.from_numpy(np.concatenate(parts[::-1], 1)),
        torch.from_numpy(onehot.argmax(1)),
        torch.arange(known), torch.arange(known, known + 500), torch.from_numpy(np.sort(index)),
    )  # fmt: skip


def _read(path: Path) -> Any:
    try:
        return unpickle(path.read_bytes(), path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read as a Planetoid file ({error})") from None


def _normalised(pairs: Any, nodes: int) -> Any:
    """(D + I)^-1/2 (A + I) (D + I)^-1/2, symmetric."""
    ones = np.ones(len(pairs))
    adjacency = sp.coo_matrix((ones, (pairs[:, 0], pairs[:, 1])), (nodes, nodes)).tocsr()
    adjacency = adjacency.maximum(adjacency.T)
    adjacency.data[:] = 1
    adjacency.setdiag(0)
    adjacency.eliminate_zeros()
    adjacency = adjacency + sp.eye(nodes)
    root = sp.diags(np.asarray(adjacency.sum(1)).ravel() ** -0.5)
    return (root @ adjacency @ root).tocsr()
