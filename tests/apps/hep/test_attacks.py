"""Attacks on the reader and its configuration: refused in one line, or read as it should be.

A table of what a person, a program that wrote a file, or an enemy might hand over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from apps.hep import survey
from apps.hep.data import HEPData
from scadl_core.errors import ScadlError
from tests.apps.hep.made import SPLIT, everything, make, table, write

ROWS = 400
FOURTH = np.arange(ROWS) % 4 == 0
BY_EVENT = SPLIT | {"by": "event"}
PARTS = {"inputs": {"particles": ["parts"]}}
BOMB = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with odd branches beside those of ``table``."""
    columns = table(ROWS)
    label, x = columns["label"], columns["x"]
    columns |= {
        "class": x, "énergie": x, "label_nan": np.where(FOURTH, np.nan, label),
        "label_half": label * 0.5, "label_inf": np.where(FOURTH, np.inf, label),
        "label_one": label * 0, "zero": x * 0, "negative": x * 0 - 1.0,
        "infinite": np.where(FOURTH, np.inf, 1.0), "event_nan": np.where(FOURTH, np.nan, 1.0),
        "event_same": np.ones(ROWS), "count": (np.arange(ROWS) % 3).astype(np.uint32),
        "whole": np.arange(ROWS), "is": x > 0,
        "parts": ak.unflatten(np.arange(2.0 * ROWS), np.full(ROWS, 2)),
        "none": ak.unflatten(np.arange(0.0), np.zeros(ROWS, int)),
    }  # fmt: skip
    return write(tmp_path_factory.mktemp("odd") / "a.root", **columns)


