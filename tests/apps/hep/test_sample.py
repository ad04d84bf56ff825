"""The example set."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import pytest
import uproot

from apps.hep.sample import write_sample
from scadl_core.errors import ConfigError


def test_the_sample_depends_on_its_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_sample(tmp_path / name, 40, 8, classes=("QCD", "Tbqq"), seed=seed)
    found = [uproot.open(tmp_path / name / "train" / "TTBar_000.root")["tree"]["jet_pt"].array()
             for name in "abc"]  # fmt: skip
    assert ak.array_equal(found[0], found[1])
    assert not ak.array_equal(found[0], found[2])
    for name, said in (("classes", "did you mean 'Hbb'"), ("format", "there is: rntuple, ttree")):
        with pytest.raises(ConfigError, match=said):
            write_sample(tmp_path / "d", **{name: ["Hbbb"] if name == "classes" else "csv"})
