"""Runs of several processes: every line of the table in which Lightning alone goes wrong.

Under mpirun were measured: N silent copies of the same training (devices=1), an IndexError
(devices=auto), fewer ranks than were asked for (devices=4), and Slurm's variables believed before
the launcher.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from scadl_core.cli import main
from scadl_core.comm import World
from scadl_core.errors import ConfigError
from scadl_core.record.runfolder import RunFolder
from scadl_core.workflow.gradient import placement


@pytest.mark.parametrize("key", ["devices", "num_nodes", "strategy", "plugins"])
@pytest.mark.parametrize("size", [1, 2])
def test_the_launch_decides_where_it_runs(key: str, size: int) -> None:
    import functools

    with pytest.raises(ConfigError, match=f"^trainer.{key} follows from how the processes are"):
        placement(World(0, size, local_size=size), functools.partial(dict, **{key: 1}))


@pytest.mark.parametrize("devices", ["1", "auto", "4"])
def test_devices_of_ones_own_are_refused_once(
    devices: str, run_ranks: Callable[..., list[Any]], tiny: Sequence[str], workplace: Path
) -> None:
    def train() -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = main(["train", "climate", *tiny, f"+trainer.devices={devices}"])
        return status, said.getvalue()

    message = (
        "scadl: trainer.devices follows from how the processes are launched; remove it and start "
        "`mpirun -n 4 scadl ...`, `torchrun --nproc-per-node 4 -m scadl_core.cli ...` or "
        "`srun scadl ...`\n"
    )
    assert run_ranks(2, train) == [(2, message), (2, "")]


def test_mpirun_makes_one_run_of_two_ranks(
    mpirun: Callable[..., Any], tiny: Sequence[str], workplace: Path
) -> None:
    """In a Slurm allocation besides, whose variables must not be believed."""
    slurm = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    done = mpirun(2, "train", "climate", *tiny, environment=slurm)
    assert done.status == 0, done.err
    [folder] = (workplace / "runs" / "climate").iterdir()
    lines = done.out.splitlines()
    assert lines[0] == f"run folder: {folder}"
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert len([line for line in lines if line.startswith("  val/loss")]) == 2  # epochs
    assert len(lines) == 4, done.out
    provenance = json.loads((folder / "provenance.json").read_text())
    assert (provenance["launcher"], len(provenance["ranks"])) == ("mpi", 2)
    metrics = RunFolder(folder).load_metrics()
    assert metrics["train/epochs"] == 2
    assert metrics["comm/sent_bytes"] > 0


def test_mpirun_tells_of_a_mistake_once(mpirun: Callable[..., Any], workplace: Path) -> None:
    done = mpirun(2, "config", "climate", "trainer.devices=2")
    assert done.status == 2
    assert done.err.count("scadl:") == 1
    assert "unknown key 'trainer.devices'" in done.err
    assert done.out == ""


def say_it_as_srun_does() -> None:
    """Replaces torchrun's variables by those of `srun -n 2` on one node, without an MPI."""
    rank, port = os.environ["RANK"], os.environ["MASTER_PORT"]
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        del os.environ[name]
    os.environ.update(
        SLURM_JOB_ID="7",
        SLURM_STEP_ID="0",
        SLURM_STEP_NUM_TASKS="2",
        SLURM_STEP_TASKS_PER_NODE="2",
        SLURM_STEP_NODELIST="localhost",
        SLURM_PROCID=rank,
        SLURM_LOCALID=rank,
        SLURM_NODEID="0",
        MASTER_PORT=port,
    )


@pytest.mark.parametrize("launcher", ["torchrun", "srun"])
def test_variables_of_a_launcher_make_one_run_of_two_ranks(
    launcher: str,
    run_ranks: Callable[..., list[Any]],
    tiny: Sequence[str],
    workplace: Path,
    trained: Path,
) -> None:
    """Two ranks come to the loss of one, since a batch does not depend on how it is shared."""

    def train() -> str:
        if launcher == "srun":
            say_it_as_srun_does()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert main(["train", "climate", *tiny, "run.dir=two"]) == 0
        assert World.start().size == 2
        return said.getvalue()

    first, second = run_ranks(2, train)
    assert second == ""
    assert first.splitlines()[0] == f"run folder: {workplace / 'two'}"
    two, one = RunFolder(workplace / "two").load_metrics(), RunFolder(trained).load_metrics()
    assert two["test/loss"] == pytest.approx(one["test/loss"], rel=1e-3)
    gradient_bytes = two["comm/sent_bytes"]
    assert gradient_bytes > 0 == one["comm/sent_bytes"]