REFUSED: list[tuple[dict[str, Any], str]] = [
    # branches and values
    ({"inputs": ["class"]}, "data.inputs.flat: 'class' is no formula .* goes into backquotes"),
    ({"target": "label_half"}, "data.target=label_half has the values 0.5"),
    ({"target": "label_inf"}, "data.target=label_inf has the values"),
    ({"target": "label_one"}, "all rows of the training split are of class 'no'"),
    ({"weight": "zero"}, "data.weight=zero sums to 0 over the training split"),
    ({"weight": "negative"}, r"data.weight=negative sums to -\d+ over the training split"),
    ({"weight": "infinite"}, r"data.weight=infinite is inf in row \d+"),
    ({"weight": "parts"}, "data.weight: parts has a list a row"),
    ({"weight": "wieght"}, "no branch 'wieght'.*data.weight"),
    ({"selection": "parts > 0"}, "data.selection: parts > 0 has a list a row"),
    ({"selection": "x / 0 * 0"}, "passes none of 400 rows"),
    ({"selection": "zz > 0"}, "no branch 'zz'.*data.selection"),
    ({"split": BY_EVENT | {"event": ["event_nan"]}}, "event_nan is not a number in some rows"),
    ({"split": BY_EVENT | {"event": ["event_same"]}}, "data.split: 'train' has no row"),
    ({"split": BY_EVENT | {"event": ["parts"]}}, "parts has a list a row"),
    ({"inputs": {"particles": ["none"]}}, "no row of the training split has a constituent"),
    # formulas
    ({"inputs": ["x.__init__.__globals__"]}, "'__init__' is not allowed"),
    ({"inputs": ["x.format(y)"]}, "unknown function 'x.format'"),
    ({"inputs": ["where(*x)"]}, "not allowed in a formula"),
    ({"inputs": ["{1: x}"]}, "not allowed in a formula"),
    ({"inputs": ["x * 1j"]}, "'1j' is not allowed"),
    ({"inputs": ["x[...]"]}, "is not allowed"),
    ({"inputs": ["x\0"]}, "is no formula"),
    ({"inputs": ["log()"]}, r"log\(\) cannot be computed"),
    ({"inputs": ["x & y"]}, "x & y cannot be computed"),
    ({"inputs": ["whole ** -1"]}, "cannot be computed"),
    ({"inputs": ["is - is"]}, "is - is cannot be computed|is no formula"),
    ({"inputs": ["x * " + "9" * 400]}, "int too large"),
    ({"inputs": ["file"]}, "no branch 'file'"),
    ({"selection": "tree in file"}, "not allowed in a formula"),
    # settings of another kind than they should be
    ({"inputs": "xy"}, "data.inputs: expected a list of names or formulas, got 'xy'"),
    ({"inputs": [["x", "y"]]}, "data.inputs: expected a list"),
    ({"inputs": [None]}, "data.inputs: expected a list"),
    ({"inputs": {"flat": {"x": 1}}}, "data.inputs: expected a list"),
    ({"inputs": {"particles": "parts"}}, "data.inputs.particles: expected a list"),
    ({"target": None}, "data.target has 0 conditions for 2"),
    ({"target": 3}, "data.target: expected a list"),
    ({"classes": "no"}, "data.classes: expected a list"),
    ({"sentinels": -999}, "data.sentinels: expected a list of numbers"),
    ({"sentinels": ["abc"]}, "data.sentinels: expected a list of numbers"),
    ({"derived": ["q"]}, "data.derived: expected values by name"),
    ({"chunk_rows": 0}, "data.chunk_rows: expected a whole number, 1 or more, got 0"),
    ({"chunk_rows": "many"}, "data.chunk_rows: expected a whole number"),
    ({"cache_GiB": -1}, "data.cache_GiB: expected a number, 0 or more"),
    (PARTS | {"constituents": {"length": "64"}}, "data.constituents.length: expected a whole"),
    (PARTS | {"constituents": {"length": 1.5}}, "data.constituents.length: expected a whole"),
    (PARTS | {"constituents": {"length": None}}, "data.constituents.length: expected a whole"),
    (PARTS | {"constituents": {"vectors": ["parts"]}}, "expected four: px, py, pz, energy"),
    ({"reweight": {"by": "x", "bins": [[0, 1]]}}, "data.reweight.by: expected a list"),
    ({"reweight": {"by": ["x"], "bin": [[0, 1]]}}, "data.reweight.bin is unknown.*'bins'"),
    ({"reweight": {"by": ["x"], "bins": [0, 1]}}, "data.reweight.bins: expected a list of num"),
    ({"reweight": {"by": ["x"], "bins": [["a", "b"]]}}, "data.reweight.bins: expected"),
    ({"reweight": {"by": ["x"], "bins": [[0, 1]], "most": -3}}, "data.reweight.most: expected"),
    ({"monitor": {"pT": "x"}}, "data.monitor.pT is unknown"),
    ({"monitor": ["x"]}, "data.monitor: expected values by name"),
    ({"fixed": {"zz": [0, 1, -5, 5]}}, "data.fixed.zz is no input"),
    ({"fixed": {"x": [0, 1]}}, "data.fixed.x: expected centre, factor, lowest and highest"),
    ({"fixed": {"x": "abcd"}}, "data.fixed.x: expected a list of numbers"),
    ({"split": "random"}, "data.split: expected values by name"),
    ({"split": {"val": "a"}}, "data.split.val: expected a number"),
    ({"split": {"val": float("nan")}}, "data.split.val: expected a number"),
    ({"split": {"fold": "x"}}, "data.split.fold: expected a whole number"),
    ({"split": {"by": "folder"}}, "put files into a folder train/"),
    ({"split": {"test": 0}}, "data.split: 'test' has no row"),
    ({"standardise": ["none"]}, "data.standardise="),
    ({"tree": 3}, "data.tree: expected a list"),
    ({"links": ["a"], "rows": "x"}, "data.links: expected values by name"),
    ({"links": {"a": "b"}, "rows": "x"}, "data.links.a: expected values by name"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "said"), REFUSED)
def test_is_refused_in_one_line(odd: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ScadlError, match=said) as refused:
        make(odd, **settings).facts()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("énergie", lambda of: of["x"]),
        ("count - 1", lambda of: np.arange(ROWS) % 3 - 1.0),  # unsigned in the file
        ("-count", lambda of: -(np.arange(ROWS) % 3.0)),
        ("whole // (whole * 0)", lambda of: np.zeros(ROWS)),
        ("`x` + _quoted_0", lambda of: 2 * of["x"]),  # what a quoted name is called inside
        ("x ** 1e308 * 0", None),
    ],
)
def test_is_computed(odd: Path, formula: str, expected: Callable[..., Any] | None) -> None:
    found = everything(make(odd, inputs=[formula, "whole"]))
    wanted = expected(table(ROWS)) if expected else np.zeros(ROWS)
    values_R = found["flat_BG"][np.argsort(found["flat_BG"][:, 1]), 0]
    np.testing.assert_allclose(np.nan_to_num(values_R), wanted.astype("f4"), rtol=1e-6)


