"""Real graphs' cases: ids, directions, isolated nodes, missing values, labels, splits, leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from apps.graphs.baseline import score
from apps.graphs.csr import build
from apps.graphs.data import GraphData
from apps.graphs.partition import partition
from apps.graphs.propose import propose
from apps.graphs.sample import rmat_edges, write_sample
from scadl_core.errors import ConfigError, DataError

Write = Any


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a ring of nodes, with what is given instead."""

    def go(nodes: int = 40, edges: Any = None, **columns: Any) -> Path:
        rng = np.random.default_rng(0)
        label = np.arange(nodes) % 2
        table = {"id": [f"n{it}" for it in range(nodes)], "x": label + rng.normal(size=nodes)}
        table |= {"label": np.where(label, "yes", "no"), **columns}
        pd.DataFrame(table).to_csv(tmp_path / "nodes.csv", index=False)
        ring = [(it, (it + 1) % nodes) for it in range(nodes)] if edges is None else edges
        lines = [f"n{u},n{v}" for u, v in ring]
        (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(lines) + "\n")
        return tmp_path

    return go


def warned(data: GraphData, text: str) -> bool:
    return any(text in warning for warning in data.report().warnings)


def test_classes_splits_and_features(write: Write) -> None:
    data = GraphData(write())
    assert data.target.names == ["no", "yes"]
    sizes = {name: len(nodes) for name, nodes in data.splits.items()}
    assert sizes == {"train": 24, "val": 8, "test": 8}
    for nodes in data.splits.values():
        assert np.bincount(data.target.label[nodes]).tolist() == [len(nodes) // 2] * 2
    train = data.x_NF[data.splits["train"]]
    np.testing.assert_allclose([train.mean(), train.std()], [0, 1], atol=1e-6)
    facts = data.facts()
    assert facts["model"] == {"in_channels": 1, "out_channels": 2}
    assert facts["count_C"] == [12, 12]
    expected = np.sqrt(np.mean(np.square(data.hops_KNF[2][data.splits["train"]])))
    assert facts["rms_K"][2] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("batches", ["neighbours", "clusters", "full"])
def test_networks_that_pass_messages_are_given_features_as_published(
    write: Write, batches: str
) -> None:
    data = GraphData(write(), batches=batches, scale="rows")
    assert data.facts()["rms_K"] == [1.0]
    assert data.rms(data.x_NF) > 0


def test_a_batch_is_the_samples(write: Write) -> None:
    samples = GraphData(write(), hops=2).samples("train")
    batch = samples.batch([3, 0], None)
    for place, index in enumerate([3, 0]):
        for name, value in samples.read(index, None).items():
            np.testing.assert_array_equal(batch[name][place], value)
    assert batch["x_BKF"].shape == (2, 3, 1)


def test_unlabelled_nodes_are_predicted_but_not_learnt(write: Write) -> None:
    label = np.where(np.arange(40) % 2, "yes", "no").astype(object)
    label[[3, 4]] = np.nan, " "
    data = GraphData(write(label=label))
    assert data.target.label[[3, 4]].tolist() == [-1, -1]
    assert not {3, 4} & set(np.concatenate(list(data.splits.values())).tolist())
    assert len(data.samples("all")) == 40
    numbers = np.where(np.arange(40) % 2, 1, -1)
    path = write(label=numbers)
    assert (GraphData(path).target.label >= 0).sum() == 20


def test_missing_features(write: Write) -> None:
    x = np.arange(40.0)
    x[5] = np.nan
    path = write(x=x)
    with pytest.raises(
        DataError, match=r"feature x is missing \(NaN\) in 1 of 40 nodes; set data.mi"
    ):
        GraphData(path)
    zero, mean = (GraphData(path, missing=it).features for it in ("zero", "mean"))
    assert zero.values[[5]] == 0
    assert mean.values[[5]] == pytest.approx(np.nanmean(x))
    assert (
        "1 missing values set to the mean"
        in GraphData(path, missing="mean").report().facts["changed"]
    )


@pytest.mark.parametrize(("make", "features"), [("degree", 5), ("random", 64), ("identity", 40)])
def test_features_are_made_where_there_are_none(write: Write, make: str, features: int) -> None:
    path = write()
    pd.read_csv(path / "nodes.csv").drop(columns="x").to_csv(path / "nodes.csv", index=False)
    data = GraphData(path, make=make)
    assert data.x_NF.shape == (40, features)
    assert warned(data, f"made of their {make}")
    if make == "degree":
        np.testing.assert_allclose(data.features.values[:][:, 0], np.log(3))


def test_several_labels_and_numbers(write: Write) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 40)).astype(float)
    a[0] = np.nan
    path = write(a=a, b=b, size=rng.normal(size=40))
    several = GraphData(path, ["x"], target=["a", "b"])
    assert several.target.kind == "multilabel"
    assert several.facts()["model"]["out_channels"] == 2
    number = GraphData(path, ["x"], target="size")
    assert number.target.kind == "regression"
    train = number.target.label[number.splits["train"]]
    assert number.facts()["mean_C"] == pytest.approx([float(train.mean())])
    assert GraphData(path, ["x"], target="a", kind="regression").target.label.shape == (40, 1)
    path = write(a=a + 1, b=b)
    with pytest.raises(DataError, match=r"labels of several classes are 0 or 1, not 2"):
        GraphData(path, ["x"], target=["a", "b"], kind="multilabel")


