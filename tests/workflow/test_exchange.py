"""Compressed gradients in a run of two ranks: numbers, report, resumption."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from scadl_core.cli import main
from scadl_core.comm import World
from scadl_core.comm.compressed import Compressed
from scadl_core.compress import Absolute, encode
from scadl_core.workflow.exchange import GradientTraffic

Ranks = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def loaded() -> None:
    """The codec's kernels take seconds to load, behind a fork nothing."""
    encode(torch.ones(4), Absolute(1.0))


def run(*words: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(["train", "climate", *words])
    return status, said.getvalue()


def read(folder: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((Path(folder) / "metrics.json").read_text())
    return found


def test_a_stopped_run_goes_on_exactly(
    run_ranks: Ranks, tiny: Sequence[str], workplace: Path
) -> None:
    words = [*tiny, "comm=compressed", "comm.bound=0.5"]

    def train() -> list[tuple[int, str]]:
        statuses = [run(*words, "run.dir=whole")]
        begin = GradientTraffic.on_before_backward
        steps = iter(range(99))

        def stopping(self: GradientTraffic, *arguments: Any) -> None:
            begin(self, *arguments)
            if next(steps) == 1 and self.world.is_first:
                os.kill(os.getpid(), signal.SIGTERM)

        GradientTraffic.on_before_backward = stopping  # type: ignore[method-assign]
        statuses.append(run(*words, "run.dir=parts"))
        GradientTraffic.on_before_backward = begin  # type: ignore[method-assign]
        statuses.append(run(*words, "run.dir=parts", "resume=auto"))
        return statuses

    for statuses in run_ranks(2, train, timeout=240):
        assert [status for status, _ in statuses] == [0, 75, 0], statuses
    whole, parts = read("whole"), read("parts")
    assert whole["comm/gradient_ratio"] > 2
    assert whole["comm/gradient_bytes"] < whole["comm/sent_bytes"]
    same = {name for name in whole if name.startswith("test/")}
    same.add("comm/gradient_bytes_uncompressed")
    assert {name: parts[name] for name in same} == {name: whole[name] for name in same}
    assert "Gradients exchanged, all ranks" in Path("parts/report.html").read_text()


def test_it_is_refused_where_no_gradients_are_exchanged(
    scadl: Callable[..., Any], tiny: Sequence[str]
) -> None:
    done = scadl("train", "climate", *tiny, "solver=admm", "comm=quantised", "run.dir=run")
    assert done.status == 2
    assert "comm: with this solver ranks exchange no gradients" in done.err
    assert not Path("run").exists()


def test_one_rank_exchanges_nothing(scadl: Callable[..., Any], tiny: Sequence[str]) -> None:
    done = scadl("train", "climate", *tiny, "comm=compressed", "run.dir=run")
    assert (done.status, done.err) == (0, "")
    assert not [name for name in read("run") if name.startswith("comm/gradient")]


def test_the_count_of_all_ranks_goes_on_with_fewer() -> None:
    class Two(World):
        def gather_first(self, value: Any) -> list[Any]:
            return [value, value]

    first = GradientTraffic(World(size=2), Compressed(Two(size=2)))
    first.world = Two(size=2)
    first.exchange.sent_bytes, first.exchange.plain_bytes = 10, 200
    alone = GradientTraffic(World(), Compressed(World()))
    alone.load_state_dict(first.state_dict())
    assert alone.total() == {
        "comm/gradient_bytes": 20,
        "comm/gradient_bytes_uncompressed": 400,
        "comm/gradient_ratio": 20,
    }