@pytest.mark.parametrize("kind", ["root", "parquet"])
def test_a_row_whose_label_is_missing_is_of_no_class(odd: Path, tmp_path: Path, kind: str) -> None:
    path, target = odd, "label_nan"
    if kind == "parquet":
        columns = table(ROWS)
        labels = [None if it else int(label)
                  for it, label in zip(FOURTH, columns["label"], strict=True)]  # fmt: skip
        pq.write_table(pa.table(columns | {"label": labels}), tmp_path / "a.parquet")
        path, target = tmp_path / "a.parquet", "label"
    label_B = everything(make(path, target=target))["label_B"]
    np.testing.assert_array_equal(np.bincount(label_B), np.bincount(table(ROWS)["label"][~FOURTH]))


def no_tree(path: Path) -> None:
    with uproot.recreate(path / "a.root") as file:
        file["h"] = np.histogram(np.arange(9.0))


def second(path: Path, **other: Any) -> None:
    """A second file, in which columns are of another kind (None: lacking)."""
    write(path / "a.root", **table())
    kept = {name: it for name, it in (table() | other).items() if it is not None}
    pq.write_table(pa.table(kept), path / "b.parquet")


def cut_short(path: Path) -> None:
    pq.write_table(pa.table(table()), path / "a.parquet")
    whole = (path / "a.parquet").read_bytes()
    (path / "a.parquet").write_bytes(whole[: len(whole) // 2])


def hdf5(path: Path, **other: Any) -> None:
    with h5py.File(path / "a.h5", "w") as file:
        for name, values in (table() | other).items():
            file[name] = values


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (no_tree, "holds no table"),
        (lambda path: (path / "a.root").write_bytes(b""), "a.root: cannot be read"),
        (lambda path: (path / "a.root").mkdir(), "holds no file ending in"),
        (cut_short, "a.parquet: cannot be read"),
        (lambda path: second(path, y=None), "b.parquet has no branch 'y'"),
        (lambda path: second(path, y=["a"] * ROWS), "b.parquet.* y is .*no.* numbers"),
        (lambda path: second(path, y=[{"a": 1.0}] * ROWS), "b.parquet.* y is .*no.* numbers"),
        (lambda path: second(path, y=[[1.0]] * ROWS), "b.parquet.* y has a list a row"),
        (lambda path: hdf5(path, y=np.zeros(7)), "a.h5 has no branch 'y'"),
    ],
)
def test_a_file_is_refused_in_one_line(
    tmp_path: Path, put: Callable[[Path], Any], said: str
) -> None:
    put(tmp_path)
    with pytest.raises(ScadlError, match=said) as refused:
        make(tmp_path).facts()
    assert "\n" not in str(refused.value)


def test_a_link_out_of_a_file_is_not_followed(tmp_path: Path) -> None:
    hdf5(tmp_path)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["z"] = h5py.ExternalLink("/etc/passwd", "/x")
        file["s"] = h5py.SoftLink("/nowhere")
    assert set(make(tmp_path).tables[0].kinds) == set(table())


@pytest.mark.parametrize(
    "page",
    [
        "!!python/object/apply:os.system ['touch pwned']",
        "- a\n- b",
        "",
        "labels: 3\ninputs: 4",
        f"a0: &a0 [x]\n{BOMB}\ninputs: *a8",
    ],
)
def test_a_hostile_page_of_weaver(
    odd: Path, tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(page)
    with pytest.raises(ScadlError, match=r"w\.yaml: no data configuration of weaver") as refused:
        make(odd, weaver=str(tmp_path / "w.yaml"))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "pwned").exists()


def test_a_survey_keeps_little_of_what_it_reads(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its quantiles are those of all; rows of equal length are not seen at one place only."""
    whole = make(odd, inputs={"particles": ["parts"]}, chunk_rows=50)
    expected = whole.survey["q0.5_F"]
    monkeypatch.setattr(survey, "SAMPLED", 90)
    data: HEPData = make(odd, inputs={"particles": ["parts"]}, chunk_rows=50)
    found = survey.Survey(1, [0] * len(data.chunks), 2, [])
    for chunk in range(len(data.chunks)):
        found.add(chunk, *data._read(chunk))
    kept = found._sampled["particles"]
    assert 30 <= sum(map(len, kept)) <= 90
    assert all(it.base is None for it in kept)
    values = np.concatenate(kept)
    assert {0.0, 1.0} == set(np.unique(values % 2))
    np.testing.assert_allclose(found.found()["q0.5_F"], expected, rtol=0.15)
