"""One graph, written in every format, read back the same; and files that are not what they seem."""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from apps.graphs.csr import build
from apps.graphs.data import GraphData
from apps.graphs.files import read
from apps.graphs.formats.tables import Columns
from scadl_core.errors import ConfigError, DataError
from scadl_core.pickles import unpickle

EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 1], [4, 4], [0, 1]])  # 5 is isolated, 4 has a loop
LABEL = np.array([0, 1, 0, 1, 0, 1])
X = np.arange(12, dtype=np.float32).reshape(6, 2) + 0.5
IDS = np.array([70, 3, 1200, 15, 8, 99])
NAMES = np.array(["g70", "g3", "g1200", "g15", "g8", "g99"])


def csv(folder: Path) -> Path:
    pd.DataFrame(IDS[EDGES], columns=["source", "target"]).to_csv(folder / "edges.csv", index=False)
    table = pd.DataFrame({"id": IDS, "a": X[:, 0], "b": X[:, 1], "label": LABEL})
    table.to_csv(folder / "nodes.csv", index=False)
    return folder


def tsv_of_names(folder: Path) -> Path:
    """Texts as ids, comments before, another separator, a header that SNAP uses."""
    lines = ["# Directed graph", "# FromNodeId\tToNodeId"]
    lines += [f"{u}\t{v}" for u, v in NAMES[EDGES]]
    (folder / "edges.tsv").write_text("\n".join(lines) + "\n")
    table = pd.DataFrame({"node": NAMES, "a": X[:, 0], "b": X[:, 1], "Label": LABEL})
    table.to_csv(folder / "nodes.tsv", sep="\t", index=False)
    return folder


def parquet(folder: Path) -> Path:
    frame = pd.DataFrame({"src": NAMES[EDGES[:, 0]], "dst": NAMES[EDGES[:, 1]]})
    frame.to_parquet(folder / "edges.parquet")
    table = pd.DataFrame({"name": NAMES, "label": LABEL, "a": X[:, 0], "b": X[:, 1]})
    table.to_parquet(folder / "nodes.parquet")
    return folder


def ogb(folder: Path) -> Path:
    raw, split = folder / "raw", folder / "split" / "time"
    raw.mkdir()
    split.mkdir(parents=True)
    values: dict[str, Any] = {"edge": EDGES, "node-feat": X, "node-label": LABEL}
    for name, table in (values | {"num-node-list": [6], "num-edge-list": [6]}).items():
        pd.DataFrame(table).to_csv(raw / f"{name}.csv.gz", header=False, index=False)
    for name, nodes in {"train": [0, 1], "valid": [2, 3], "test": [4, 5]}.items():
        pd.DataFrame(nodes).to_csv(split / f"{name}.csv.gz", header=False, index=False)
    (folder / "mapping").mkdir()
    mapping = pd.DataFrame({"node idx": range(6), "paper id": IDS})
    mapping.to_csv(folder / "mapping" / "nodeidx2paperid.csv.gz", index=False)
    return folder


def graphml(folder: Path) -> Path:
    graph = networkx.DiGraph()
    for name, (a, b), label in zip(NAMES, X, LABEL, strict=True):
        graph.add_node(str(name), a=float(a), b=float(b), label=int(label))
    graph.add_edges_from(map(tuple, NAMES[EDGES].tolist()))
    networkx.write_graphml(graph, folder / "graph.graphml")
    return folder / "graph.graphml"


def matlab(folder: Path) -> Path:
    matrix = sp.coo_matrix((np.ones(6), EDGES.T), shape=(6, 6)).tocsc()
    matrix.data[:] = 1
    content = {"network": matrix, "label": LABEL[:, None], "attributes": sp.csc_matrix(X)}
    scipy.io.savemat(folder / "graph.mat", content)
    return folder / "graph.mat"


def pyg(folder: Path) -> Path:
    from torch_geometric.data import Data

    data = Data(torch.tensor(X), torch.tensor(EDGES.T), y=torch.tensor(LABEL))
    torch.save(data, folder / "graph.pt")
    return folder / "graph.pt"


def npz(folder: Path) -> Path:
    masks = {f"{it}_masks": np.eye(6, dtype=bool)[:2] for it in ("train", "val", "test")}
    np.savez(folder / "g.npz", node_features=X, node_labels=LABEL, edges=EDGES, **masks)
    return folder / "g.npz"


