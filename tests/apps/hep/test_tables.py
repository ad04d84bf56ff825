"""What is in a file, whatever its format; where it is cut."""

from __future__ import annotations

import pickle
from pathlib import Path

import awkward as ak
import h5py
import numpy as np
import pytest

from apps.hep.rows import Rows
from apps.hep.tables import cut
from tests.apps.hep.made import make, table


@pytest.mark.parametrize(("bounds", "rows", "most"), [([0, 100], 100, 7), ([0, 3, 9, 20], 20, 10)])
def test_chunks_cover_every_row_once(bounds: list[int], rows: int, most: int) -> None:
    chunks = cut(bounds, rows, most)
    covered = [row for start, stop in chunks for row in range(start, stop)]
    assert covered == list(range(rows))
    assert max(stop - start for start, stop in chunks) <= 2 * most


@pytest.mark.parametrize("rows", [0, 1])
def test_chunks_of_little(rows: int) -> None:
    assert cut([0], rows, 10) == [(0, 1)] * rows


def test_top_tagging_as_pandas_writes_it(tmp_path: Path) -> None:
    """The layout of its HDF5, made by hand: no pickle is run to read the names of columns."""
    rng, rows, most = np.random.default_rng(0), 50, 6
    number = rng.integers(1, most + 1, rows)
    lists = {name: rng.normal(size=(rows, most)).astype("f4") for name in ("E", "PX", "PY", "PZ")}
    for values in lists.values():
        values[np.arange(most) >= number[:, None]] = 0
    names = [f"{name}_{n}" for n in range(most) for name in lists]
    block = np.stack([lists[name.split("_")[0]][:, int(name.split("_")[1])] for name in names], 1)
    with h5py.File(tmp_path / "test.h5", "w") as file:
        dtype = [
            ("index", "i8"),
            ("values_block_0", "f4", (len(names),)),
            ("values_block_1", "i8", (1,)),
        ]
        records = np.zeros(rows, dtype)
        records["values_block_0"], label = block, rng.integers(0, 2, rows)
        records["values_block_1"] = label[:, None]
        stored = file.create_dataset("table/table", data=records)
        stored.attrs["values_block_0_kind"] = np.bytes_(pickle.dumps(names, 0))
        stored.attrs["values_block_1_kind"] = np.bytes_(pickle.dumps(["is_signal_new"], 0))
    data = make(
        tmp_path / "test.h5", inputs={"particles": ["pt(PX, PY)", "E"]}, target="is_signal_new",
        constituents={"length": 4}, split={"val": 0.2, "test": 0.2},
    )  # fmt: skip
    columns = Rows(data.recipe, data.tables[0], 0, rows).columns().compact()
    np.testing.assert_array_equal(columns.number_R, np.minimum(number, 4))
    np.testing.assert_array_equal(columns.label_R, label)
    kept = np.arange(most) < np.minimum(number, 4)[:, None]
    np.testing.assert_array_equal(columns.features_NF[:, 1], lists["E"][kept])


def test_parquet_with_nulls(tmp_path: Path) -> None:
    columns = table(60)
    x = ak.from_iter([None if n % 7 == 0 else float(v) for n, v in enumerate(columns["x"])])
    lists = ak.from_iter([[1.0, 2.0], None, []] * 20)
    array = ak.zip({**columns, "x": x, "parts": lists}, depth_limit=1)
    ak.to_parquet(array, tmp_path / "a.parquet", row_group_size=16)
    data = make(tmp_path / "a.parquet", inputs={"flat": ["x"], "particles": ["parts"]})
    assert len(data.tables[0].bounds) == 5
    columns_ = Rows(data.recipe, data.tables[0], 10, 50).columns()
    expected = [np.nan if n % 7 == 0 else np.float32(columns["x"][n]) for n in range(10, 50)]
    np.testing.assert_array_equal(columns_.flat_RG[:, 0], expected)
    assert columns_.number_R.tolist() == [[2, 0, 0][n % 3] for n in range(10, 50)]
