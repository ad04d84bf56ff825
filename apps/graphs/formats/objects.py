"""Graphs that other programs keep: GraphML, MATLAB files, adjacency lists, torch-geometric."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp

from apps.graphs.raw import Ids, Raw, check_ends, once
from scadl_core.errors import DataError
from scadl_core.files import reading, try_in_child

ADJACENCIES = ("network", "A", "adj", "adjacency", "graph")
FEATURES = ("attributes", "features", "node_feat", "X", "attrb")
MATLAB_LABELS = ("group", "label", "labels", "gnd", "node_label", "Y")


def read_graphml(path: Path) -> Raw:
    """A graph as NetworkX reads it; attributes of nodes become columns, NaN where they lack."""
    import networkx

    try:
        graph = networkx.read_graphml(path)
    except (OSError, ValueError, KeyError, networkx.NetworkXError, ParseError) as error:
        raise DataError(f"{path}: is no GraphML that can be read ({error!r})") from None
    return _of_networkx(path, graph, "GraphML")


def read_adjlist(path: Path) -> Raw:
    """Lines of a node and its neighbours."""
    import networkx

    try:
        graph = networkx.read_adjlist(path, create_using=networkx.DiGraph)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: is no adjacency list ({error})") from None
    raw = _of_networkx(path, graph, "adjacency list")
    raw.directed = None
    return raw


def _of_networkx(path: Path, graph: Any, layout: str) -> Raw:
    if not len(graph):
        raise DataError(f"{path}: has no node")
    place = {node: number for number, node in enumerate(graph)}
    edges = [(place[u], place[v], w) for u, v, w in graph.edges(data="weight")]
    source, target, weight = zip(*edges, strict=True) if edges else ((), (), ())
    is_weighted = bool(edges) and all(it is not None for it in weight)
    table = pd.DataFrame(list(dict(graph.nodes(data=True)).values())).convert_dtypes()
    ids = pd.Series(list(graph))
    numbers = pd.to_numeric(ids, errors="coerce")
    columns = {str(it): table[it].to_numpy(object, na_value=np.nan) for it in table}
    return Raw(
        layout,
        [path],
        Ids(ids if numbers.isna().any() or (numbers % 1).any() else numbers.astype(int), path),
        once(source, target, weight if is_weighted else None),
        columns={name: pd.Series(it).infer_objects().to_numpy() for name, it in columns.items()},
        directed=graph.is_directed(),
    )


def read_mat(path: Path) -> Raw:
    """A graph from a MATLAB file of version 5: an adjacency matrix, labels, features."""
    read = partial(scipy.io.loadmat, path, squeeze_me=False)
    try_in_child(path, read)  # its code in C goes where damaged sizes lead
    try:
        found = read()
    except (
        OSError,
        ValueError,
        TypeError,
        NotImplementedError,
        scipy.io.matlab.MatReadError,
    ) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read ({reason}); save it with -v7 or older") from None
    for value in filter(sp.issparse, found.values()):
        with reading(path):
            value.check_format()  # SciPy's own code ends the process over indices that lie outside
    names = [it for it in found if not it.startswith("__")]
    key = next((it for it in ADJACENCIES if it in found), None)
    if key is None or found[key].ndim != 2 or found[key].shape[0] != found[key].shape[1]:
        raise DataError(
            f"{path}: has no square matrix called {', '.join(ADJACENCIES)}; it has "
            f"{', '.join(names)}"
        )
    matrix = sp.coo_matrix(found[key])
    first = {
        role: next((found[it] for it in usual if it in found), None)
        for role, usual in (("label", MATLAB_LABELS), ("features", FEATURES))
    }
    label, features = first["label"], first["features"]
    if label is not None:
        label = label.toarray() if sp.issparse(label) else label
        label = label.ravel() if 1 in label.shape else label
    weight = None if (matrix.data == 1).all() else matrix.data
    ids = Ids(np.arange(matrix.shape[0]), path)
    features = sp.csr_matrix(features, dtype=np.float32) if sp.issparse(features) else features
    return Raw(
        "MATLAB", [path], ids, once(matrix.row, matrix.col, weight), features, label=label,
        notes=[f"the graph is the matrix {key}"],
    )  # fmt: skip


def read_pyg(path: Path) -> Raw:
    """A ``torch_geometric.data.Data`` that ``torch.save`` wrote; nothing else is made of a file."""
    import pickle

    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    kinds: Any = [Data, DataEdgeAttr, DataTensorAttr, EdgeStorage, GlobalStorage, NodeStorage]
    try:
        with torch.serialization.safe_globals(kinds):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"{path}: is no saved Data of tensors alone ({reason})") from None
    if not isinstance(data, Data) or data.edge_index is None:
        raise DataError(f"{path}: holds a {type(data).__name__}, not a Data with an edge_index")
    return _of_data(path, data)


def _of_data(path: Path, data: Any) -> Raw:
    def array(name: str) -> Any:
        return data[name].detach().cpu().numpy() if name in data else None

    splits = {it: array(f"{it}_mask") for it in ("train", "val", "test")}
    nodes, weight = data.num_nodes, array("edge_weight")
    stream = once(*array("edge_index"), weight)
    check_ends(stream(), nodes, path)
    return Raw(
        "torch-geometric",
        [path],
        Ids(np.arange(nodes), path),
        stream,
        array("x"),
        label=array("y"),
        splits={
            it: np.atleast_2d(np.asarray(mask).T) for it, mask in splits.items() if mask is not None
        },
        directed=data.is_directed(),
    )