@pytest.mark.parametrize("write", [csv, tsv_of_names, parquet, ogb, graphml, matlab, pyg, npz])
def test_one_graph_in_every_format(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    data = GraphData(path, inputs=["a", "b"] if write in (csv, tsv_of_names, parquet) else [])
    expected = build([(*EDGES.T, None)], 6)
    np.testing.assert_array_equal(data.graph.indices, expected.indices)
    np.testing.assert_array_equal(data.graph.indptr, expected.indptr)
    values = data.features.values
    np.testing.assert_array_equal(values.toarray() if sp.issparse(values) else values[:], X)
    np.testing.assert_array_equal(data.target.label, LABEL)
    ids: Any = {csv: IDS, ogb: IDS, tsv_of_names: NAMES, parquet: NAMES, graphml: NAMES}
    np.testing.assert_array_equal(data.raw.ids.values, ids.get(write, np.arange(6)))


def test_adjacency_list(tmp_path: Path) -> None:
    (tmp_path / "g.adjlist").write_text("# a comment\n5 7 9\n7 9\n11\n")
    raw = read(tmp_path / "g.adjlist")
    assert raw.ids.values.tolist() == [5, 7, 9, 11]
    assert build(raw.stream(), 4).degree_N.tolist() == [2, 2, 2, 0]


def test_weights_and_gzip(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "edges.csv.gz", "wt") as file:
        file.write("u,v,weight\na,b,2.5\nb,a,4\nb,c,1\n")
    assert GraphData(tmp_path).graph.weight.tolist() == [4, 4, 1, 1]
    assert GraphData(tmp_path, weight=None).graph.weight is None
    directed = GraphData(tmp_path, directed=True)
    assert directed.graph.weight.tolist() == [
        4,
        2.5,
        1,
    ]  # rows receive: a from b, b from a, c from b
    assert directed.report().facts["edges"] == "3 read, 3 messages along their direction"


def test_repeated_header_and_chosen_columns(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("node_id\tnode_id\n1\t2\n2\t3\n")
    assert len(read(tmp_path).ids) == 3
    (tmp_path / "edges.txt").write_text("when,who,whom\n2020,1,2\n2021,2,3\n")
    with pytest.raises(DataError, match=r"no list of edges: edges.txt has when, who, whom"):
        read(tmp_path)
    assert len(read(tmp_path, Columns("who", "whom")).ids) == 3
    with pytest.raises(DataError, match=r"has no column whose .*; did you mean 'who' or 'whom'"):
        read(tmp_path, Columns("whose", "whom"))


def test_numbers_among_texts_as_ids(tmp_path: Path) -> None:
    """Edges that look like numbers, nodes whose ids are texts: 007 is not 7."""
    (tmp_path / "nodes.csv").write_text("id,x\n1,0.5\n2,1\nx3,2\n")
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    assert build(read(tmp_path).stream(), 3).degree_N.tolist() == [1, 1, 0]


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_never_runs_code(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({0: [Bomb(tmp_path / "ran")]}, protocol)
    with pytest.raises(DataError, match=r"ind.x.graph: is no pickle of plain data \(it names"):
        unpickle(content, "ind.x.graph")
    assert not (tmp_path / "ran").exists()


def test_other_pickles_never_run_code(tmp_path: Path) -> None:
    torch.save(Bomb(tmp_path / "ran"), tmp_path / "graph.pt")
    with pytest.raises(DataError, match=r"no saved Data of tensors alone"):
        read(tmp_path / "graph.pt")
    objects = np.array([Bomb(tmp_path / "ran")], object)
    np.savez(tmp_path / "g.npz", edges=objects, node_features=X, node_labels=LABEL)
    with pytest.raises(DataError, match=r"g\.npz"):
        read(tmp_path / "g.npz")
    assert not (tmp_path / "ran").exists()


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    place = int(rng.integers(len(content)))
    return content[:place] + bytes([int(rng.integers(256))]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damages", [12, pytest.param(200, marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_damaged_files_are_refused_or_read(tmp_path: Path, shared_data: Path, damages: int) -> None:
    rng = np.random.default_rng(0)
    graphs = shared_data / "graphs"
    sources = [graphs / "planetoid_cora" / f"ind.cora.{it}" for it in ("x", "graph", "ty")]
    for source in sources:
        content = source.read_bytes()
        for number in range(damages):
            broken = content[: len(content) * number // damages]
            for it in (damaged(content, rng), broken):
                try:
                    unpickle(it, source)
                except DataError as error:
                    assert str(source) in str(error)
    content = (graphs / "npz_heterophilous" / "texas.npz").read_bytes()
    for number in range(damages):
        for it in (damaged(content, rng), content[: len(content) * number // damages]):
            (tmp_path / "g.npz").write_bytes(it)
            try:
                read(tmp_path / "g.npz")
            except DataError as error:
                assert "g.npz" in str(error)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,x\n1,0\n3,0\n"},
         r"edges.csv: 1 edges lead to ids that no node of .* has, such as 2; .*unknown=drop"),
        ({"edges.csv": "source,target\n1,1\n", "nodes.csv": "id,x\n1,0\n1,0\n"},
         r"nodes.csv: the node id 1 is there twice"),
        ({"edges.csv": "source,target\n1,\n2,3\n"}, r"edges.csv: an edge has no end"),
        ({"edges.csv": "source,target,weight\n1,2,\n"}, r"edges.csv: an edge weight is missing"),
        ({"edges.csv": ""}, r"edges.csv: has no line with values"),
        ({"g.graphml": "<graphml><graph>"}, r"g.graphml: is no GraphML"),
        ({"g.mat": "MATLAB?"}, r"g.mat: cannot be read"),
        ({"g.npz": "PK"}, r"g.npz: cannot be read"),
        ({"edges.parquet": "PAR1"}, r"edges.parquet: cannot be read"),
        ({"ind.z.x": ""}, r"ind.z.y: is missing; a Planetoid graph has x, y, tx"),
        ({"nodes.csv": "id,x\n1,0\n"}, r"nodes.csv: no list of edges"),
    ],
    ids=lambda it: "+".join(it) if isinstance(it, dict) else "",
)  # fmt: skip
def test_mistakes(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    path = tmp_path / next(iter(files)) if "ind.z.x" in files else tmp_path
    with pytest.raises(DataError, match=message) as caught:
        GraphData(path)
    assert "\n" not in str(caught.value)


def test_edges_beyond_the_last_node(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", node_features=X, node_labels=LABEL, edges=EDGES + 4)
    with pytest.raises(DataError, match=r"an edge leads to node 8, there are 6 \(0..5\)"):
        read(tmp_path / "g.npz")
    with pytest.raises(ConfigError, match=r"data.unknown: got 'dorp'; did you mean 'drop'"):
        read(tmp_path / "g.npz", unknown="dorp")
