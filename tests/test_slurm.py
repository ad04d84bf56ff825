"""The sbatch templates as a cluster would run them, with commands that only take notes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hydra import compose

from scadl_core.config.apps import find_app
from scadl_core.config.compose import hydra_for

TEMPLATES = Path(__file__).parents[1] / "docs" / "slurm"


def run(template: str, folder: Path, status: int) -> tuple[int, list[str]]:
    """The template's status, and what was called."""
    for name in ("srun", "scontrol"):
        program = folder / name
        code = status if name == "srun" else 0
        # A tuning succeeds whatever the training does.
        program.write_text(
            f'#!/bin/bash\necho {name} "$@" >> calls\n[ "$3" = tune ] && exit 0\nexit {code}\n'
        )
        program.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, str(TEMPLATES / template), "climate", "seed=1"], cwd=folder, check=False,
        env={"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "8",
             "SLURM_ARRAY_TASK_ID": "3"},
    )  # fmt: skip
    calls = (folder / "calls").read_text().splitlines()
    (folder / "calls").unlink()
    return done.returncode, calls


@pytest.mark.parametrize(
    ("template", "train", "job"),
    [
        ("one_node.sbatch", "srun --mpi=none scadl train climate seed=1 "
         "run.dir=runs/slurm-7 resume=auto", "7"),
        ("many_nodes.sbatch", "srun --mpi=none scadl train climate seed=1 "
         "run.dir=runs/slurm-7 resume=auto", "7"),
        ("array.sbatch", "srun scadl train climate seed=1 seed=3 "
         "run.dir=runs/array-8/seed-3 resume=auto", "8_3"),
    ],
)  # fmt: skip
def test_a_job_is_requeued_when_everything_is_saved(
    template: str, train: str, job: str, tmp_path: Path
) -> None:
    for status, last in ((0, train), (2, train), (75, f"scontrol requeue {job}")):
        found, calls = run(template, tmp_path, status)
        assert found == status
        assert train in calls and calls[-1] == last
    text = (TEMPLATES / template).read_text()
    assert "#SBATCH --signal=USR2@120" in text and "#SBATCH --requeue" in text


def test_many_nodes_are_tuned_once_and_trained_with_what_was_found(tmp_path: Path) -> None:
    _, calls = run("many_nodes.sbatch", tmp_path, 75)
    assert calls[0] == "srun --mpi=none scadl tune climate seed=1 --out=runs/slurm-7-tuned"
    (tmp_path / "runs/slurm-7-tuned/experiment").mkdir(parents=True)
    (tmp_path / "runs/slurm-7-tuned/experiment/tuned.yaml").touch()
    _, calls = run("many_nodes.sbatch", tmp_path, 0)
    chosen = "--config-dir runs/slurm-7-tuned experiment=tuned"
    assert calls == [f"srun --mpi=none scadl train climate seed=1 {chosen} "
                     "run.dir=runs/slurm-7 resume=auto"]  # fmt: skip


def test_the_launcher_of_sweeps_gives_runs_time_to_stop() -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    app = find_app("climate")
    with hydra_for(app):
        launcher = compose(
            app.name, ["hydra/launcher=slurm"], return_hydra_config=True
        ).hydra.launcher
    assert launcher["_target_"].endswith("SlurmLauncher")
    assert (launcher.signal_delay_s, launcher.max_num_timeout) == (120, 0)
