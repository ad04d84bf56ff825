"""What becomes of files: inputs, labels, weights, splits; the cases that users report."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from apps.hep.rows import Rows
from scadl_core.errors import DataError
from tests.apps.hep.made import SPLIT, everything, make, table, write


def test_inputs_are_the_formulas_of_every_constituent(jetclass: Any, jets: Path) -> None:
    data = jetclass()
    found, number = everything(data, "test"), 0
    for file in data.files():
        if file.parent.name != "test":
            continue
        with uproot.open(file) as opened:
            branches = opened["tree"].arrays()
        for jet in branches:
            pt = np.hypot(np.asarray(jet.part_px), np.asarray(jet.part_py))
            kept = np.argsort(-pt, kind="stable")[:64]
            features = found["features_BPF"][number][: len(kept)]
            np.testing.assert_allclose(features[:, 0], np.log(pt[kept]), rtol=1e-6)
            np.testing.assert_array_equal(features[:, 3], np.asarray(jet.part_charge)[kept])
            energy = found["vectors_BPD"][number, : len(kept), 3]
            np.testing.assert_array_equal(energy, np.asarray(jet.part_energy)[kept])
            assert found["mask_BP"][number].sum() == len(kept)
            assert not found["features_BPF"][number, len(kept) :].any()
            classes = ["label_QCD", "label_Hbb", "label_Wqq", "label_Tbqq"]
            assert jet[classes[found["label_B"][number]]] == 1
            assert found["weight_B"][number] == pytest.approx(float(jet.gen_weight))
            assert found["mass_B"][number] == pytest.approx(float(jet.jet_sdmass))
            number += 1
    assert number == 200
    assert (found["weight_B"] < 0).mean() == pytest.approx(0.1, abs=0.06)


def test_both_formats_of_the_sample_give_the_same(jetclass: Any) -> None:
    one, other = (everything(jetclass(kind), "train") for kind in ("ttree", "rntuple"))
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


def test_statistics_are_those_of_all_training_rows(jetclass: Any) -> None:
    data = jetclass(chunk_rows=50)
    features = everything(data, "train")
    values_NF = features["features_BPF"][features["mask_BP"]]
    of = data.survey
    np.testing.assert_allclose(
        of["mean_F"], values_NF.mean(0, dtype=np.float64), rtol=1e-5, atol=1e-7
    )
    quantiles = np.quantile(values_NF, (0.16, 0.5, 0.84), axis=0)
    for wanted, q in zip(quantiles, (0.16, 0.5, 0.84), strict=True):
        np.testing.assert_allclose(of[f"q{q}_F"], wanted, rtol=1e-6)
    centre, factor, *_ = np.transpose(data.standards()["particles"])
    np.testing.assert_allclose(centre, quantiles[1], rtol=1e-6)
    widest = np.maximum(quantiles[2] - quantiles[1], quantiles[1] - quantiles[0])
    np.testing.assert_allclose(factor, 1 / np.where(widest > 0, widest, 1), rtol=1e-5)


def test_constituents_in_another_order_are_the_same(
    jets: Path, tmp_path: Path, jetclass: Any
) -> None:
    """Also where some are cut off: the hardest are kept."""
    (tmp_path / "train").mkdir()
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        (tmp_path / split).mkdir(exist_ok=True)
        for file in (jets / "ttree" / split).iterdir():
            with uproot.open(file) as opened:
                found = opened["tree"].arrays()
            key = ak.unflatten(rng.random(ak.sum(ak.num(found.part_px))), ak.num(found.part_px))
            order = ak.argsort(key)
            columns = {
                name: found[name][order] if name.startswith("part_") and found[name].ndim > 1
                else np.asarray(found[name]) for name in found.fields if name != "part_count"
            }  # fmt: skip
            write(tmp_path / split / file.name, **columns)
    settings = {"constituents": {"length": 20, "order": "part_pt"}}
    one, other = jetclass(**settings), jetclass(path=tmp_path, **settings)
    for name, values in everything(one, "test").items():
        np.testing.assert_array_equal(values, everything(other, "test")[name])


def test_rows_of_one_event_are_never_parted_and_folds_cover_all(shared_data: Path) -> None:
    path = shared_data / "hep" / "nano_tt_v12.root"
    settings = {"rows": "Jet", "inputs": ["Jet_pt"], "target": ["Jet_pt<20", "Jet_pt>=20"]}
    tested: set[int] = set()
    for fold in range(4):
        split = {"by": "event", "event": "event", "val": 0.25, "test": 0.25, "fold": fold}
        data = make(path, **settings, split=split)
        parts = [set(it.source_R.tolist()) for it in data.decode(0)]
        assert not parts[0] & parts[1] | parts[1] & parts[2] | parts[0] & parts[2]
        assert not tested & parts[2]
        tested |= parts[2]
    assert tested == set(range(200))


def test_a_split_by_event_is_the_same_wherever_files_are_cut(tmp_path: Path) -> None:
    whole = table()
    write(tmp_path / "whole.root", **whole)
    for number, part in enumerate((slice(0, 130), slice(130, 400))):
        write(tmp_path / f"part{number}.root", **{name: it[part] for name, it in whole.items()})
    split = {"by": "event", "event": "event", **SPLIT}
    one = make(tmp_path / "whole.root", split=split)
    other = make(tmp_path / "part*.root", split=split)
    for name in ("train", "val", "test"):
        for key, values in everything(one, name).items():
            np.testing.assert_array_equal(values, everything(other, name)[key])


def test_files_sorted_by_class_are_split_at_random(shared_data: Path) -> None:
    """dalitzdata.root: all of one class, then all of the other."""
    path = shared_data / "hep" / "dalitzdata.root"
    data = make(path, inputs=["Y1"], target="labels")
    shares = data.survey["weights_SK4"][:, 1, 0] / data.survey["weights_SK4"][:, :, 0].sum(1)
    np.testing.assert_allclose(shares, shares.mean(), atol=0.02)


def test_events_without_an_object_count(shared_data: Path) -> None:
    path = shared_data / "hep" / "uproot-HZZ.root"
    inputs = {"particles": ["Jet_Px"], "flat": ["NMuon"]}
    found = everything(make(path, inputs=inputs, target=["NJet==0", "NJet>0"]))
    assert (found["mask_BP"].sum(1) == 0).sum() == 716 == (found["label_B"] == 0).sum()


def test_constituents_by_reference_are_those_of_the_links(shared_data: Path) -> None:
    """Against a loop over all links, in plain Python."""
    data = make(
        shared_data / "hep" / "pfnano.root",
        tree="Events", rows="FatJet",
        links={"PFCands": {"object": "FatJetPFCands_jetIdx", "item": "FatJetPFCands_pFCandsIdx"}},
        inputs={"particles": ["PFCands_pt"]}, constituents={"length": 500},
        target=["FatJet_pt < 0", "FatJet_pt >= 0"], split={"val": 0.3, "test": 0.3},
    )  # fmt: skip
    columns = Rows(data.recipe, data.tables[0], 0, 10).columns()
    with uproot.open(data.files()[0]) as file:
        names = ["FatJetPFCands_jetIdx", "FatJetPFCands_pFCandsIdx", "PFCands_pt", "FatJet_pt"]
        events = file["Events"].arrays(names)
    expected: list[list[float]] = []
    for event in events:
        mine: list[list[float]] = [[] for _ in event.FatJet_pt]
        for jet, item in zip(event[names[0]], event[names[1]], strict=True):
            mine[jet].append(float(event.PFCands_pt[item]))
        expected += mine
    assert columns.number_R.tolist() == list(map(len, expected))
    assert columns.number_R.sum() == 1076
    np.testing.assert_array_equal(columns.features_NF[:, 0], np.float32(list(chain(*expected))))


def test_a_weight_may_be_missing_in_data_but_no_input(tmp_path: Path) -> None:
    simulated = table(seed=1) | {"weight": np.full(400, -0.5)}
    write(tmp_path / "simulated.root", **simulated)
    write(tmp_path / "data.root", **table(seed=2))
    data = make(tmp_path, weight="weight")
    assert set(everything(data)["weight_B"].tolist()) == {1.0, -0.5}
    warned = "\n".join(data.report().warnings)
    assert "data.root: tree has no weight, as in collision data: its rows weigh 1" in warned
    lacking = {name: it for name, it in table().items() if name != "y"}
    write(tmp_path / "lacking.root", **lacking)
    with pytest.raises(DataError, match=r"lacking.root: tree has no branch 'y'.*data.inputs.flat"):
        make(tmp_path)
    with pytest.raises(DataError, match=r"no branch 'wieght'; did you mean 'weight'.*data.weight"):
        make(tmp_path / "simulated.root", weight="wieght")


def test_sentinels_and_nan_are_the_centre_and_are_reported(tmp_path: Path) -> None:
    columns = table()
    columns["x"][::4], columns["y"][::5] = -999, np.nan
    path = write(tmp_path / "a.root", **columns)
    warned = "\n".join(make(path).report().warnings)
    assert "x is -999 in 2" in warned
    assert "data.sentinels=[-999]" in warned
    assert "y is missing (NaN) in" in warned
    data = make(path, sentinels=[-999])
    assert data.survey["min_F"][0] > -10
    assert np.isnan(everything(data)["flat_BG"][:, 0]).sum() == 100


def test_types_that_differ_are_reported_and_read(tmp_path: Path) -> None:
    for number, dtype in enumerate((np.int32, np.float32, np.bool_)):
        columns = table(seed=number)
        write(tmp_path / f"{number}.root", **columns | {"label": columns["label"].astype(dtype)})
    data = make(tmp_path)
    differing = data.report().facts["differs across files"]
    assert "label: int32_t in 0.root, float in 1.root, bool in 2.root" in differing
    assert set(everything(data)["label_B"].tolist()) == {0, 1}


def test_statistics_are_kept_until_something_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.root", **table())
    one = make(path, statistics=str(tmp_path / "kept"))
    first = one.facts()
    again = make(path, statistics=str(tmp_path / "kept"))
    again._read = lambda chunk: pytest.fail("was read again")  # type: ignore[method-assign]
    assert again.facts() == first
    write(path, **table(seed=9))
    assert make(path, statistics=str(tmp_path / "kept")).facts() != first