def test_isolated_and_trailing_nodes(write: Write) -> None:
    data = GraphData(write(edges=[(0, 1), (1, 2)]))
    assert data.graph.num_nodes == 40
    assert "37 isolated" in data.report().facts["nodes"]
    assert np.isfinite(np.stack(data.hops_KNF)).all()


def test_loops_duplicates_and_directions_are_said(write: Write) -> None:
    edges = [(0, 1), (0, 1), (1, 0), (2, 2), (2, 3), (3, 4)]
    path = write(edges=edges)
    changed = GraphData(path).report().facts["changed"]
    assert changed == (
        "1 self loops left out (data.loops); 1 duplicate edges merged, weights summed; "
        "the other direction added to 2 edges (data.directed)"
    )
    kept = GraphData(path, loops=True, directed=True)
    assert kept.report().facts["changed"] == "1 duplicate edges merged, weights summed"
    assert kept.graph.counts["distinct"] == 5


def test_leaks_are_named(write: Write) -> None:
    code = np.arange(40) % 2 * 3.0
    split = np.array(["train", "val", "test", "train"] * 10)
    data = GraphData(write(code=code, split=split))
    assert warned(data, "feature code alone gives the label of 100.0% of train nodes: a leak?")
    assert not warned(data, "feature x")
    masks = {f"{it}_masks": np.ones(40, bool) for it in ("train", "val", "test")}
    path = data.raw.files[0].with_name("g.npz")
    x = np.random.default_rng(0).normal(size=(40, 2))
    edges = np.array([[0, 1]])
    np.savez(path, node_features=x, node_labels=np.arange(40) % 2, edges=edges, **masks)
    assert warned(GraphData(path), "40 nodes are in train and in test: scores will flatter")


