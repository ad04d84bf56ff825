"""Every real file is predicted on, row by row; or refused with one message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import uproot

from apps.hep.data import HEPData
from apps.hep.model import DeepSets
from apps.hep.predict import predict_files
from apps.hep.task import Classification
from scadl_core.comm import World
from scadl_core.errors import DataError

JETS = {
    "tree": "Events",
    "rows": "Jet",
    "inputs": ["Jet_pt", "Jet_eta", "Jet_mass", "Jet_area"],
    "target": ["Jet_pt < 25", "Jet_pt >= 25"],
}
MUONS: dict[str, Any] = {"rows": "Muon", "inputs": ["Muon_pt", "abs(Muon_eta)", "Muon_mass"]}
MUONS["target"] = ["Muon_charge < 0", "Muon_charge > 0"]
FAT_JETS = {
    "tree": "Events",
    "rows": "FatJet",
    "links": {"PFCands": {"object": "FatJetPFCands_jetIdx", "item": "FatJetPFCands_pFCandsIdx"}},
    "inputs": {"particles": ["PFCands_pt / FatJet_pt", "PFCands_eta", "PFCands_charge"]},
    "constituents": {"length": 100, "order": "PFCands_pt"},
    "target": ["FatJet_msoftdrop < 30", "FatJet_msoftdrop >= 30"],
    "split": {"by": "event", "event": "event", "val": 0.3, "test": 0.3},
}
CALORIMETER: dict[str, Any] = {"target": ["CaloMET_pt < 20", "CaloMET_pt >= 20"], "tree": "Events"}
CALORIMETER["split"] = {"by": "event", "event": ["run", "event"], "val": 0.2, "test": 0.2}
CALORIMETER["inputs"] = {"flat": ["CaloMET_sumEt"], "particles": ["Muon_pt", "Muon_eta"]}
HZZ = {
    "inputs": {"particles": ["Jet_Px", "Jet_Py", "Jet_E", "Jet_btag"], "flat": ["NMuon", "MET_px"]},
    "target": ["NJet < 1", "NJet >= 1"],
    "weight": "EventWeight",
}
USED: dict[str, tuple[dict[str, Any], int]] = {  # settings, and rows predicted
    "PHYSLITE_example.root": (
        {
            "rows": "AnalysisJetsAuxDyn",
            "inputs": ["AnalysisJetsAuxDyn.eta", "AnalysisJetsAuxDyn.m"],
            "target": ["AnalysisJetsAuxDyn.pt < 3e4", "AnalysisJetsAuxDyn.pt >= 3e4"],
            "weight": "EventInfoAuxDyn.mcEventWeights[0]",
        },
        881,
    ),
    "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root": (MUONS, 2372),
    "cmsopendata2015_ttbar_19980_NANOAOD_RNTupleImporter_rntuple_v1-0-0-1.root": (JETS, 75),
    "dalitzdata.root": (
        {"inputs": ["Y1", "Y2", "Y3"], "target": "labels", "classes": ["a", "b"]},
        100_000,
    ),
    "ftag_mock_file1.h5": (
        {
            "inputs": {
                "flat": ["jets.pt", "jets.eta"],
                "particles": ["tracks.d0", "tracks.deta", "tracks.dphi"],
            },
            "constituents": {"length": 40},
            "target": [f"jets.flavour_label == {it}" for it in (0, 4, 5)],
            "classes": ["light", "c", "b"],
        },
        1000,
    ),
    "nano_dimuon.root": ({**CALORIMETER, "weight": None}, 40),
    "nano_dy.root": ({**CALORIMETER, "weight": "genWeight"}, 40),
    "nano_dy_SpecialTree.root": ({**CALORIMETER, "weight": "genWeight"}, 40),
    "nano_dy_rntuple.root": ({**CALORIMETER, "weight": "genWeight"}, 40),
    "nano_tree.root": (JETS, 31),
    "nano_tt_v12.root": (
        {**JETS, "target": ["Jet_hadronFlavour != 5", "Jet_hadronFlavour == 5"]},
        1504,
    ),
    "pfnano.root": (FAT_JETS, 24),
    "pfnano_rntuple.root": (FAT_JETS, 24),
    "scouting_nano.root": (
        {
            "rows": "ScoutingJet",
            "inputs": ["ScoutingJet_pt", "ScoutingJet_eta"],
            "target": ["ScoutingJet_mass < 5", "ScoutingJet_mass >= 5"],
        },
        337,
    ),
    "uproot-HZZ-objects.root": (
        {
            "inputs": {"particles": ["jetp4.fE", "jetp4.fP.fX"], "flat": ["MET.fX"]},
            "target": ["num(jetbtag) < 1", "num(jetbtag) >= 1"],
            "weight": "eventweight",
        },
        2421,
    ),
    "uproot-HZZ.root": (HZZ, 2421),
    "uproot-Zmumu.root": (
        {"inputs": ["pt1", "eta1", "pt2", "eta2"], "target": ["M < 80", "M >= 80"]},
        2304,
    ),
    "uproot-issue243-new.root": (
        {
            "tree": ["sig", "sideband"],
            "inputs": ["njets", "pairing_score_1", "pairing_score_2"],
            "target": ['tree == "sideband"', 'tree == "sig"'],
            "weight": "mc_sf",
        },
        838,
    ),
    "uproot-physlite-rntuple_v1-0-0-0.root": (
        {
            "tree": "EventData",
            "rows": "AnalysisJetsAuxDyn",
            "inputs": ["AnalysisJetsAuxDyn.eta", "AnalysisJetsAuxDyn.m"],
            "target": ["AnalysisJetsAuxDyn.pt < 3e4", "AnalysisJetsAuxDyn.pt >= 3e4"],
        },
        881,
    ),
}
REFUSED = {  # settings, and what is said
    "bad_delphes.root": ({}, r"holds no table \(a TTree or an RNTuple\)"),
    "nano_dy_empty.root": (CALORIMETER, "no rows; give data.path files that have some"),
    "nano_dy_empty_rntuple.root": (CALORIMETER, "no rows; give data.path files that have some"),
    "uproot-empty.root": (
        {"inputs": ["x", "y"], "target": ["z < 0", "z >= 0"]},
        "no rows; give data.path files that have some",
    ),
    "uproot-vectorVectorDouble.root": (
        {"inputs": {"particles": ["x"]}, "target": ["num(x) < 1", "num(x) >= 1"]},
        "x has lists of lists; take an entry or a sum",
    ),
}
SPLIT = {"val": 0.3, "test": 0.3}
ANY = {"inputs": ["x"], "target": "y", "classes": ["no", "yes"]}


def opened(path: Path, **settings: Any) -> HEPData:
    return HEPData(path, **{**ANY, "split": SPLIT, **settings})


def untrained(data: HEPData) -> Classification:
    torch.manual_seed(0)
    facts = data.facts()
    return Classification(network=DeepSets(**facts["model"], width=8), facts=facts, world=World())


@pytest.fixture(scope="module")
def predicted(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """The scores that an untrained network gives for a file, and the data it was made for."""
    known: dict[str, Any] = {}

    def predict(name: str) -> Any:
        if name not in known:
            path = shared_data / "hep" / name
            data = opened(path, **USED[name][0])
            task, output = untrained(data), tmp_path_factory.mktemp("scores") / "p.root"
            tree = USED[name][0].get("tree")
            written = predict_files(task, path, output, {"run": "test"}, tree=tree)
            with uproot.open(written) as file:
                scores = file["scores"].arrays(library="np")
            known[name] = SimpleNamespace(data=data, scores=scores)
        return known[name]

    return predict


def test_every_file_is_listed(shared_data: Path) -> None:
    there = {it.name for it in (shared_data / "hep").iterdir() if it.suffix in (".root", ".h5")}
    assert there == {*USED, *REFUSED}


@pytest.mark.parametrize("name", USED)
def test_every_row_of_a_file_is_predicted(predicted: Callable[..., Any], name: str) -> None:
    found = predicted(name)
    total = sum(found.scores[it] for it in found.scores if it.startswith("score_"))
    np.testing.assert_allclose(total, 1, rtol=1e-5)
    assert len(total) == USED[name][1]
    report = found.data.report()
    assert report.facts["rows"].startswith(str(len(total)))
    assert len(found.data.samples("all")) > 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused(shared_data: Path, name: str) -> None:
    settings, said = REFUSED[name]
    path = shared_data / "hep" / name
    with pytest.raises(DataError, match=said) as refused:
        opened(path, **settings).facts()
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ttree", "rntuple"),
    [("nano_dy.root", "nano_dy_rntuple.root"), ("pfnano.root", "pfnano_rntuple.root")],
)
def test_twins_give_the_same(predicted: Callable[..., Any], ttree: str, rntuple: str) -> None:
    one, other = predicted(ttree), predicted(rntuple)
    assert one.data.standards() == other.data.standards()
    assert one.scores.keys() == other.scores.keys()
    for name, values in one.scores.items():
        np.testing.assert_array_equal(values, other.scores[name])
