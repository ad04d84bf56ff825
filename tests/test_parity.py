"""One rank and several train the same model: a global batch is the same sums, however it is cut."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# One step an epoch, so that metrics.csv has the loss of every step; 19 of 20 maps a batch, so that
# the shares of the ranks differ in size and every step leaves out another map.
RUN = [
    "loader.batch_size=19",
    "trainer.max_epochs=20",
    "trainer.precision=64-true",
]


def losses(folder: Path, ranks: int, data: Path, small: Sequence[str]) -> list[float]:
    scadl = [sys.executable, "-m", "scadl_core.cli", "train", "climate", *small, *RUN]
    scadl += [f"run.dir={folder}"]
    mpirun = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks)] if ranks > 1 else []
    environ = {**os.environ, "SCADL_DATA": str(data), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [*mpirun, *scadl], env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 21))
    return [float(row[name]) for row in rows for name in ("train/loss", "val/score")]


def test_loss_trajectory_does_not_depend_on_ranks(tmp_path: Path, small: Sequence[str]) -> None:
    alone = losses(tmp_path / "one", 1, tmp_path / "data", small)
    assert alone[0] > alone[-2]
    for ranks in (2, 4):
        assert losses(tmp_path / str(ranks), ranks, tmp_path / "data", small) == pytest.approx(
            alone, abs=1e-9, rel=0
        )
