"""solver=admm in a run: trained, resumed to the same weights, reported, and used as any run is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scadl_core.comm import World
from scadl_core.record.checkpoints import read_checkpoint
from scadl_core.workflow.cutting import FixedBatches, TaskLoss, cut_network

ADMM = ("solver=admm", "solver.blocks=3")
POWERS = ("solver.local=kfac", "memory=adaptive", "comm=compressed")


def weights(run: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = read_checkpoint(run / "checkpoints" / "last.ckpt")[
        "state_dict"
    ]
    return state


def test_a_run_is_trained_reported_resumed_and_used(
    scadl: Callable[..., Any], tiny: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from scadl_core.workflow.callbacks import Checkpoints
    from scadl_core.workflow.interrupts import Stopped

    command = ("train", "climate", *tiny, *ADMM, *POWERS)
    whole = scadl(*command, "run.dir=whole")
    assert whole.status == 0, whole.err
    metrics = json.loads(Path("whole/metrics.json").read_text())
    assert {"test/iou_mean", "baseline/iou_mean", "train/seconds"} <= metrics.keys()
    assert 0 < 2 * metrics["comm/message_bytes"] < metrics["comm/message_bytes_uncompressed"]
    assert 0 < metrics["memory/saved_bytes"] < metrics["memory/saved_bytes_uncompressed"]
    assert metrics["admm/inversions"] > 0 and metrics["admm/gap"] > 0
    assert Path("whole/figures/admm.png").stat().st_size > 0
    events = json.loads(Path("whole/figures/timeline.json").read_text())["traceEvents"]
    assert any(it["name"] == "block 1: step" for it in events)
    assert "timeline.json" in Path("whole/report.html").read_text()
    assert "Residuals, Lagrangian" in Path("whole/report.html").read_text()
    rows = list(csv.DictReader(Path("whole/metrics.csv").read_text().splitlines()))
    assert float(rows[-1]["train/loss"]) < float(rows[0]["train/loss"])

    with monkeypatch.context() as patch:  # the process ends within the second epoch
        save = Checkpoints.save

        def stop(self: Checkpoints, trainer: Any) -> None:
            save(self, trainer)
            if trainer.global_step == 3:
                raise Stopped("here")

        patch.setattr(Checkpoints, "save", stop)
        assert scadl(*command, "run.dir=parts").status == 75
    resumed = scadl(*command, "run.dir=parts", "resume=auto")
    assert resumed.status == 0, resumed.err
    assert "going on from step 3" in resumed.out
    for name, value in weights(Path("whole")).items():
        torch.testing.assert_close(weights(Path("parts"))[name], value, rtol=0, atol=0)

    warm = scadl("train", "climate", *tiny, "trainer.max_epochs=1", "optimizer.lr=1e-30",
                 "warm_start=whole/checkpoints/last.ckpt", "run.dir=tuned")  # fmt: skip
    assert warm.status == 0, warm.err
    for name, value in weights(Path("whole")).items():
        if name.startswith("network"):
            torch.testing.assert_close(weights(Path("tuned"))[name], value, rtol=0, atol=1e-20)


def test_the_cut_network_is_the_network() -> None:
    from apps.climate.model import UNet

    torch.manual_seed(0)
    network, image = UNet(3, 3, width=4, depth=2), torch.randn(2, 3, 16, 24)
    for blocks in range(1, 7):
        hidden: Any = image
        for block in cut_network(network, blocks):
            hidden = block(hidden)
        torch.testing.assert_close(hidden, network(image), rtol=0, atol=0)


def test_the_loss_of_a_task_is_that_of_its_training_step(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scadl_core.record.runfolder import RunFolder
    from scadl_core.workflow.pipeline import make_source, restore_task

    folder = RunFolder(trained)
    config = folder.load_config()
    task = restore_task(config, folder.load_checkpoint("best", "climate"), World())
    sample = make_source(config, World()).samples("train").read(0, None)
    batch = {name: torch.as_tensor(value)[None] for name, value in sample.items()}
    loss = TaskLoss(task)
    output = task.network(loss.inputs(batch))
    found = loss(output, batch)
    monkeypatch.setattr(task, "log", lambda *_, **__: None)
    assert found == task.training_step(batch, 0)


def test_batches_hold_the_same_samples_in_every_epoch() -> None:
    fixed = FixedBatches(11, 3, World(), seed=4)
    seen = []
    for epoch in range(3):
        fixed.set_epoch(epoch)
        batches = [frozenset(draw.sample for draw in batch) for batch in fixed]
        numbers = [fixed.number(epoch, position) for position in range(3)]
        seen.append(dict(zip(numbers, batches, strict=True)))
        fixed.start_at(epoch, 1)
        assert [frozenset(draw.sample for draw in batch) for batch in fixed] == batches[1:]
    assert seen[0] == seen[1] == seen[2] and sorted(seen[0]) == [0, 1, 2]


@pytest.mark.parametrize(("choice", "name"), [("kfac", "KFAC"), ("muon", "Muon")])
def test_an_optimizer_of_whole_models_is_refused(
    scadl: Callable[..., Any], tiny: tuple[str, ...], choice: str, name: str
) -> None:
    done = scadl("train", "climate", *tiny, *ADMM, f"optimizer={choice}", "run.dir=none")
    assert done.status == 2
    assert done.err.startswith(f"scadl: optimizer: {name} is made from a whole model")
    assert done.err.count("\n") == 1
    assert not Path("none").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("comm=powersgd",), "comm: with this solver ranks exchange no gradients"),
        (("solver.local=kfak",), "solver.local=kfak: no such choice; did you mean 'kfac'?"),
        (
            (
                "solver.local=kfac",
                "solver.rule._target_=scadl_core.admm.rules.PdADMM",
                "~solver.rule.steps",
                "~solver.rule.safety",
                "~solver.rule.staleness",
            ),
            "solver.local=kfac: the steps of PdADMM are in closed form",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    scadl: Callable[..., Any], tiny: tuple[str, ...], words: tuple[str, ...], said: str
) -> None:
    done = scadl("train", "climate", *tiny, *ADMM, *words, "run.dir=none")
    assert done.status == 2
    assert done.err.startswith(f"scadl: {said}")
    assert done.err.count("\n") == 1
    assert not Path("none").exists()


@pytest.mark.soak
@pytest.mark.parametrize("app", ["climate", "hep", "remote_sensing", "graphs"])
def test_all_powers_on_two_ranks(mpirun: Callable[..., Any], app: str) -> None:
    more = ("data.sample.train_scenes=8", "data.sample.test_scenes=2", "data.split.val=0.3")
    more = more if app == "remote_sensing" else ()
    done = mpirun(2, "train", app, "debug=tiny", "trainer.accelerator=cpu", *more, "solver=admm",
                  "run.dir=run", *POWERS)  # fmt: skip
    assert done.status == 0, done.err
    metrics = json.loads(Path("run/metrics.json").read_text())
    accounts = ("memory/saved_bytes", "comm/sent_bytes", "comm/message_bytes", "admm/inversions")
    assert all(metrics[name] > 0 for name in accounts)
