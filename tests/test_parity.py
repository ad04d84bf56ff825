"""One rank and several train the same model: a global batch is the same sums, however it is cut."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from scadl_core.cli import main

# One step an epoch, so that metrics.csv has the loss of every step; 19 of 20 maps a batch, so that
# the shares of the ranks differ in size and every step leaves out another map.
RUN = [
    "loader.batch_size=19",
    "trainer.max_epochs=20",
    "trainer.precision=64-true",
    "trainer.accelerator=cpu",
    "figures.num_samples=0",
]


def losses(run_ranks: Callable[..., list[Any]], ranks: int, small: Sequence[str]) -> list[float]:
    folder = Path(f"on{ranks}")

    def train() -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return main(["train", "climate", *small, *RUN, f"run.dir={folder}"]), said.getvalue()

    assert run_ranks(ranks, train, timeout=300) == [(0, "")] * ranks
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 21))
    return [float(row[name]) for row in rows for name in ("train/loss", "val/score")]


@pytest.mark.usefixtures("workplace")
def test_loss_trajectory_does_not_depend_on_ranks(
    run_ranks: Callable[..., list[Any]], small: Sequence[str]
) -> None:
    alone = losses(run_ranks, 1, small)
    assert alone[0] > alone[-2]
    for ranks in (2, 4):
        assert losses(run_ranks, ranks, small) == pytest.approx(alone, abs=1e-9, rel=0)
