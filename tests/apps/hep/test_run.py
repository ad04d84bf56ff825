"""The verbs on a finished tiny run: its report, evaluation, predictions, export, checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import uproot
import yaml

Scadl = Callable[..., Any]


def done(outcome: Any) -> str:
    assert (outcome.status, outcome.err) == (0, "")
    return str(outcome.out)


def test_a_run_has_what_a_physicist_looks_for(hep_run: Path) -> None:
    metrics = json.loads((hep_run / "metrics.json").read_text())
    for signal in ("Hbb", "Wqq", "Tbqq"):
        for efficiency in (30, 50, 70, 99):
            name = f"test/rejection_{signal}_at_{efficiency}"
            assert metrics[name] >= 1
            assert metrics[f"{name}_error"] >= 0
        assert 0 <= metrics[f"test/mass_js_{signal}"] <= 1
    assert metrics["test/auc_macro"] > 0.55
    page = (hep_run / "report.html").read_text()
    for said in (
        "negative weights",
        "ZJetsToNuNu_000.root",
        "log(part_pt / jet_pt)",
        "rejection.csv",
    ):
        assert said in page
    rows = (hep_run / "figures" / "rejection.csv").read_text().splitlines()
    assert rows[0] == "pt,signal,signal_efficiency,rejection,error"
    assert len(rows) > 1 + 12


def test_an_evaluation_gives_the_scores_of_the_run(scadl: Scadl, hep_run: Path) -> None:
    done(scadl("evaluate", "hep", f"run.dir={hep_run}", "output=again.json"))
    again = json.loads(Path("again.json").read_text())
    metrics = json.loads((hep_run / "metrics.json").read_text())
    for name in ("auc_macro", "accuracy", "rejection_Tbqq_at_50"):
        assert again[name] == pytest.approx(metrics[f"test/{name}"], abs=1e-12)


def one_by_one(about: dict[str, Any], jets: Any) -> dict[str, np.ndarray]:
    """The inputs that the description asks for, by plain NumPy and a jet at a time."""
    recipe, rows = about["recipe"], []
    for jet in jets:
        values: dict[str, Any] = {name: np.asarray(jet[name], np.float32) for name in jet.fields}
        known = {name: getattr(np, name) for name in ("log", "hypot", "tanh", "minimum")}

        def value(text: str, values: Any = values, known: Any = known) -> Any:
            return eval(text, {"__builtins__": {}, **known}, values)

        values |= {name: value(text) for name, text in recipe["derived"].items()}
        order = np.argsort(-value(recipe["order"]), kind="stable")[: recipe["length"]]
        groups = {"features_BPF": "particles", "points_BPD": "points", "vectors_BPD": "vectors"}
        row = {"mask_BP": np.arange(recipe["length"]) < len(order), "flat_BG": np.zeros(0, "f4")}
        for name, of in groups.items():
            row[name] = np.zeros((recipe["length"], len(recipe[of])), np.float32)
            for column, text in enumerate(recipe[of]):
                row[name][: len(order), column] = value(text)[order]
        rows.append(row)
    return {name: np.stack([row[name] for row in rows]) for name in about["inputs"]}


def test_an_exported_network_gives_the_scores_of_predict(
    scadl: Scadl, hep_run: Path, sample_data: Path
) -> None:
    source = next((sample_data / "hep").glob("sample-1200-*/test/TTBar_000.root"))
    done(scadl("predict", "hep", f"run.dir={hep_run}", f"input={source}", "output=p.root"))
    with uproot.open("p.root") as file:
        scores = file["scores"].arrays()
    with uproot.open(source) as file:
        jets = file["tree"].arrays()[:40]
    out = done(scadl("export", "hep", f"run.dir={hep_run}", "output=model.onnx"))
    assert "model.onnx and model.json" in out
    about = json.loads(Path("model.json").read_text())
    inputs = one_by_one(about, jets)
    session = onnxruntime.InferenceSession("model.onnx")
    (found,) = session.run([about["output"]], inputs)
    expected = np.stack([scores[f"score_{name}"] for name in about["classes"]], 1)[:40]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    for count in (1, 7):
        (few,) = session.run(None, {name: it[:count] for name, it in inputs.items()})
        np.testing.assert_allclose(few, expected[:count], rtol=0, atol=1e-5)
    done(scadl("export", "hep", f"run.dir={hep_run}", "format=pt2", "output=model.pt2"))
    program = torch.export.load("model.pt2").module()
    found = program(*(torch.from_numpy(it) for it in inputs.values())).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    refused = scadl("export", "hep", f"run.dir={hep_run}", "format=tf")
    assert (refused.status, refused.err) == (
        2,
        "scadl: format=tf: no such format; there is: onnx, pt2\n",
    )


WEAVER = """
treename: tree
selection:
   jet_pt > 600
