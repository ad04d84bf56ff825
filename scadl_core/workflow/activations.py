"""Compressed activations as a part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer

from scadl_core.comm import World
from scadl_core.errors import ActivationError, ConfigError
from scadl_core.memory import CompressedActivations
from scadl_core.memory.ledger import Line
from scadl_core.record.datareport import Table
from scadl_core.record.plots import activation_bars
from scadl_core.record.report import readable_bytes

_SHOWN = 40


class ActivationMemory(Callback):
    """Opens :class:`scadl_core.memory.CompressedActivations` around each training step's forward
    pass.

    With manual optimization only the forward pass before a batch's first backward pass is in it.
    Its statistics are in the checkpoint, one set a rank, so that a resumed run goes on exactly.

    Args:
        world: The processes of the run.
        fraction: Of a gradient's norm that its error may reach.
        budget: Bytes that saved tensors may take; see :mod:`scadl_core.memory.budget`.
        blocks: Modules that may be computed again; see :mod:`scadl_core.memory.blocks`.
        every: Steps from one look at the gradients to the next.
        smallest: Elements; smaller tensors are kept as they are.
    """

    def __init__(
        self, world: World, fraction: float = 0.01, budget: str | float | None = None,
        blocks: Sequence[str] = (), every: int = 10, smallest: int = 1024,
    ) -> None:  # fmt: skip
        self.world = world
        self.make = partial(
            CompressedActivations, fraction=fraction, budget=budget, blocks=blocks, every=every,
            smallest=smallest,
        )  # fmt: skip
        self.compressed: CompressedActivations | None = None
        self._is_open = False
        self._state: dict[str, Any] | None = None
        self._sums = {"steps": 0.0, "stored": 0.0, "raw": 0.0, "most": 0.0, "seconds": 0.0}
        self._lines: dict[str, Line] = {}

    @property
    def totals(self) -> dict[str, float]:
        """Means over the steps of this rank, and the most of any step; what a plan computes again
        is not saved at all, so without compression the most counts.
        """
        steps = max(1.0, self._sums["steps"])
        stored, raw = self._sums["stored"] / steps, self._sums["raw"]
        return {
            "memory/saved_bytes": stored,
            "memory/saved_bytes_uncompressed": raw,
            "memory/saved_bytes_most": self._sums["most"],
            "memory/ratio": raw / stored if stored else 1.0,
            "memory/codec_seconds": self._sums["seconds"],
        }

    def try_on(self, module: LightningModule) -> None:
        """Finds settings that a network refuses, before the run exists."""
        try:
            self.make(module)
        except ActivationError as error:
            raise ConfigError(f"memory.{error}") from error

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """The network is on its device."""
        self.compressed = self.make(module)
        if self._state is not None:
            self.compressed.load_state_dict(self._state)

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        """Before the forward pass."""
        assert self.compressed is not None
        self.compressed.__enter__()
        self._is_open = True

    def on_before_backward(self, *_: Any) -> None:
        """After it."""
        self._close()

    def on_train_batch_end(self, *_: Any) -> None:
        """Adds the step to the sums."""
        self._close()
        assert self.compressed is not None
        ledger = self.compressed.ledger
        self._sums["steps"] += 1
        self._sums["stored"] += ledger.peak
        self._sums["raw"] = max(self._sums["raw"], ledger.peak_raw)
        self._sums["most"] = max(self._sums["most"], ledger.peak)
        self._sums["seconds"] += ledger.seconds
        self._lines = ledger.lines

    def on_exception(self, trainer: Trainer, module: Any, exception: BaseException) -> None:
        """Leaves no hooks behind; says what a transform of torch.func ran into."""
        self._close(exception)

    def _close(self, error: BaseException | None = None) -> None:
        if self._is_open and self.compressed is not None:
            self._is_open = False
            self.compressed.__exit__(type(error) if error else None, error, None)

    def state_dict(self) -> dict[str, Any]:
        """What every rank goes on with; called by all of them."""
        own = self.compressed.state_dict() if self.compressed is not None else {}
        return {"ranks": self.world.gather(own), "sums": self._sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a stored state; with another number of ranks, from the first one's."""
        ranks = state_dict["ranks"]
        own = self.world.rank if len(ranks) == self.world.size else 0
        self._state, self._sums = ranks[own] or None, state_dict["sums"]

    def table(self) -> Table:
        """Where the bytes of the last step were."""
        lines = sorted(self._lines.items(), key=lambda item: -item[1].raw)
        rows = [
            (name, line.kind, readable_bytes(line.raw), readable_bytes(line.stored),
             f"{line.raw / line.stored:.1f}" if line.stored else "-",
             f"{1000 * line.seconds:.1f} ms")
            for name, line in lines[:_SHOWN]
        ]  # fmt: skip
        columns = ("saved by", "kept as", "uncompressed", "kept", "ratio", "in the codec")
        return Table("Activations kept in the last step", columns, rows)

    def draw(self, path: Path) -> str:
        """Draws the table's bytes by kind.

        Args:
            path: The PNG file to write.

        Returns:
            Its caption.
        """
        kinds: dict[str, tuple[int, int]] = {}
        for line in self._lines.values():
            raw, stored = kinds.get(line.kind, (0, 0))
            kinds[line.kind] = raw + line.raw, stored + line.stored
        activation_bars(kinds, path)
        found = self.totals
        return (
            f"Activations kept for the backward pass, a step: "
            f"{readable_bytes(found['memory/saved_bytes'])} instead of "
            f"{readable_bytes(found['memory/saved_bytes_uncompressed'])} "
            f"({found['memory/ratio']:.1f} times less)."
        )