def test_classes_without_nodes_in_a_split(write: Write) -> None:
    split = np.array(["train", "train", "val", "val", "test"] * 8)
    label = np.where(split == "test", "yes", "no")
    data = GraphData(write(split=split, label=label))
    assert warned(data, "class yes has no node in train: it is not learnt")
    assert warned(data, "class no has no node in test: it is not scored")
    split[split == "test"] = "train"
    with pytest.raises(DataError, match="the test split has no labelled node of 40"):
        _ = GraphData(write(split=split)).splits


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [([], 40, "the graph has no edge"), ([], 1, "the .* split has no labelled node of 1")],
)
def test_graphs_of_next_to_nothing(write: Write, edges: Any, nodes: int, message: str) -> None:
    path = write(nodes, edges)
    (path / "edges.csv").write_text("source,target\n")
    data = GraphData(path)
    if nodes > 1:
        assert warned(data, message)
        assert np.isfinite(np.stack(data.hops_KNF)).all()
    else:
        assert any(message.split(" .*")[0] in it for it in data.report().warnings)
        with pytest.raises(DataError, match=message):
            _ = data.splits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "lable"}, r"has no column lable \(data.target\); did you mean 'label'"),
        ({"inputs": ["y"]}, r"has no column y \(data.inputs\)"),
        ({"inputs": ["label"]}, r"label is text, such as 'no'; features are numbers"),
        ({"classes": ["no"]}, r"the label yes is none of data.classes \(no\)"),
        ({"batches": "hop"}, r"data.batches: got 'hop'; did you mean 'hops'"),
        ({"scale": "row"}, r"data.scale: got 'row'; did you mean 'rows'"),
        ({"missing": "drop"}, r"data.missing: got 'drop'"),
        ({"kind": "class"}, r"data.kind: got 'class'; did you mean 'classes'"),
        ({"label_use": True, "batches": "full"}, r"data.label_use=true needs a model of hops"),
    ],
    ids=str,
)
def test_mistakes(write: Write, arguments: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        GraphData(write(), **arguments)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "givn"}, "data.split.by: got 'givn'; did you mean 'given'"),
        ({"by": "given"}, "has no split of its own; set data.split.by=random"),
        ({"val": 0.7, "test": 0.4}, "val=0.7 and test=0.4 are shares"),
    ],
    ids=str,
)
def test_mistaken_splits(write: Write, split: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        _ = GraphData(write(), split=split).splits


def test_no_labels_at_all(write: Write) -> None:
    path = write()
    (path / "nodes.csv").unlink()
    data = GraphData(path)
    assert warned(data, "no node has a label, so nothing can be learnt")
    with pytest.raises(DataError, match=r"no node has a label.*data\.target"):
        data.samples("train")
    path = write(group=np.where(np.arange(40) % 4, "b", "a"), label=np.arange(40) % 3 + 0.5)
    _, values = propose(path)
    assert values["target"] == "group"


def test_hops_beyond_the_memory_lie_in_files(write: Write, tmp_path: Path) -> None:
    path, store = write(), tmp_path / "store"
    here = GraphData(path, hops=3)
    there = GraphData(path, hops=3, memory_GiB=1e-9, store=str(store))
    for one_NF, other_NF in zip(here.hops_KNF, there.hops_KNF, strict=True):
        np.testing.assert_array_equal(one_NF, other_NF)
        assert isinstance(other_NF, np.memmap)
    assert any(store.iterdir())
    np.testing.assert_array_equal(
        here.samples("test").batch([1], None)["x_BKF"],
        there.samples("test").batch([1], None)["x_BKF"],
    )
    del there
    assert not any(store.iterdir())


def assert_part_of(data: GraphData, batch: Any, node_N: Any) -> None:
    """A batch's edges are entries of the whole graph's normalised matrix."""
    matrix = np.zeros((data.graph.num_nodes,) * 2, np.float32)
    ones = np.eye(data.graph.num_nodes, dtype=np.float32)
    from apps.graphs.hops import propagate

    matrix = propagate(data.graph, data.scales, ones)
    sender, receiver = (node_N[it] for it in batch.edge_index.numpy())
    np.testing.assert_allclose(batch.edge_weight, matrix[receiver, sender], rtol=1e-5)
    np.testing.assert_array_equal(batch.x, data.x_NF[node_N])
    np.testing.assert_array_equal(node_N[batch.place], batch.node)
    np.testing.assert_array_equal(batch.label, data.target.label[batch.node])


def test_full_and_cluster_batches(write: Write) -> None:
    path = write()
    full = GraphData(path, batches="full")
    batch = full.samples("test").batch([0], None)
    assert_part_of(full, batch, np.arange(40))
    assert batch.edge_index.shape[1] == 80 + 40
    np.testing.assert_array_equal(batch.node, full.splits["test"])
    clusters = GraphData(path, batches="clusters", parts=4)
    part_N = partition(clusters.graph, 4)
    samples = clusters.samples("all")
    assert len(samples) == 4
    found = [samples.batch([it], None).node.numpy() for it in range(4)]
    assert sorted(np.concatenate(found)) == list(range(40))
    for it, nodes in enumerate(found):
        assert_part_of(clusters, samples.batch([it], None), np.flatnonzero(part_N == it))
        np.testing.assert_array_equal(nodes, np.flatnonzero(part_N == it))


def test_neighbour_batches_repeat_by_key_and_serve_any_layer(write: Write) -> None:
    from torch_geometric.nn import GCN, GraphSAGE

    samples = GraphData(write(), batches="neighbours", fanouts=[2, 1]).samples("train")
    one, same, other = (samples.batch([2, 0], key) for key in (5, 5, 6))
    assert torch.equal(one.edge_index, same.edge_index)
    assert one.edge_index.shape != other.edge_index.shape or not torch.equal(one.x, other.x)
    for network in (GCN(1, 4, 2, 2), GraphSAGE(1, 4, 2, 2)):
        assert network(one.x, one.edge_index)[one.place].shape == (2, 2)


def test_the_sample_is_as_promised(tmp_path: Path) -> None:
    write_sample(tmp_path / "one", nodes=3000, seed=3)
    write_sample(tmp_path / "two", nodes=3000, seed=3)
    data, same = GraphData(tmp_path / "one"), GraphData(tmp_path / "two")
    np.testing.assert_array_equal(data.x_NF, same.x_NF)
    np.testing.assert_array_equal(data.graph.indices, same.graph.indices)
    assert 16 < data.graph.degree_N.mean() < 20  # of 20, what is drawn twice is one edge
    assert 10 < (data.graph.degree_N == 0).sum() < 60
    homophily = float(data.report().facts["homophily"].split()[0])
    assert 0.65 < homophily < 0.72  # edges that are drawn twice are mostly within a class
    simple = score(data)
    assert simple["accuracy"] < 0.42
    assert simple["accuracy_of_structure"] < 0.75


def test_rmat_has_heavy_tails() -> None:
    ends = rmat_edges(np.random.default_rng(0), 12, 40_000)
    graph = build([(*ends, None)], 1 << 12)
    assert graph.degree_N.max() > 40 * np.median(graph.degree_N)
