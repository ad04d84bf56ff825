"""What happens along a training, beside the training: checkpoints, metrics.csv, signals, one line
every N steps.
"""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from scadl_core.comm import World
from scadl_core.comm.heartbeat import Heartbeat
from scadl_core.files import write_text
from scadl_core.memory import SavedBytes
from scadl_core.record.checkpoints import read_checkpoint, write_checkpoint
from scadl_core.workflow.interrupts import Interrupts
from scadl_core.workflow.loaders import ShardedBatches


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints whole or not at all.

    Args:
        bound: See :func:`scadl_core.record.checkpoints.write_checkpoint`.
    """

    def __init__(self, bound: float | None = None) -> None:
        super().__init__()
        self.bound = bound

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Called by Lightning on rank 0."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(checkpoint, target, self.bound)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> Any:
        """Called by Lightning on every rank."""
        return read_checkpoint(Path(path))


class Checkpoints(Callback):
    """Keeps ``last.ckpt`` (after every epoch, every few minutes, and on a signal) and
    ``best.ckpt``.

    A run that is killed anywhere goes back to the last whole ``last.ckpt`` and repeats what
    followed, to the same numbers; a ``best.ckpt`` written in between is then written again,
    identical.

    Args:
        folder: Where the two files lie.
        identity: Plain values that say what the checkpoint is of; stored in it under ``"scadl"``.
        world: The ranks that save together.
        every_minutes: The longest time between two saves inside an epoch.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], world: World, every_minutes: float = 15.0
    ) -> None:
        self.world = world
        self.last, self.best = folder / "last.ckpt", folder / "best.ckpt"
        self.identity = identity
        self.every_seconds = 60 * every_minutes
        self.best_score = float("-inf")
        self._saved_at = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Saves inside a long epoch, by rank 0's clock, and before the last step, lest a stop in
        the validation cost all.

        After the last step there is no saving until the validation is done: Lightning would resume
        behind it.
        """
        left = trainer.num_training_batches - batches_done(trainer)
        if left and between_steps(trainer):
            due = time.monotonic() - self._saved_at > self.every_seconds
            if left <= trainer.accumulate_grad_batches or self.world.any(
                self.world.is_first and due
            ):
                self.save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """After the epoch's validation: the best so far, then the last."""
        score = float(trainer.callback_metrics.get("val/score", float("nan")))
        if not score <= self.best_score:  # better, or there is no score to go by
            self.best_score = max(score, self.best_score)
            trainer.save_checkpoint(self.best, weights_only=False)
        self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Writes ``last.ckpt``; every rank calls it."""
        trainer.save_checkpoint(self.last, weights_only=False)
        self._saved_at = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """The best score so far."""
        return {"best_score": self.best_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a stored state."""
        self.best_score = state_dict["best_score"]

    def on_save_checkpoint(
        self, trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds what the checkpoint is of, and where in the epoch it was taken."""
        done = batches_done(trainer)
        whole = done >= trainer.num_training_batches
        checkpoint["scadl"] = {
            **self.identity,
            "epoch": trainer.current_epoch + int(whole),
            "batch": 0 if whole else done,
            "step": trainer.global_step,
        }

    def on_load_checkpoint(
        self, trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Makes the training loader begin where the checkpoint was taken."""
        position = checkpoint["scadl"]
        sampler(trainer.fit_loop._data_source.instance).start_at(
            position["epoch"], position["batch"]
        )


class StopOnSignal(Callback):
    """Saves and leaves when any rank was signalled.

    Args:
        interrupts: Where signals are remembered.
        checkpoints: What saves.
    """

    def __init__(self, interrupts: Interrupts, checkpoints: Checkpoints) -> None:
        self.interrupts = interrupts
        self.checkpoints = checkpoints

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Between two optimizer steps of an epoch, where all of the state is in the checkpoint."""
        last = batches_done(trainer) == trainer.num_training_batches
        if between_steps(trainer) and not last and self.interrupts.pending():
            self.checkpoints.save(trainer)
            self.interrupts.check(f"after step {trainer.global_step}")

    def on_validation_batch_end(
        self, trainer: Trainer, module: Any, out: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        """The last checkpoint is of the step before the epoch's last, which will be done again with
        this validation.
        """
        self._check(
            trainer.val_dataloaders,
            batch_idx,
            f"in the validation after step {trainer.global_step}",
        )

    def on_train_epoch_end(self, trainer: Trainer, module: Any) -> None:
        """Comes after the epoch's checkpoint, since callbacks run in order."""
        self.interrupts.check(f"after epoch {trainer.current_epoch + 1}")

    def on_test_batch_end(
        self, trainer: Trainer, module: Any, out: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        """The training is saved; the test will be done again."""
        self._check(trainer.test_dataloaders, batch_idx, "in the test")

    def _check(self, loader: Any, batch_idx: int, where: str) -> None:
        if batch_idx < loader.batch_sampler.common:
            self.interrupts.check(where)


class SignsOfLife(Callback):
    """Tells the heartbeat how far the run is."""

    heartbeat: Heartbeat | None = None

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """After every batch."""
        if self.heartbeat is not None:
            self.heartbeat.step = trainer.global_step


class History(Callback):
    """Collects one row an epoch, writes them to ``metrics.csv``, and measures time, memory and
    traffic.

    The rows live in the checkpoint, so a resumed run's file is that of an uninterrupted one.

    Args:
        path: The CSV file.
        world: Whose traffic is counted.
        counts_saved: Whether what autograd saves is counted here.
    """

    def __init__(self, path: Path, world: World, counts_saved: bool = True) -> None:
        self.path = path
        self.world = world
        self.counts_saved = counts_saved
        self.rows: list[dict[str, float]] = []
        self._losses: list[float] = []
        self._seconds_before, self._began = 0.0, time.monotonic()
        self._sent_bytes_before, self._sent_bytes_began = 0, 0
        self._saved_bytes: int | None = None
        self._measurement: SavedBytes | None = None

    @property
    def totals(self) -> dict[str, float]:
        """What the training took up to now, over all of its resumed parts; ``comm/sent_bytes`` is
        of this rank.
        """
        return {
            "train/seconds": self._seconds_before + time.monotonic() - self._began,
            "train/epochs": len(self.rows),
            "memory/saved_bytes": self._saved_bytes or 0,
            "memory/saved_bytes_uncompressed": self._saved_bytes or 0,
            "comm/sent_bytes": self._sent_bytes_before
            + self.world.traffic.sent_bytes
            - self._sent_bytes_began,
        }

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Starts the clock and counts what is sent from now on."""
        self._began, self._sent_bytes_began = time.monotonic(), self.world.traffic.sent_bytes

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        """Opens the measurement of one step's activations."""
        if self._saved_bytes is None and self.counts_saved:
            self._measurement = SavedBytes(module).__enter__()

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, *_: Any) -> None:
        """Closes it, and keeps the loss of the step."""
        self._losses.append(float(outputs["loss"]))
        if self._measurement is not None:
            self._measurement.__exit__(None, None, None)
            self._saved_bytes, self._measurement = self._measurement.bytes, None

    def on_train_epoch_end(self, trainer: Trainer, module: Any) -> None:
        """Adds the epoch's row."""
        values = {
            name: float(v)
            for name, v in trainer.callback_metrics.items()
            if not name.endswith("_step")
        }
        self.rows.append(
            {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **values}
        )
        if trainer.is_global_zero:
            write_text(self.path, _as_csv(self.rows))

    def state_dict(self) -> dict[str, Any]:
        """Rows and totals up to now."""
        return {"rows": self.rows, "losses": self._losses, "totals": self.totals}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from stored rows and totals."""
        totals = state_dict["totals"]
        self.rows, self._losses = state_dict["rows"], state_dict["losses"]
        self._seconds_before, self._sent_bytes_before = (
            totals["train/seconds"],
            totals["comm/sent_bytes"],
        )
        self._saved_bytes = totals["memory/saved_bytes"]
        self._began, self._sent_bytes_began = time.monotonic(), self.world.traffic.sent_bytes


class LineProgress(Callback):
    """One line every N steps, for logs that no terminal shows.

    Args:
        every_steps: N.
    """

    def __init__(self, every_steps: int) -> None:
        self.every_steps = every_steps

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Starts the clock."""
        self._began, self._first = time.monotonic(), trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, *_: Any) -> None:
        """Prints when it is time."""
        step, every = trainer.global_step, self.every_steps
        if not trainer.is_global_zero or not between_steps(trainer) or step % every:
            return
        rate = (step - self._first) / (time.monotonic() - self._began)
        left = time.strftime(
            "%H:%M:%S", time.gmtime((trainer.estimated_stepping_batches - step) / rate)
        )
        loss = float(outputs["loss"])
        print(
            f"epoch {trainer.current_epoch + 1} step {step} loss {loss:.4f} {rate:.2f} steps/s "
            f"eta {left}",
            flush=True,
        )

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        """Prints the validation scores."""
        if trainer.is_global_zero and not trainer.sanity_checking:
            scores = {
                n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("val/")
            }
            print(
                "  " + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()),
                flush=True,
            )


def between_steps(trainer: Trainer) -> bool:
    """Whether the batch that just ended completed an optimizer step, so that no gradient is
    pending.
    """
    return not trainer.fit_loop._should_accumulate()


def batches_done(trainer: Trainer) -> int:
    """How many batches of the current epoch are done."""
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return int(progress.processed)


def sampler(loader: Any) -> ShardedBatches:
    """The batch sampler of a training loader."""
    found = loader.batch_sampler
    assert isinstance(found, ShardedBatches)
    return found


def _as_csv(rows: list[dict[str, float]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
