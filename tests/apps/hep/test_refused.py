"""Bad input is one message that says where and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from scadl_core.errors import ConfigError, ScadlError
from tests.apps.hep.made import make, table, write


def bad(tmp_path: Path, case: str) -> None:
    columns = table()
    if case == "one_hot":
        target = ["label >= 0", "label == 1"]
        make(write(tmp_path / "a.root", **columns), target=target).facts()
    if case == "selection":
        make(write(tmp_path / "a.root", **columns), selection="x > 1e9").facts()
    if case == "labels":
        make(write(tmp_path / "a.root", **columns), target=["label==7", "label==8"]).facts()
    if case == "number":
        write(tmp_path / "a.root", **columns | {"label": columns["label"] * 5})
        make(tmp_path / "a.root").facts()
    if case == "sentinel":
        make(write(tmp_path / "a.root", **columns | {"y": np.full(400, -999.0)})).facts()
    if case == "missing":
        make(write(tmp_path / "a.root", **columns | {"y": np.full(400, np.nan)})).facts()
    if case == "weight":
        write(tmp_path / "a.root", **columns | {"w": np.where(columns["x"] > 2, np.nan, 1.0)})
        make(tmp_path / "a.root", weight="w").facts()
    if case in ("jagged", "numbers", "flat"):
        lists = ak.unflatten(np.arange(800.0), np.full(400, 2))
        uneven = ak.unflatten(np.arange(800.0), np.tile([1, 3], 200))
        write(tmp_path / "a.root", **columns, parts=lists, others=uneven)
        inputs = {"jagged": ["x", "parts"], "numbers": {"particles": ["parts", "others"]}}
        make(tmp_path / "a.root", inputs=inputs.get(case, {"particles": ["x"]})).facts()
    if case == "truncated":
        path = write(tmp_path / "a.root", **table(20_000))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        make(path).facts()
    if case == "text":
        (tmp_path / "a.root").write_text("not ROOT at all")
        make(tmp_path / "a.root").facts()
    if case == "schemas":
        write(tmp_path / "a.root", **columns)
        write(
            tmp_path / "b.root",
            **columns | {"x": ak.unflatten(np.arange(400.0), np.ones(400, int))},
        )
        make(tmp_path).facts()
    if case == "trees":
        with uproot.recreate(tmp_path / "a.root") as file:
            file["one"], file["two"] = columns, columns
        make(tmp_path / "a.root").facts()
    if case == "tree":
        make(write(tmp_path / "a.root", **columns), tree="tre").facts()
    if case == "empty":
        make(write(tmp_path / "a.root", **{n: it[:0] for n, it in columns.items()})).facts()
    if case == "itself":
        derived = {"a": "b + 1", "b": "a + 1"}
        make(write(tmp_path / "a.root", **columns), derived=derived, inputs=["a"])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "one_hot",
            r"a.root: tree: row \d+ is labelled no and yes; data.target must be true for one",
        ),
        ("selection", r"a.root: tree: data.selection=x > 1e9 passes none of 400 rows"),
        ("labels", r"a.root: tree: data.target is true of none of 400 rows"),
        (
            "number",
            r"a.root: tree: data.target=label has the values 5, but data.classes are numbers 0 to",
        ),
        (
            "sentinel",
            r"data.inputs: y is -999, a sentinel, everywhere in the training split .*leave it",
        ),
        ("missing", r"data.inputs: y is missing everywhere in the training split"),
        ("weight", r"a.root: tree: data.weight=w is nan in row \d+"),
        (
            "jagged",
            r"a.root: tree: data.inputs.flat: parts has a list a row where one number is needed",
        ),
        ("numbers", r"a.root: tree: parts and others have other numbers of constituents"),
        (
            "flat",
            r"a.root: tree: data.inputs.particles: x has one value a row, no list: move it to",
        ),
        ("truncated", r"a.root.*cannot be read \(.*cut short, damaged or of another format"),
        ("text", r"a.root: cannot be read \(.*cut short, damaged or of another format"),
        (
            "schemas",
            r"b.root: tree: data.inputs.flat: x has a list a row where one number is needed",
        ),
        (
            "trees",
            r"a.root: holds several trees: one \(400 rows\), two \(400 rows\); choose with data.tr",
        ),
        ("tree", r"a.root: has no tree 'tre'; did you mean 'tree'"),
        ("empty", r"a.root: tree: no rows; give data.path files that have some"),
        ("itself", r"data.derived.\w is defined by itself"),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, case: str, said: str) -> None:
    with pytest.raises(ScadlError, match=said) as refused:
        bad(tmp_path, case)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"classes": ["one"]}, "data.classes"),
        ({"classes": ["a", "a"]}, "all different"),
        ({"target": ["label"], "classes": ["a", "b"]}, "1 conditions for 2 data.classes"),
        ({"inputs": {"partciles": ["x"]}}, "data.inputs: partciles is unknown"),
        ({"inputs": []}, "data.inputs"),
        ({"constituents": {"lenght": 5}}, "data.constituents.lenght is unknown"),
        ({"split": {"by": "magic"}}, "data.split.by=magic"),
        ({"split": {"vla": 0.1}}, "data.split.vla is unknown; did you mean 'val'"),
        ({"split": {"val": 0.6, "test": 0.5}}, "must be shares"),
        ({"split": {"by": "event"}}, "data.split.event"),
        ({"standardise": "quantile"}, "did you mean 'quantiles'"),
        ({"reweight": {"by": ["x"], "bins": [[2, 1]]}}, "rising edges"),
        ({"links": {"P": {"object": "a"}}}, "data.links.P: expected"),
        ({"rows": "Jet"}, "data.rows=Jet: no input is of it"),
        ({"inputs": ["lgo(x)"]}, "data.inputs.flat: 'lgo.x.'.*did you mean 'log'"),
        ({"selection": "x.__class__"}, "data.selection: .*not allowed"),
    ],
)
def test_settings_that_do_not_fit_together(
    tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    path = write(tmp_path / "a.root", **table(50))
    with pytest.raises(ConfigError, match=said):
        make(path, **other).facts()
