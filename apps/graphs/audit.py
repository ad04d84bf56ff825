"""The audit of a graph: what is in the files, what was changed, what to know before trusting it.

Suffixes: N node, R node of a block, M message, C class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from apps.graphs.columns import BLOCK
from apps.graphs.csr import CSR
from scadl_core.compress.cpu.chunks import Kernel
from scadl_core.errors import ScadlError
from scadl_core.record.datareport import DataReport, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from apps.graphs.data import GraphData

QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
RARE = 10  # labelled train nodes below which a class is hardly learnt
REPLICA = 0.999  # share of train nodes on which a feature gives the label away


def report(data: GraphData) -> DataReport:
    """Facts, a table of splits and classes, and warnings."""
    graph, raw, counts = data.graph, data.raw, data.graph.counts
    messages, changed = len(graph.indices), list(_changes(data))
    found = {
        "files": f"{len(raw.files)} ({raw.layout}), such as {raw.files[0]}",
        "nodes": f"{graph.num_nodes}, {int((graph.degree_N == 0).sum())} isolated",
        "edges": f"{counts['read']} read, {messages} messages "
        + ("along their direction" if data.settings["directed"] else "both ways"),
        "components": _components(graph),
        "degree": ", ".join(
            f"{name} {int(it)}"
            for name, it in zip(
                ("min", "median", "90 %", "99 %", "max"),
                np.quantile(graph.degree_N, QUANTILES),
                strict=True,
            )
        ),
        "changed": "; ".join(changed) or "nothing",
        "features": f"{len(data.features.names)}: {', '.join(data.features.names[:6])}",
        "labels": f"{data.target.kind}, {int(data.target.labelled_N.sum())} nodes have one",
        "memory": f"{graph.num_nodes * len(data.features.names) * (data.num_hops + 1) / 2**28:.2f}"
        f" GiB for features and {data.num_hops} hops (in files beyond {data.memory_GiB:g} GiB)",
    }
    if data.target.kind == "classes" and data.target.labelled_N.any():
        found["homophily"] = f"{homophily(graph, data.target.label):.3f} of edges join one class"
    tables = [_splits(data)] * bool(data.target.labelled_N.any())
    return DataReport("Graph", found, tables, list(_warnings(data)))


def homophily(graph: CSR, label_N: NDArray[np.int64]) -> float:
    """The share of messages between labelled nodes of one class; NaN of none."""
    known = alike = 0
    for at in range(0, graph.num_nodes, BLOCK):
        rows = slice(at, at + BLOCK)
        messages = slice(*graph.indptr[[at, min(at + BLOCK, graph.num_nodes)]])
        to_M = label_N[rows].repeat(graph.degree_N[rows])
        from_M = label_N[graph.indices[messages]]
        known_M = (to_M >= 0) & (from_M >= 0)
        known += int(known_M.sum())
        alike += int((known_M & (to_M == from_M)).sum())
    return alike / known if known else float("nan")


def _components(graph: CSR) -> str:
    lead_N = np.arange(graph.num_nodes, dtype=np.int32)
    _join(graph.indptr, graph.indices, lead_N)
    size_N = np.bincount(lead_N)
    return f"{np.count_nonzero(size_N)}, the largest of {size_N.max()} nodes"


def _join_neighbours(indptr: Any, indices: Any, lead_N: Any) -> None:
    """Leads from every node to the first one of its component, in a forest whose paths are halved
    as they are walked (Tarjan and van Leeuwen 1984, doi:10.1145/62.2160): nothing of the size of
    the messages is made.
    """
    for i in range(len(lead_N)):
        for m in range(indptr[i], indptr[i + 1]):
            a, b = i, indices[m]
            while lead_N[a] != a:
                lead_N[a] = lead_N[lead_N[a]]
                a = lead_N[a]
            while lead_N[b] != b:
                lead_N[b] = lead_N[lead_N[b]]
                b = lead_N[b]
            lead_N[max(a, b)] = min(a, b)
    for i in range(len(lead_N)):  # those before it lead to their first one already
        lead_N[i] = lead_N[lead_N[i]]


_join = Kernel(_join_neighbours)


def _changes(data: GraphData) -> Iterator[str]:
    counts, settings = data.graph.counts, data.settings
    loops = 0 if settings["loops"] else counts["loops"]
    if loops:
        yield f"{loops} self loops left out (data.loops)"
    if duplicates := counts["read"] - loops - counts["distinct"]:
        yield f"{duplicates} duplicate edges merged, weights summed"
    kept = counts["loops"] - loops
    pairs = (len(data.graph.indices) - kept) // 2
    if not settings["directed"] and (single := 2 * pairs - (counts["distinct"] - kept)) > 0:
        yield f"the other direction added to {single} edges (data.directed)"
    if data.features.filled:
        yield f"{data.features.filled} missing values set to the {settings['missing']}"
    if data.features.ignored:
        yield f"no features, as they are text: {', '.join(data.features.ignored)}"


def _splits(data: GraphData) -> Table:
    target, columns = data.target, ("name", "all", "train", "val", "test")
    try:
        masks = [np.flatnonzero(target.labelled_N), *data.splits.values()]
    except ScadlError as error:  # said by whoever needs the splits
        return Table(f"Labels ({error})", ("name",), [(name,) for name in target.names[:50]])
    if target.kind == "classes":
        of = [np.bincount(target.label[it], minlength=len(target.names)) for it in masks]
    else:
        of = [np.nansum(target.label[it], 0) for it in masks]
    rows = [(name, *(f"{it[c]:g}" for it in of)) for c, name in enumerate(target.names[:50])]
    title = "Labelled nodes of each class" if target.kind == "classes" else "Sums of the labels"
    return Table(title, columns, [*rows, ("nodes", *(str(len(it)) for it in masks))])


def _warnings(data: GraphData) -> Iterator[str]:
    yield from data.raw.notes
    if not len(data.graph.indices):
        yield "the graph has no edge: networks see each node alone"
    if not data.target.labelled_N.any():
        yield "no node has a label, so nothing can be learnt; name a column with data.target"
        return
    try:
        splits = data.splits
    except ScadlError as error:
        yield str(error)
        return
    for one, other in (("train", "test"), ("train", "val"), ("val", "test")):
        if shared := len(np.intersect1d(splits[one], splits[other])):
            yield f"{shared} nodes are in {one} and in {other}: scores will flatter"
    if data.target.kind != "classes":
        return
    for split, nodes in splits.items():
        count_C = np.bincount(data.target.label[nodes], minlength=len(data.target.names))
        for name in [data.target.names[c] for c in np.flatnonzero(count_C == 0)]:
            yield f"class {name} has no node in {split}: it is " + (
                "not learnt" if split == "train" else "not scored"
            )
        few = [data.target.names[c] for c in np.flatnonzero((count_C > 0) & (count_C < RARE))]
        if few and split == "train":
            yield f"fewer than {RARE} train nodes are of class {', '.join(few)}"
    yield from _leaks(data)


def _leaks(data: GraphData) -> Iterator[str]:
    """Features that give the label away: whose values each go with one class."""
    train = data.splits["train"][:5000]
    values, label_T = data.features.values[train], data.target.label[train]
    values = values.toarray() if sp.issparse(values) else np.asarray(values)
    common = np.bincount(label_T).max() / len(train)
    for name, value_T in zip(data.features.names, values.T, strict=True):
        kinds, place_T = np.unique(value_T, return_inverse=True)
        if not 2 <= len(kinds) <= 2 * len(data.target.names):
            continue
        table = np.zeros((len(kinds), len(data.target.names)))
        np.add.at(table, (place_T, label_T), 1)
        if (share := table.max(1).sum() / len(train)) >= REPLICA > common:
            yield f"feature {name} alone gives the label of {share:.1%} of train nodes: a leak?"
