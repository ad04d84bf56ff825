"""Small jets, once for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from apps.hep.data import HEPData
from apps.hep.sample import write_sample

TINY = (
    "data.sample.train_jets=1200",
    "data.sample.test_jets=600",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=2",
    "model.width=16",
    "baseline.max_iter=5",
)
JETCLASS: dict[str, Any] = {
    "inputs": {"particles": ["log(part_pt)", "part_deta", "part_dphi", "part_charge"]},
    "constituents": {
        "length": 64,
        "order": "part_pt",
        "points": ["part_deta", "part_dphi"],
        "vectors": ["part_px", "part_py", "part_pz", "part_energy"],
    },
    "derived": {"part_pt": "hypot(part_px, part_py)"},
    "target": ["label_QCD", "label_Hbb", "label_Wqq", "label_Tbqq"],
    "classes": ["QCD", "Hbb", "Wqq", "Tbqq"],
    "weight": "gen_weight",
    "monitor": {"pt": "jet_pt", "mass": "jet_sdmass"},
    "split": {"by": "folder"},
}


@pytest.fixture(scope="session")
def jets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 jets in both formats: ttree/ and rntuple/, each with train/ and test/."""
    folder = tmp_path_factory.mktemp("jets")
    for kind in ("ttree", "rntuple"):
        write_sample(folder / kind, 600, 200, negative_share=0.1, format=kind)
    return folder


@pytest.fixture(scope="session")
def jetclass(jets: Path) -> Any:
    """Makes the data of the small set, with other settings where given."""

    def make(kind: str = "ttree", **other: Any) -> HEPData:
        return HEPData(**{"path": jets / kind, **JETCLASS, **other})

    return make


@pytest.fixture(scope="session")
def hep_run(run_of: Callable[[str, Sequence[str]], Path]) -> Path:
    """The folder of a finished tiny run. Tests may add files to it, and change none."""
    return run_of("hep", TINY)
