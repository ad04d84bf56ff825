"""The embedded example graph: a degree-corrected stochastic block model (Karrer and Newman 2011,
arXiv:1008.3926), written as the Parquet tables that people have.

    <path>/nodes.parquet    id (gapped numbers, in no order), feature_00 .., label, split
    <path>/edges.parquet    source, target (each edge once)

Classes are of unequal sizes and lie on a ring: an edge that leaves its class goes to one of the two
beside it more often than not. Features are means of the classes under noise. So neither features
nor edges alone tell classes apart. A few nodes are isolated.

Suffixes: N node, E edge, C class, F feature.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Rng = np.random.Generator
ISOLATED = 0.01
TO_BESIDE = 0.6  # of the edges that leave a class
TAIL = 2.5  # exponent of the degrees
TRAIN, VAL = 0.1, 0.1
CHUNK = 1 << 20  # edges worked on at a time


def write_sample(
    path: str | Path,
    nodes: int = 10_000,
    classes: int = 8,
    features: int = 32,
    degree: float = 20.0,
    homophily: float = 0.7,
    signal: float = 0.95,
    seed: int = 0,
) -> None:
    """Writes the example graph, unless its folder exists; whole or not at all.

    Args:
        path: The folder.
        nodes: N.
        classes: C.
        features: F.
        degree: Edges a node, on average.
        homophily: The share of edges within classes.
        signal: Distance of the classes' means from 0, in units of the noise.
        seed: Of everything.
    """
    path, rng = Path(path), np.random.default_rng(seed)
    if path.exists():
        return
    share_C = 0.5 / classes + 0.5 * _normalised(np.arange(1.0, classes + 1) ** -1.5)
    label_N = rng.choice(classes, nodes, p=_normalised(share_C))
    source_E, target_E = block_edges(rng, label_N, classes, degree, homophily)
    mean_CF = rng.standard_normal((classes, features))
    mean_CF *= signal / np.linalg.norm(mean_CF, axis=1, keepdims=True)
    x_NF = (mean_CF[label_N] + rng.standard_normal((nodes, features))).astype(np.float32)
    id_N = rng.permutation(np.sort(rng.choice(10 * nodes, nodes, replace=False)) + 1)
    split_N = rng.choice(["train", "val", "test"], nodes, p=[TRAIN, VAL, 1 - TRAIN - VAL])
    table = pd.DataFrame({"id": id_N})
    for f in range(features):
        table[f"feature_{f:02d}"] = x_NF[:, f]
    table["label"] = [f"class_{label}" for label in label_N]
    table["split"] = split_N
    edges = pd.DataFrame({"source": id_N[source_E], "target": id_N[target_E]})
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        written = Path(scratch) / path.name
        written.mkdir()
        table.to_parquet(written / "nodes.parquet", index=False)
        edges.to_parquet(written / "edges.parquet", index=False)
        try:
            written.rename(path)
        except OSError:
            if not path.is_dir():  # else another process was faster, and wrote the same
                raise


def block_edges(
    rng: Rng, label_N: Ints, classes: int, degree: float, homophily: float
) -> tuple[Ints, Ints]:
    """Sources and targets, each of shape (E,), of the block model; isolated nodes have none."""
    weight_N = rng.pareto(TAIL - 1, len(label_N)) + 1
    weight_N = np.minimum(weight_N, np.quantile(weight_N, 0.9995))
    rate_CC = np.full((classes, classes), (1 - homophily) * (1 - TO_BESIDE) / max(classes - 1, 1))
    for c in range(classes):
        for beside in ((c + 1) % classes, (c - 1) % classes):
            rate_CC[c, beside] += (1 - homophily) * TO_BESIDE / 2
    np.fill_diagonal(rate_CC, homophily)
    source_E = _draw(rng, weight_N, int(len(label_N) * degree / 2))
    cumulative_CC = np.cumsum(rate_CC / rate_CC.sum(1, keepdims=True), 1)
    at_E, to_E = rng.random(len(source_E)), np.empty_like(source_E)
    for first in range(0, len(source_E), CHUNK):  # of millions of edges, the rates are gigabytes
        part = slice(first, first + CHUNK)
        to_E[part] = (at_E[part, None] > cumulative_CC[label_N[source_E[part]], :-1]).sum(1)
    target_E = np.empty_like(source_E)
    for c in range(classes):
        members, edges = np.flatnonzero(label_N == c), np.flatnonzero(to_E == c)
        target_E[edges] = members[_draw(rng, weight_N[members], len(edges))] if len(members) else 0
    is_alone_N = rng.random(len(label_N)) < ISOLATED
    kept_E = ~(is_alone_N[source_E] | is_alone_N[target_E])
    return source_E[kept_E], target_E[kept_E]


def rmat_edges(rng: Rng, scale: int, edges: int) -> tuple[Ints, Ints]:
    """Edges of a recursive matrix with 2^scale nodes, as the Graph500 benchmark has it: Chakrabarti
    et al. 2004, doi:10.1137/1.9781611972740.43, with a, b, c = .57, .19, .19.
    """
    source_E, target_E = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for bit in range(scale):
        at_E = rng.random(edges)
        source_E |= (at_E >= 0.76).astype(np.int64) << bit
        target_E |= (((at_E >= 0.57) & (at_E < 0.76)) | (at_E >= 0.95)).astype(np.int64) << bit
    place_N = rng.permutation(1 << scale)
    return place_N[source_E], place_N[target_E]


def _draw(rng: Rng, weight_N: NDArray[np.float64], count: int) -> Ints:
    ends_N = np.cumsum(weight_N)
    return np.searchsorted(ends_N / ends_N[-1], rng.random(count)).clip(max=len(ends_N) - 1)


def _normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values / values.sum()
