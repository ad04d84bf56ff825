"""The benchmark's own arithmetic, on arrays of a blink."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from scadl_core.bench import compress
from scadl_core.bench.arrays import Saved, smooth_field
from scadl_core.bench.codecs import MEMCPY, METHODS, OURS, Codec, Method, versions
from scadl_core.bench.rows import Row, value_of, write_rows
from scadl_core.compress import get_num_threads, set_num_threads


@pytest.fixture(autouse=True)
def threads() -> Any:
    before = get_num_threads()
    yield
    set_num_threads(before)


def sloppy(x: Any, bound: float, threads: int) -> Codec:
    """Keeps every second byte's worth and errs by twice the bound at three places."""

    def decompress(kept: Any) -> Any:
        again = x.copy()
        again.flat[:3] += np.float32(2 * bound)
        return again

    return Codec(lambda: x, decompress, lambda kept: int(kept.nbytes // 2))


def test_rows() -> None:
    found = versions()
    ready = [m for m in METHODS if m.package is None or found[m.package]]
    arrays = [smooth_field(16, 16, 16), np.zeros((4, 4), np.float32)]  # the second has no range
    methods = [*ready, Method("sloppy", None, sloppy, False)]
    rows = compress.measure("case", arrays, 1e-2, 1, methods, rounds=1)
    assert value_of(rows, "case", OURS, "violations") == 0
    assert 0.5 < (value_of(rows, "case", OURS, "max error") or 0) <= 1
    assert (value_of(rows, "case", OURS, "ratio") or 0) > 2
    assert value_of(rows, "case", MEMCPY, "compress of memcpy") == 100
    assert value_of(rows, "case", "sloppy", "violations") == 3
    assert value_of(rows, "case", "sloppy", "ratio") == 2
    assert value_of(rows, "case", "sloppy", "max error") == pytest.approx(2, rel=1e-3)
    assert len(rows) == 7 * len(methods)


def test_a_missing_peer_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = [np.linspace(0, 1, 5000, dtype=np.float32).reshape(50, 100)]
    present = {"pysz": None, "zfpy": None, "blosc2": None, "pcodec": None, "numba": "1"}
    monkeypatch.setattr(compress, "versions", lambda: present)
    monkeypatch.setattr(compress, "model_arrays", lambda maps, steps: (tiny, tiny))
    monkeypatch.setattr(compress, "smooth_field", lambda *shape: tiny[0])
    rows = compress.bench(True, Console(width=200))
    shown = capsys.readouterr().out
    assert "left out: blosc2, pcodec, pysz, zfpy" in shown
    assert {row.method for row in rows} == {MEMCPY, OURS, "scadl + zstd"}
    assert "activations, 0.001 of the range, 1 thread" in {row.case for row in rows}


def test_what_autograd_saves_is_seen_once() -> None:
    net = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU())
    saved = Saved(net)
    with saved.hooks:
        y = net(torch.randn(256, 300))
    y.sum().backward()
    assert [array.shape for array in saved.arrays] == [(256, 300)] * 3
    saved.clear()
    assert saved.arrays == []


def test_the_field_is_smooth() -> None:
    field = smooth_field(32, 32, 32)
    assert field.std() == pytest.approx(15, rel=1e-3)
    assert field.mean() == pytest.approx(280, rel=1e-4)
    assert np.diff(field, axis=0).std() < 0.6 * field.std()  # of noise it is 1.41


def test_rows_as_json(tmp_path: Path) -> None:
    path = write_rows([Row("c", "m", "ratio", 2.0, "1")], "compress", tmp_path / "new")
    assert json.loads(path.read_text()) == [
        {"case": "c", "method": "m", "metric": "ratio", "value": 2.0, "unit": "1"}
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "there is: admm, claims, comm, compress"),
        (("compres",), "did you mean 'compress'?"),
        (("compress", "--fast"), "unknown flag '--fast'"),
        (("compress", "--out"), "--out needs a value: --out DIR"),
    ],
)
def test_mistakes(scadl: Callable[..., Any], words: tuple[str, ...], message: str) -> None:
    result = scadl("bench", *words)
    assert result.status == 2
    assert message in result.err
