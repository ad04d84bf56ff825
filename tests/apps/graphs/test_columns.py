"""Graphs on disk are those in memory."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apps.graphs import columns
from apps.graphs.columns import columns_of
from apps.graphs.data import GraphData
from apps.graphs.formats import ogb, tables
from apps.graphs.sample import write_sample


def test_columns_change_their_type_on_the_way(tmp_path: Path) -> None:
    """The first piece says whole numbers, a later one that some are missing, or texts."""
    pieces = [
        pd.DataFrame({"a": [1, 2], "b": [1.5, 2], "c": [1, 2], "d": [True, False]}),
        pd.DataFrame({"a": [3, 2**40], "b": [np.nan, 1], "c": ["x", "y"], "d": [True, True]}),
        pd.DataFrame({"a": [np.nan, 0], "b": [0, 1], "c": ["z", None], "d": [False, True]}),
    ]
    on_disk, in_memory = (columns_of(lambda: iter(pieces), it) for it in (tmp_path, None))
    assert [it.dtype.kind for it in on_disk.values()] == list("ffOb")
    for name, values in in_memory.items():
        pd.testing.assert_series_equal(
            pd.Series(np.array(on_disk[name])), pd.Series(values), check_dtype=False
        )
    assert isinstance(on_disk["a"], np.memmap)


def of_sample(folder: Path, ending: str) -> Path:
    write_sample(folder / "graph", nodes=500, classes=3, features=5, degree=6)
    for name in ("nodes", "edges"):
        path = folder / "graph" / f"{name}.parquet"
        if ending == "csv":
            pd.read_parquet(path).to_csv(path.with_suffix(".csv"), index=False)
            path.unlink()
    return folder / "graph"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("words", [{}, {"missing": "mean"}, {"label_use": True}])
def test_disk_and_memory_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, words: dict[str, Any]
) -> None:
    path = of_sample(tmp_path, ending)
    if words.get("missing"):
        table = pd.read_parquet(path / f"nodes.{ending}") if ending == "parquet" else (
            pd.read_csv(path / "nodes.csv")
        )  # fmt: skip
        table.loc[7:90, "feature_01"] = np.nan
        getattr(table, f"to_{ending}")(path / f"nodes.{ending}", index=False)
    monkeypatch.setattr(tables, "CHUNK_VALUES", 700)
    monkeypatch.setattr("apps.graphs.data.BLOCK", 60)
    disk = GraphData(path, storage="disk", hops=2, store=str(tmp_path / "store"), **words)
    memory = GraphData(path, storage="memory", hops=2, **words)
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(disk.graph, name), getattr(memory.graph, name))
        assert isinstance(getattr(disk.graph, name), np.memmap)
    assert isinstance(disk.raw.columns["feature_00"], np.memmap)
    for on_disk, in_memory in zip(disk.hops_KNF, memory.hops_KNF, strict=True):
        assert isinstance(on_disk, np.memmap)
        np.testing.assert_array_equal(on_disk, in_memory)
    assert disk.facts() == memory.facts()
    batches = [it.samples("train").batch([0, 3], None) for it in (disk, memory)]
    np.testing.assert_array_equal(*(it["x_BKF"] for it in batches))
    folder = disk._folder
    assert folder.parent == tmp_path / "store"
    del disk, on_disk, batches
    assert not folder.exists()


def test_large_files_go_to_disk_by_themselves(tmp_path: Path) -> None:
    path = of_sample(tmp_path, "parquet")
    size = sum(it.stat().st_size for it in path.iterdir()) / 2**30
    assert GraphData(path, memory_GiB=3.9 * size).on_disk
    assert not GraphData(path, memory_GiB=4.1 * size).on_disk


def test_features_of_ogb_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    x = np.arange(40.0).reshape(10, 4) / 3
    for name, values in {
        "edge": [[0, 1], [2, 3]], "node-feat": x, "num-node-list": [[10]],
        "node-label": np.arange(10)[:, None] % 2,
    }.items():  # fmt: skip
        with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            pd.DataFrame(values).to_csv(file, header=False, index=False)
    monkeypatch.setattr(ogb, "BLOCK", 3)
    for storage in ("disk", "memory"):
        data = GraphData(tmp_path, storage=storage, scale="none")
        np.testing.assert_allclose(data.x_NF, x, rtol=1e-6)
    assert columns.BLOCK == 65536
