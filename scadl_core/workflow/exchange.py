"""The exchange of gradients as a part of a run."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch.nn.parallel import DistributedDataParallel

from scadl_core.comm import World
from scadl_core.comm.gradients import GradientExchange
from scadl_core.record.datareport import Table
from scadl_core.record.report import readable_bytes


class GradientTraffic(Callback):
    """Gives the exchange the model of the run, keeps its state in the checkpoint, and counts.

    Args:
        world: The processes of the run.
        exchange: How gradients are averaged.
    """

    def __init__(self, world: World, exchange: GradientExchange) -> None:
        self.world, self.exchange = world, exchange
        self._before = {"sent": 0, "plain": 0}

    @property
    def _counts(self) -> dict[str, int]:
        """Bytes of this rank, over all resumed parts."""
        return {
            "sent": self._before["sent"] + self.exchange.sent_bytes,
            "plain": self._before["plain"] + self.exchange.plain_bytes,
        }

    def total(self) -> dict[str, float]:
        """Bytes of all ranks; every rank calls it. Nothing where there is one rank."""
        ranks = self.world.gather(self._counts)
        sent, plain = (sum(counts[kind] for counts in ranks) for kind in ("sent", "plain"))
        if not plain:
            return {}
        return {
            "comm/gradient_bytes": sent,
            "comm/gradient_bytes_uncompressed": plain,
            "comm/gradient_ratio": plain / sent,
        }

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Takes over the exchange where every rank has the whole network."""
        model = trainer.strategy.model
        if isinstance(model, DistributedDataParallel):
            self.exchange.attach(model)

    def on_before_backward(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        """Tells the exchange in which units the gradients will be."""
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.exchange.loss_scale = 1.0 if scaler is None else scaler.get_scale()

    def on_fit_end(self, *_: Any) -> None:
        """Ends the exchange's thread."""
        self.exchange.close()

    def state_dict(self) -> dict[str, Any]:
        """What every rank goes on with, on rank 0; called by all of them."""
        own = {"exchange": self.exchange.state_dict(), "counts": self._counts}
        return {"ranks": self.world.gather_first(own)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a stored state, also on another number of ranks."""
        ranks = state_dict["ranks"]
        if len(ranks) == self.world.size:
            self._before = ranks[self.world.rank]["counts"]
        elif self.world.is_first:
            self._before = {k: sum(r["counts"][k] for r in ranks) for k in self._before}
        self.exchange.load_state_dicts([rank["exchange"] for rank in ranks])


def traffic_table(totals: dict[str, float]) -> Table:
    """What was sent, beside what plain training would have sent."""
    sent, plain = totals["comm/gradient_bytes"], totals["comm/gradient_bytes_uncompressed"]
    row = (readable_bytes(plain), readable_bytes(sent), f"{plain / sent:.1f}")
    return Table("Gradients exchanged, all ranks", ("uncompressed", "sent", "ratio"), [row])
