"""What the machine has, and how to get the rest."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest


def rows(text: str) -> dict[str, list[str]]:
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text.splitlines()
        if "│" in line
    ]
    return {row[0]: row[1:] for row in cells if row[0]}


def test_what_is_there_is_said_by_version(scadl: Callable[..., Any]) -> None:
    done = scadl("doctor")
    assert (done.status, done.err) == (0, "")
    found = rows(done.out)
    assert found["Python"][0] == platform.python_version()
    assert found["torch"][0] == version("torch")
    assert found["xarray"][0] == version("xarray")
    assert found["hydra_plugins.hydra_joblib_launcher"][0] == version("hydra-joblib-launcher")


def test_what_is_missing_comes_with_its_command(
    scadl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name in ("mpi4py", "cupy") else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.setenv("PATH", "/nowhere")
    found = rows(scadl("doctor").out)
    assert found["cupy"] == [
        "missing",
        "compression kernels on NVIDIA GPUs: pip install 'scadl[gpu]'",
    ]
    assert found["mpi4py"] == ["missing", "ranks under mpirun: pip install 'scadl[mpi]'"]
    assert found["MPI"] == ["no mpi4py", "pip install 'scadl[mpi]'"]
    assert found["mpirun"][0] == "not on PATH"


def test_a_broken_mpi_is_said_in_one_line(
    scadl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    monkeypatch.delattr("mpi4py.MPI", raising=False)
    found = rows(scadl("doctor").out)
    assert found["MPI"][0].startswith("mpi4py finds no MPI library (")
