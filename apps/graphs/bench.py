"""`scadl bench graphs`: rows of an edge file, a hop and a sample, beside the peers', in one run;
and memory.

Every method in turn, round after round; the best round counts. Building runs in processes of its
own, so that the memory of each is its own.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from rich.console import Console

from apps.graphs.csr import CSR, build
from apps.graphs.formats.tables import Table, edge_stream
from apps.graphs.hops import propagate, scales
from apps.graphs.sample import rmat_edges
from apps.graphs.sampling import sample
from scadl_core.bench.rows import Row, show_rows, value_of

OURS, PANDAS, TORCH, SLICES = "scadl", "pandas + SciPy", "torch.sparse", "SciPy row slices"
SHOWN = {"seconds": ".3f", "memory": ".2f", "edges or nodes": ".0f"}
FEATURES, SEEDS, FANOUTS = 64, 1024, (15, 10)


class Size(NamedTuple):
    """How much is measured."""

    scale: int
    edges: int
    rounds: int


FULL, QUICK = Size(20, 16_000_000, 3), Size(16, 1_000_000, 2)


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the tables.

    Args:
        quick: A smaller graph.
        console: Where to print.
    """
    size = QUICK if quick else FULL
    case = f"R-MAT, {1 << size.scale} nodes, {size.edges} edges"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "edges.parquet"
        ends = rmat_edges(np.random.default_rng(0), size.scale, size.edges)
        pd.DataFrame(dict(zip(("source", "target"), ends, strict=True))).to_parquet(path)
        del ends
        rows: list[Row] = []
        for method, make in ((OURS, rows_of_ours), (PANDAS, rows_of_pandas)):
            seconds, memory = _in_process(make, path, 1 << size.scale, size.rounds)
            rows += [
                Row(f"rows of a Parquet file: {case}", method, "seconds", seconds, "s"),
                Row(f"rows of a Parquet file: {case}", method, "memory", memory, "GiB"),
            ]
        graph = rows_of_ours(path, 1 << size.scale)
    rows += _hop(graph, f"one hop of {FEATURES} features: {case}", size.rounds)
    rows += _sampling(graph, f"{SEEDS} seeds, fan-out {list(FANOUTS)}: {case}", size.rounds)
    show_rows(rows, SHOWN, console)
    for name in dict.fromkeys(row.case for row in rows):
        ours = value_of(rows, name, OURS, "seconds")
        peer = next(row for row in rows if row.case == name and row.method != OURS)
        assert ours, "measured above"
        console.print(f"{name}: {peer.value / ours:.2f} times as fast as {peer.method}")
    return rows


def rows_of_ours(path: Path, nodes: int) -> CSR:
    """Rows both ways, ascending, without duplicates and loops."""
    return build(edge_stream(Table(path)), nodes)


def rows_of_pandas(path: Path, nodes: int) -> sp.csr_matrix:
    """The same, as one writes it."""
    frame = pd.read_parquet(path)
    ones = np.ones(len(frame), np.float32)
    ends = frame["source"].to_numpy(), frame["target"].to_numpy()
    matrix = sp.coo_matrix((ones, ends), shape=(nodes, nodes)).tocsr()
    matrix = matrix + matrix.T
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    matrix.data[:] = 1
    return matrix


def _in_process(
    make: Callable[[Path, int], Any], path: Path, nodes: int, rounds: int
) -> tuple[float, float]:
    """Seconds of the best round, and GiB above what importing takes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(make, path, nodes, rounds, theirs))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def _measured(
    make: Callable[[Path, int], Any], path: Path, nodes: int, rounds: int, pipe: Any
) -> None:
    small = path.with_name(f"small-{os.getpid()}.parquet")  # compiles, and opens libraries
    pd.DataFrame({"source": [0, 1, 70000], "target": [1, 2, 3]}).to_parquet(small)
    make(small, 70001)
    before, best = _peak_GiB(), float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        make(path, nodes)
        best = min(best, time.perf_counter() - started)
    pipe.send((best, _peak_GiB() - before))


def _peak_GiB() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _best(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def _hop(graph: CSR, case: str, rounds: int) -> list[Row]:
    x_NF = np.random.default_rng(1).standard_normal((graph.num_nodes, FEATURES), np.float32)
    by, out_NF = scales(graph), np.empty_like(x_NF)
    ours_NF = propagate(graph, by, x_NF)
    matrix = _normalised(graph)
    tensor = torch.from_numpy(x_NF)
    theirs_NF = (matrix @ tensor).numpy()
    assert np.allclose(ours_NF, theirs_NF, atol=1e-4), "both compute the same"
    best = _best(
        {OURS: lambda: propagate(graph, by, x_NF, out_NF), TORCH: lambda: matrix @ tensor}, rounds
    )
    return [Row(case, name, "seconds", seconds, "s") for name, seconds in best.items()]


def _normalised(graph: CSR) -> torch.Tensor:
    root_N = 1 / np.sqrt(graph.degree_N + 1)
    ones = np.ones(len(graph.indices))
    plain = sp.csr_matrix((ones, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2)
    matrix = sp.diags(root_N) @ (plain + sp.identity(graph.num_nodes)) @ sp.diags(root_N)
    matrix = matrix.tocsr().astype(np.float32)
    indices = torch.from_numpy(matrix.indptr).long(), torch.from_numpy(matrix.indices).long()
    return torch.sparse_csr_tensor(*indices, torch.from_numpy(matrix.data), matrix.shape)


def _sampling(graph: CSR, case: str, rounds: int) -> list[Row]:
    rng = np.random.default_rng(2)
    seeds = rng.choice(np.flatnonzero(graph.degree_N), SEEDS, replace=False)
    ones = np.ones(len(graph.indices), np.int8)
    matrix = sp.csr_matrix((ones, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2)
    best = _best(
        {
            OURS: lambda: sample(graph, seeds, FANOUTS, 7),
            SLICES: lambda: row_slices(matrix, seeds, FANOUTS, rng),
        },
        rounds,
    )
    return [Row(case, name, "seconds", seconds, "s") for name, seconds in best.items()]


def row_slices(
    matrix: sp.csr_matrix, seeds: Any, fanouts: tuple[int, ...], rng: np.random.Generator
) -> list[Any]:
    """Slices the rows of a layer out of the matrix, and keeps some random entries of each."""
    layers, nodes, frontier = [], seeds, seeds
    for fanout in fanouts:
        rows = matrix[frontier].tocoo()
        order = np.lexsort((rng.random(rows.nnz), rows.row))
        start = np.searchsorted(rows.row[order], np.arange(len(frontier)))
        kept = order[np.arange(rows.nnz) - start[rows.row[order]] < fanout]
        layers.append((frontier[rows.row[kept]], rows.col[kept]))
        frontier = np.setdiff1d(rows.col[kept], nodes)
        nodes = np.concatenate([nodes, frontier])
    return layers
