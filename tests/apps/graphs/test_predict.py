"""From the command line: train, predict another graph in its own ids, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apps.graphs.sample import write_sample

Scadl = Callable[..., Any]
QUICK = ("trainer.max_epochs=6", "trainer.accelerator=cpu", "loader.batch_size=16", "data=graph")


def done(outcome: Any) -> str:
    assert (outcome.status, outcome.err) == (0, "")
    return str(outcome.out)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two graphs of one kind: classes have the same features in both."""
    folder = tmp_path_factory.mktemp("graphs")
    write_sample(folder / "both", nodes=1200, classes=3, features=6, signal=1.2)
    nodes, edges = (pd.read_parquet(folder / "both" / f"{it}.parquet") for it in ("nodes", "edges"))
    for name, part in (("one", nodes[:800]), ("other", nodes[800:])):
        (folder / name).mkdir()
        inside = edges.isin(set(part["id"])).all(axis=1)
        part.to_parquet(folder / name / "nodes.parquet")
        edges[inside].to_parquet(folder / name / "edges.parquet")
    return folder


def train(scadl: Scadl, graphs: Path, *words: str) -> dict[str, float]:
    done(scadl("train", "graphs", *QUICK, f"data.path={graphs}/one", *words, "run.dir=run"))
    return json.loads(Path("run/metrics.json").read_text())


def test_an_unseen_graph_in_its_own_ids(scadl: Scadl, graphs: Path, workplace: Path) -> None:
    metrics = train(scadl, graphs)
    assert metrics["test/accuracy"] > metrics["baseline/accuracy"]
    shuffled = pd.read_parquet(graphs / "other" / "nodes.parquet")
    for ending in ("csv", "parquet"):
        path = f"input={graphs}/other"
        done(scadl("predict", "graphs", "run.dir=run", path, f"output=p.{ending}"))
    table, same = pd.read_csv("p.csv"), pd.read_parquet("p.parquet")
    assert table["id"].tolist() == shuffled["id"].tolist() == same["id"].tolist()
    names = [f"probability_class_{it}" for it in range(3)]
    assert list(same.columns) == ["id", "label", *names]
    np.testing.assert_allclose(same[names].sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(table[names], same[names], atol=1e-6)
    best = same[names].to_numpy().argmax(1)
    assert same["label"].tolist() == [f"class_{it}" for it in best]
    assert (same["label"] == shuffled["label"].to_numpy()).mean() > 0.6
    reordered = workplace / "reordered"
    reordered.mkdir()
    shuffled.iloc[::-1].to_parquet(reordered / "nodes.parquet")
    pd.read_parquet(graphs / "other" / "edges.parquet").to_parquet(reordered / "edges.parquet")
    done(scadl("predict", "graphs", "run.dir=run", "input=reordered", "output=r.parquet"))
    turned = pd.read_parquet("r.parquet")
    assert turned["id"].tolist() == same["id"].tolist()[::-1]
    np.testing.assert_allclose(turned[names].to_numpy()[::-1], same[names], atol=1e-5)

    renamed = workplace / "renamed"
    renamed.mkdir()
    shuffled.rename(columns={"feature_03": "mass"}).to_parquet(renamed / "nodes.parquet")
    shuffled[["id"]].rename(columns={"id": "source"}).assign(target=shuffled["id"]).to_parquet(
        renamed / "edges.parquet"
    )
    outcome = scadl("predict", "graphs", "run.dir=run", "input=renamed", "output=x.csv")
    assert outcome.status == 2
    assert "lacks the features feature_03 of the training" in outcome.err
    assert not Path("x.csv").exists()
    outcome = scadl("predict", "graphs", "run.dir=run", path, "output=x.nc")
    assert "output=x.nc" in outcome.err or "end in .parquet or .csv" in outcome.err
    assert outcome.status == 2
    done(scadl("evaluate", "graphs", "run.dir=run", f"data.path={graphs}/other", "output=e.json"))
    assert json.loads(Path("e.json").read_text())["accuracy"] > 0.6


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("model=gcn",), marks=pytest.mark.soak),
        (
            "model=gat",
            "model.heads=2",
            "data.batches=clusters",
            "data.parts=4",
            "loader.batch_size=2",
        ),
        ("model=sage", "data.batches=neighbours", "loader.workers=1"),
        pytest.param(("model=gamlp", "task.class_weights=inverse"), marks=pytest.mark.soak),
        (
            "model=ga_mlp",
            "data.label_use=true",
            "task.smooth.correct=0.5",
            "task.smooth.smooth=0.5",
        ),
        pytest.param(("model=sgc",), marks=pytest.mark.soak),
    ],
    ids=["gcn", "gat", "sage", "gamlp", "ga_mlp", "sgc"],
)
def test_every_model_trains(
    scadl: Scadl, graphs: Path, workplace: Path, words: tuple[str, ...]
) -> None:
    metrics = train(scadl, graphs, *words)
    assert 0 < metrics["test/accuracy"] <= 1
    assert len(pd.read_parquet(next(Path("run/predictions").iterdir()))) == 800


@pytest.mark.parametrize(
    ("words", "score"),
    [
        (("data.target=[is_0,is_1]",), "f1_micro"),
        (("data.target=feature_00", "data.kind=regression"), "r2"),
    ],
    ids=["multilabel", "regression"],
)
def test_other_kinds_of_labels(
    scadl: Scadl, graphs: Path, workplace: Path, words: tuple[str, ...], score: str
) -> None:
    nodes = pd.read_parquet(graphs / "one" / "nodes.parquet")
    for name in ("0", "1"):
        nodes[f"is_{name}"] = (nodes["label"] == f"class_{name}").astype(int)
    Path("mine").mkdir()
    nodes.to_parquet("mine/nodes.parquet")
    pd.read_parquet(graphs / "one" / "edges.parquet").to_parquet("mine/edges.parquet")
    inputs = "data.inputs=[feature_01,feature_02,feature_03,feature_04]"
    done(scadl("train", "graphs", *QUICK, "data.path=mine", inputs, *words, "run.dir=run"))
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert f"test/{score}" in metrics
    table = pd.read_parquet(next(Path("run/predictions").iterdir()))
    wanted = {"f1_micro": {"label_is_0", "probability_is_1"}, "r2": {"feature_00"}}[score]
    assert wanted <= set(table.columns)


def test_check_writes_a_page_that_trains(scadl: Scadl, graphs: Path, workplace: Path) -> None:
    out = done(scadl("check", "graphs", "data=graph", f"data.path={graphs}/one"))
    assert re.search(r"homophily: 0\.[67]", out)
    words = out.split("train on it: scadl ")[1].split()
    done(scadl(*words, *QUICK[:3], "run.dir=run"))
    assert "800, " in Path("run/report.html").read_text()