new_variables:
   part_mask: ak.ones_like(part_energy)
   part_pt: np.hypot(part_px, part_py)
   part_pt_log: np.log(part_pt)
preprocess:
  method: manual
inputs:
   pf_points:
      length: 128
      vars: [[part_deta, null], [part_dphi, null]]
   pf_features:
      length: 128
      pad_mode: wrap
      vars: [[part_pt_log, 1.7, 0.7], [part_charge, null], [part_d0err, 0, 1, 0, 1]]
   pf_mask:
      length: 128
      vars: [[part_mask, null]]
labels:
   type: simple
   value: [label_QCD, label_Hbb]
observers: [jet_pt, jet_sdmass]
weights:
   reweight_method: flat
   reweight_vars:
      jet_pt: [500, 700, 1100]
      jet_sdmass: [0, 100, 500]
"""


def test_a_configuration_of_weaver_is_taken_over(scadl: Scadl, hep_run: Path) -> None:
    """The page that `scadl check` writes trains by itself, and equals the import."""
    Path("data.yaml").write_text(WEAVER)
    tiny = ("data.sample.train_jets=1200", "data.sample.test_jets=600")
    done(scadl("check", "hep", *tiny, "data.weaver=data.yaml", "output=mine/data/page.yaml"))
    page = yaml.safe_load(Path("mine/data/page.yaml").read_text())
    assert page["classes"] == ["QCD", "Hbb"]
    assert page["inputs"] == {"particles": ["part_pt_log", "part_charge", "part_d0err"]}
    assert page["constituents"] == {"points": ["part_deta", "part_dphi"], "length": 128}
    infinite = float("inf")
    assert page["fixed"]["part_pt_log"] == [1.7, 0.7, -5, 5]
    assert page["fixed"]["part_charge"] == [0, 1, -infinite, infinite]
    assert page["fixed"]["part_d0err"] == [0, 1, 0, 1]
    assert page["selection"] == "jet_pt > 600"
    assert page["reweight"] == {
        "by": ["jet_pt", "jet_sdmass"],
        "bins": [[500, 700, 1100], [0, 100, 500]],
    }
    quick = ("debug=smoke", "trainer.accelerator=cpu", "baseline.max_iter=2", "model.width=8")
    done(scadl("train", "hep", "--config-dir", "mine", "data=page", *quick, "run.dir=run"))
    assert "test/auc_QCD_Hbb" in json.loads(Path("run/metrics.json").read_text())
    for old, new, said in (
        ("pf_mask:", "sv_features:", "second list of constituents"),
        ("treename: tree", "file_magic: {x: {QCD: 1}}", "file_magic cannot be taken over"),
        ("labels:", "labls:", "no data configuration of weaver"),
    ):
        Path("data.yaml").write_text(WEAVER.replace(old, new))
        refused = scadl("train", "hep", *tiny, "data.weaver=data.yaml")
        assert refused.status == 2
        assert said in refused.err


def test_a_check_proposes_a_page_for_files_never_seen(
    scadl: Scadl, shared_data: Path, jets: Path
) -> None:
    out = done(
        scadl("check", "hep", "data=table", f"data.path={jets / 'ttree'}", "output=d/data/a.yaml")
    )
    page = yaml.safe_load(Path("d/data/a.yaml").read_text())
    assert page["classes"][:3] == ["QCD", "Hbb", "Hcc"]
    assert set(page["inputs"]["particles"]) >= {"part_px", "part_charge", "part_isMuon"}
    assert not {"label_QCD", "gen_weight", "aux_genpart_pt"} & set(page["inputs"]["flat"])
    assert page["weight"] == "gen_weight"
    assert "not yet configured: data.classes, data.inputs, data.target" in out
    path = shared_data / "hep" / "uproot-issue243-new.root"
    out = done(scadl("check", "hep", "data=table", f"data.path={path}", "output=b.yaml"))
    assert "sig (502 rows)" in " ".join(out.split())
    assert "data.target to conditions" in " ".join(out.split())
    bad = scadl(
        "check", "hep", "data=table", f"data.path={shared_data / 'hep' / 'bad_delphes.root'}"
    )
    assert bad.status == 2
    assert "holds no table" in bad.err
