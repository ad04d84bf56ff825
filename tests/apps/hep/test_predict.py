"""Predictions: every row of every input, in order, whatever the format and the number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import uproot

from apps.hep.data import HEPData
from apps.hep.model import DeepSets
from apps.hep.predict import predict_files
from apps.hep.task import Classification
from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError

SIZES = (0, 1, 2, 1023, 1024, 1025)


def untrained(data: HEPData, **sizes: Any) -> Classification:
    torch.manual_seed(0)
    facts = data.facts()
    network = DeepSets(**facts["model"], **{"width": 8, **sizes})
    return Classification(network=network, facts=facts, world=World()).eval()


def flat_file(path: Path, rows: int, first: int = 0) -> Path:
    number = np.arange(first, first + rows, dtype=np.int64)
    columns = {"event": number, "x": np.sin(number), "label": (number % 2).astype(np.int32)}
    with uproot.recreate(path) as file:
        tree = file.mktree("tree", {name: it.dtype for name, it in columns.items()})
        for start in range(0, rows, 100_000):
            tree.extend({name: it[start : start + 100_000] for name, it in columns.items()})
    return path


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Classification:
    path = flat_file(tmp_path_factory.mktemp("flat") / "a.root", 200)
    return untrained(HEPData(path, ["x"], "label", ["even", "odd"]), depth=1, head=1)


def read(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".parquet":
        return {name: it.to_numpy() for name, it in zip(*_columns(path), strict=True)}
    with uproot.open(path) as file:
        return {
            name: file["scores"][name].array(library="np")
            for name in file["scores"].keys(recursive=False)
        }


def _columns(path: Path) -> tuple[list[str], list[Any]]:
    with pq.ParquetFile(path) as file:
        found = file.read()
    return found.column_names, found.columns


@pytest.mark.parametrize("form", ["ttree", "rntuple", "parquet"])
@pytest.mark.parametrize("rows", SIZES)
def test_as_many_rows_come_out_as_go_in(
    flat: Classification, tmp_path: Path, rows: int, form: str
) -> None:
    path = flat_file(tmp_path / "a.root", rows)
    written = predict_files(flat, path, tmp_path / "out", {"run": 1}, keep=["event"], format=form)
    found = read(written)
    assert found.keys() == {"score_even", "score_odd", "input", "row", "event"}
    np.testing.assert_array_equal(found["event"], np.arange(rows))
    np.testing.assert_array_equal(found["row"], np.arange(rows))
    x = torch.tensor(np.sin(np.arange(rows)), dtype=torch.float32)[:, None]
    nothing = torch.zeros(rows, 0, 0), torch.zeros(rows, 0, dtype=torch.bool)
    with torch.no_grad():
        expected = flat(*nothing, torch.zeros(rows, 0, 0), torch.zeros(rows, 0, 0), x).softmax(1)
    np.testing.assert_allclose(found["score_odd"], expected[:, 1], rtol=0, atol=1e-6)


@pytest.mark.soak
def test_a_million_rows_and_one(flat: Classification, tmp_path: Path) -> None:
    rows = 1_048_577
    path = flat_file(tmp_path / "a.root", rows)
    for form in ("ttree", "rntuple", "parquet"):
        found = read(predict_files(flat, path, tmp_path / form, {}, keep=["event"], format=form))
        np.testing.assert_array_equal(found["event"], np.arange(rows))


def test_several_inputs_follow_one_another(flat: Classification, tmp_path: Path) -> None:
    for number, (first, rows) in enumerate(((0, 5), (5, 0), (5, 7))):
        flat_file(tmp_path / f"{number}.root", rows, first)
    (tmp_path / "out").mkdir()
    written = predict_files(
        flat, tmp_path / "*.root", tmp_path / "out", {}, keep=["event", "x * 2"]
    )
    assert written == tmp_path / "out" / "0_scores.root"
    found = read(written)
    np.testing.assert_array_equal(found["event"], np.arange(12))
    np.testing.assert_array_equal(found["input"], [0] * 5 + [2] * 7)
    np.testing.assert_allclose(found["x_2"], 2 * np.sin(np.arange(12)), rtol=1e-6)


def test_splitting_files_and_padding_more_change_nothing(
    jetclass: Any, jets: Path, tmp_path: Path
) -> None:
    data = jetclass()
    task, source = untrained(data), jets / "ttree" / "test" / "TTBar_000.root"
    whole = read(predict_files(task, source, tmp_path / "whole.root", {}))
    with uproot.open(source) as file:
        found = file["tree"].arrays()
    for part, rows in enumerate((slice(0, 13), slice(13, None))):
        with uproot.recreate(tmp_path / f"part{part}.root") as file:
            names = [name for name in found.fields if name != "part_count"]
            file["tree"] = {name: ak.to_packed(found[name][rows]) for name in names}
    parts = read(predict_files(task, tmp_path / "part?.root", tmp_path / "parts.root", {}))
    for name in ("score_QCD", "score_Tbqq"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=0, atol=1e-6)
    task.facts["recipe"]["length"] = 200
    longer = read(predict_files(task, source, tmp_path / "longer.root", {}))
    short = np.asarray(ak.num(found.part_px)) <= 64
    assert short.sum() > 10
    np.testing.assert_allclose(longer["score_QCD"][short], whole["score_QCD"][short], atol=1e-6)


@pytest.mark.parametrize("form", ["ttree", "rntuple", "parquet"])
def test_lists_are_kept_beside_scores(jetclass: Any, jets: Path, tmp_path: Path, form: str) -> None:
    source = jets / "ttree" / "test" / "HToBB_000.root"
    task = untrained(jetclass())
    keep = ["part_charge", "jet_pt", "hypot(part_px, part_py)"]
    written = predict_files(task, source, tmp_path / "out", {"a": 1}, keep=keep, format=form)
    with uproot.open(source) as file:
        given = file["tree"].arrays(["part_charge", "jet_pt"])
    if form == "parquet":
        found = ak.from_parquet(written)
    else:
        with uproot.open(written) as file:
            found = file["scores"].arrays()
            assert str(file["about"]) == '{"a": 1}'
    assert ak.to_list(found["part_charge"]) == ak.to_list(given["part_charge"])
    np.testing.assert_array_equal(found["jet_pt"], given["jet_pt"])
    assert ak.num(found["hypot_part_px_part_py"])[3] == ak.num(given["part_charge"])[3]


def test_ranks_write_what_one_process_does(
    jetclass: Any, jets: Path, tmp_path: Path, run_ranks: Callable[..., Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr("apps.hep.predict.CHUNK_ROWS", 10)
    task, source = untrained(jetclass()), str(jets / "ttree" / "test" / "*.root")
    alone = read(predict_files(task, source, tmp_path / "one.root", {}, keep=["jet_pt"]))

    def predict() -> str:
        world = World.start()
        return str(predict_files(task, source, tmp_path / "3.root", {}, ["jet_pt"], world=world))

    assert run_ranks(3, predict) == [str(tmp_path / "3.root")] * 3
    several = read(tmp_path / "3.root")
    assert list(several) == list(alone)
    for name, values in alone.items():
        np.testing.assert_array_equal(several[name], values)


def test_rows_that_training_would_not_take_are_predicted(
    jetclass: Any, jets: Path, tmp_path: Path
) -> None:
    data = jetclass(selection="jet_pt > 750", target=["label_QCD", "label_Hbb"], classes=["a", "b"])
    written = predict_files(untrained(data), jets / "ttree" / "test", tmp_path / "a.root", {})
    assert len(read(written)["row"]) == 200


def test_mistakes(flat: Classification, jets: Path, tmp_path: Path) -> None:
    path = flat_file(tmp_path / "a.root", 3)
    with pytest.raises(DataError, match=r"output=.*a.root is an input as well"):
        predict_files(flat, path, path, {})
    with pytest.raises(ConfigError, match=r"predict.format=root; there is: parquet"):
        predict_files(flat, path, tmp_path / "o.root", {}, format="root")
    with pytest.raises(DataError, match=r"a.root: tree has no branch 'evnt'; did you mean 'event'"):
        predict_files(flat, path, tmp_path / "o.root", {}, keep=["evnt"])
    with pytest.raises(DataError, match=r"TTBar_000.root: tree has no branch 'x'"):
        predict_files(flat, jets / "ttree" / "test" / "TTBar_000.root", tmp_path / "o.root", {})
    assert not (tmp_path / "o.root").exists()
