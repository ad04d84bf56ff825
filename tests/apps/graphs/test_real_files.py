"""Every file and folder of real graphs: its counts as its source has them, or why it is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from apps.graphs.audit import homophily
from apps.graphs.data import GraphData
from apps.graphs.files import read
from apps.graphs.formats.planetoid import PARTS
from scadl_core.errors import DataError


class Counts(NamedTuple):
    """As in SOURCES.md and the papers: nodes, edges both ways counted once, classes, features."""

    nodes: int
    edges: int
    classes: int
    features: int
    read: int  # edges in the file
    isolated: int = 0
    homophily: float | None = None


CORA = Counts(2708, 5278, 7, 1433, 10858, 0, 0.810)  # 10,556 of its edges are distinct
CITESEER = Counts(3327, 4552, 6, 3703, 9464, 48, 0.738)  # .736 if the unlabelled are of class 0
SHCHUR = Counts(2708, 5278, 7, 1433, 5429, 0, 0.810)
CORA_ML = Counts(2995, 8158, 7, 2879, 8416, 0, 0.789)
MADE = 5  # features of the degrees, where a file has none
USED = {
    **{f"planetoid_cora/ind.cora.{part}": CORA for part in PARTS},
    **{f"planetoid_citeseer/ind.citeseer.{part}": CITESEER for part in PARTS},
    "planetoid_cora": CORA,
    "planetoid_citeseer": CITESEER,
    "npz_shchur": SHCHUR,
    "npz_shchur/cora.npz": SHCHUR,
    "npz_sparsegraph": CORA_ML,
    "npz_sparsegraph/cora_ml.npz": CORA_ML,
    "npz_heterophilous/minesweeper.npz": Counts(10000, 39402, 2, 7, 39402, 0, 0.683),
    "npz_heterophilous/tolokers.npz": Counts(11758, 519000, 2, 10, 519000, 0, 0.595),
    "npz_heterophilous/texas.npz": Counts(183, 279, 5, 1703, 279, 0, 0.061),
    "npz_heterophilous/actor.npz": Counts(7600, 26659, 5, 932, 26659, 0, 0.217),
    "edgelist/cora.cites": Counts(2708, 5278, 0, MADE, 5429),
    "edgelist/WormNet.v3.benchmark.txt": Counts(2445, 78736, 0, MADE, 78736),
    "edgelist/lanl_routes.edgelist": Counts(1358, 1363, 0, MADE, 1363),
    "edgelist/football.edgelist": Counts(115, 613, 0, MADE, 613),
    "mice_connectome": Counts(332, 40095, 0, MADE, 40095),
    "mice_connectome/sub-54781_ses-1_dti.edgelist": Counts(332, 40095, 0, MADE, 40095),
    "graphml": Counts(77, 254, 0, MADE, 254),
    "graphml/miserables.graphml": Counts(77, 254, 0, MADE, 254),
}
REFUSED = {
    "SOURCES.md": r"files ending in \.csv.* are read",
    "edgelist": r"4 files \(.*\) are several graphs; name one of them",
    "npz_heterophilous": r"4 files \(actor.npz, .*\) are several graphs; name one of them",
    "mice_connectome/atlas.csv": r"no list of edges: atlas.csv has ROI, Structure",
    "mice_connectome/blocks.csv": r"no list of edges: blocks.csv has block, hemisphere, i, j",
    "mice_connectome/participants.csv": r"no list of edges: participants.csv has",
}


def test_every_file_and_folder_is_listed(shared_data: Path) -> None:
    root = shared_data / "graphs"
    assert {str(it.relative_to(root)) for it in root.rglob("*")} == {*USED, *REFUSED}


@pytest.mark.parametrize("name", USED)
def test_counts_are_those_of_the_source(shared_data: Path, name: str) -> None:
    data, counts = GraphData(shared_data / "graphs" / name), USED[name]
    graph, target = data.graph, data.target
    assert graph.num_nodes == counts.nodes
    assert len(graph.indices) == 2 * counts.edges
    assert graph.counts["read"] == counts.read
    assert len(target.names) == counts.classes
    assert len(data.features.names) == counts.features
    assert int((graph.degree_N == 0).sum()) == counts.isolated
    if counts.homophily is not None:
        assert homophily(graph, target.label) == pytest.approx(counts.homophily, abs=6e-4)
    assert len(data.raw.ids.values) == counts.nodes
    assert data.report().facts["nodes"].startswith(f"{counts.nodes}, {counts.isolated} isolated")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(shared_data: Path, name: str) -> None:
    with pytest.raises(DataError, match=REFUSED[name]) as caught:
        GraphData(shared_data / "graphs" / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "test"), [("cora", 1000), ("citeseer", 1000)])
def test_the_public_split(shared_data: Path, name: str, test: int) -> None:
    data = GraphData(shared_data / "graphs" / f"planetoid_{name}")
    classes = len(data.target.names)
    sizes = {it: len(nodes) for it, nodes in data.splits.items()}
    assert sizes == {"train": 20 * classes, "val": 500, "test": test}
    train = data.target.label[data.splits["train"]]
    assert np.bincount(train).tolist() == [20] * classes


def test_published_splits_by_number(shared_data: Path) -> None:
    path = shared_data / "graphs" / "npz_heterophilous" / "texas.npz"
    splits: list[Any] = [GraphData(path, split={"number": it}).splits["test"] for it in (0, 9)]
    assert len(splits[0]) == len(splits[1]) == 37
    assert not np.array_equal(*splits)


def test_ids_are_the_files_own(shared_data: Path) -> None:
    graphs = shared_data / "graphs"
    assert "H28O16.1" in read(graphs / "edgelist" / "WormNet.v3.benchmark.txt").ids.index
    cites = read(graphs / "edgelist" / "cora.cites")
    assert cites.ids.values[:2].tolist() == [35, 40]
    assert "Countess de Lo" in read(graphs / "graphml").ids.index


def test_a_leaflet_of_what_was_changed(shared_data: Path) -> None:
    """Edges kept once, isolated nodes, nodes without features: said in the audit."""
    report = GraphData(shared_data / "graphs" / "planetoid_citeseer").report()
    assert any("15 nodes of ind.citeseer have neither" in it for it in report.warnings)
    assert re.search(r"duplicate edges merged", report.facts["changed"])
    report = GraphData(shared_data / "graphs" / "mice_connectome").report()
    assert "not used: atlas.csv, blocks.csv, participants.csv" in report.warnings
    texas = GraphData(shared_data / "graphs" / "npz_heterophilous" / "texas.npz").report()
    assert "class 1 has no node in train: it is not learnt" in texas.warnings
    assert "the other direction added to 279 edges" in texas.facts["changed"]
