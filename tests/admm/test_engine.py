"""One rank, two and four; stopped and resumed; moved: always the same iterates."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

RANKS = Path(__file__).with_name("ranks.py")


@pytest.fixture(scope="module")
def ranks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("admm_ranks", RANKS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["admm_ranks"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(ranks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of every case."""
    path = tmp_path_factory.mktemp("admm")
    for name in ranks.CASES:
        weights, fitted = ranks.train(name, None)
        _, early = ranks.train(name, None, iterations=7)
        saved = {
            "weights": weights,
            "loss": fitted.trace[-1]["loss"],
            "output": fitted(ranks.samples().inputs),
            "states": early.engine.states(),
        }
        torch.save(saved, path / f"{name}.pt")
    return path


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_several_ranks_compute_what_one_does(
    count: int, folder: Path, mpirun: Callable[..., Any]
) -> None:
    outcome = mpirun(count, str(folder), timeout=600, program=("-m", "mpi4py", str(RANKS)))
    assert (outcome.status, outcome.out) == (0, "all equal\n"), outcome.err


def test_a_resumed_training_is_the_same(ranks: ModuleType, folder: Path) -> None:
    from scadl_core.comm import World

    ranks.resumed(World(), folder)
