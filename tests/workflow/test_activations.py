"""Compressed activations in a run: numbers, report, resumption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from scadl_core.comm import World
from scadl_core.errors import ActivationError
from scadl_core.workflow.activations import ActivationMemory


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    return {}


def metrics(scadl: Callable[..., Any], *words: str) -> dict[str, float]:
    done = scadl("train", "climate", *words, "run.dir=run")
    assert (done.status, done.err) == (0, "")
    found: dict[str, float] = json.loads(Path("run/metrics.json").read_text())
    return found


def test_a_run_says_what_it_saved(scadl: Callable[..., Any], tiny: tuple[str, ...]) -> None:
    found = metrics(scadl, *tiny, "memory=adaptive", "memory.smallest=256")
    stored, raw = found["memory/saved_bytes"], found["memory/saved_bytes_uncompressed"]
    assert 5 < raw / stored == pytest.approx(found["memory/ratio"])
    assert stored <= found["memory/saved_bytes_most"] < raw
    assert 0 < found["memory/codec_seconds"] < found["train/seconds"]
    page = Path("run/report.html").read_text()
    assert "Activations kept in the last step" in page
    assert "conv2d network.down.0.1" in page
    assert f"({found['memory/ratio']:.1f} times less)" in page


def test_exact_is_a_training_without(
    scadl: Callable[..., Any], tiny: tuple[str, ...], trained: Path
) -> None:
    found = metrics(scadl, *tiny, "memory=exact", "memory.smallest=256")
    without = json.loads((trained / "metrics.json").read_text())
    scores = {name: value for name, value in without.items() if name.startswith("test/")}
    assert {name: found[name] for name in scores} == scores
    assert found["memory/saved_bytes_uncompressed"] == without["memory/saved_bytes_uncompressed"]
    assert found["memory/saved_bytes"] < without["memory/saved_bytes"]


def test_the_state_of_every_rank_is_kept() -> None:
    class Two(World):
        def gather(self, value: Any) -> list[Any]:
            return [{"step": 3, "sites": {}}, {"step": 4, "sites": {}}]

    world = Two(rank=1, size=2)
    saved = ActivationMemory(world).state_dict()
    resumed, module = ActivationMemory(world), nn.Linear(2, 2)
    resumed.load_state_dict(saved)
    resumed.on_fit_start(None, module)  # type: ignore[arg-type]
    assert resumed.compressed is not None
    assert resumed.compressed.step == 4
    alone = ActivationMemory(World())
    alone.load_state_dict(saved)
    alone.on_fit_start(None, module)  # type: ignore[arg-type]
    assert alone.compressed is not None
    assert alone.compressed.step == 3


def test_an_error_in_a_step_leaves_no_hooks() -> None:
    memory, leaf_N = ActivationMemory(World()), torch.randn(4096, requires_grad=True)
    memory.on_fit_start(None, nn.Identity())  # type: ignore[arg-type]
    memory.on_train_batch_start(None, None)  # type: ignore[arg-type]
    error = RuntimeError("torch.func transforms don't yet support saved tensor hooks")
    with pytest.raises(ActivationError):
        memory.on_exception(None, None, error)  # type: ignore[arg-type]
    assert memory.compressed is not None
    before = memory.compressed.ledger.peak
    leaf_N.exp()
    assert memory.compressed.ledger.peak == before == 0
