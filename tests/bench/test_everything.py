"""scadl bench all: each once, what was refused is named, and a stopped one goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scadl_core.bench import everything
from scadl_core.bench.rows import Row, markdown
from scadl_core.errors import ConfigError


def test_all_runs_each_once(
    scadl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def short(quick: bool, console: Any) -> list[Row]:
        calls.append("short")
        return [Row("a net", "ours", "speed", 2.5, "GB/s")]

    def long(folder: Path, words: Any, quick: bool, console: Any) -> list[Row]:
        calls.append("long")
        if calls.count("long") == 1:
            raise ConfigError("a peer is not installed")
        return [Row("a graph", "theirs", "score", 0.75, "1")]

    monkeypatch.setitem(sys.modules, "bench_short", SimpleNamespace(bench=short))
    monkeypatch.setitem(sys.modules, "bench_long", SimpleNamespace(bench_into=long))
    found = {"short": "bench_short", "long": "bench_long"}
    monkeypatch.setattr(everything, "modules", lambda: found)
    command = ("bench", "all", "--quick", "--out", "out")
    done = scadl(*command)
    assert done.status == 2
    assert "not measured: long: a peer is not installed" in done.err
    done = scadl(*command)
    assert done.status == 0, done.err
    assert calls == ["short", "long", "long"]
    page = Path("out/all-quick.md").read_text()
    assert "| method | speed (GB/s) |\n| --- | --- |\n| ours | 2.5 |" in page
    assert "## long: a graph" in page and "**Quick" in page and "python 3." in page
    assert json.loads(Path("out/long-quick.json").read_text())[0]["value"] == 0.75


def test_words_that_nobody_reads_are_refused(scadl: Callable[..., Any]) -> None:
    for words in (("all", "graphs"), ("compress", "graphs")):
        done = scadl("bench", *words, "--quick")
        assert done.status == 2 and "takes no 'graphs'" in done.err
    assert "there is: admm, claims" in scadl("bench").err
    assert "did you mean 'claims'" in scadl("bench", "claim").err


def test_cells_that_were_not_measured_are_dashes() -> None:
    rows = [Row("c", "a", "x", 1.0, "1"), Row("c", "b", "y", 2.0, "s")]
    assert markdown(rows).splitlines()[4:] == ["| a | 1 | - |", "| b | - | 2 |"]
