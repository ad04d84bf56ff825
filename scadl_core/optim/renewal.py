"""When factors are inverted: by the calendar, by the residual probe, or again after a failure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from scadl_core.optim.curvature import LADDER, Curvature, Group
from scadl_core.optim.exchange import Exchange
from scadl_core.optim.layers import Layer


class Renewal:
    """Inverts what is due, and reads a step later what came of it: asking at once would wait for
    the device.

    Args:
        groups: Of all layers.
        curvature: Whose inverses are renewed.
        exchange: With the other ranks.
        refresh_above: See :class:`scadl_core.optim.KFAC`.
        seed: Of the probe.
        counters: Here factors are counted that were "retried" with more damping, "kept" from
            before, "refreshed".
    """

    def __init__(
        self,
        groups: Sequence[Group],
        curvature: Curvature,
        exchange: Exchange,
        refresh_above: float,
        seed: int,
        counters: dict[str, int],
    ) -> None:
        self.groups, self.curvature, self.exchange = groups, curvature, exchange
        self.refresh_above, self.seed, self.counters = refresh_above, seed, counters
        self._flags: list[tuple[bool, list[str], Tensor]] = []
        self._again: list[str] = []

    def step(self, number: int, ready: Collection[str], when: str, damping: float) -> None:
        """Renews, at the beginning of every step.

        Args:
            number: Of the step.
            ready: Layers that have statistics.
            when: "all", "probe" or "new": those that have none yet are inverted at any time.
            damping: Of the layers.
        """
        due = self.pending()
        self._again = []
        names = [layer.name for layer in self.exchange.layers if layer.name in ready]
        new = [name for name in names if name not in self.curvature.started]
        if when == "all":
            due = names
        elif when == "probe" and len(new) < len(names):
            old = [name for name in names if name not in new]
            seed = self.seed + number
            stale = self.curvature.stale(self._owned(old), damping, self.refresh_above, seed)
            self._flags.append((True, old, self.exchange.agree(stale, old)))
        due = list(dict.fromkeys([*due, *new]))
        if due:
            failed = self.curvature.refresh(self._owned(due), damping)
            self.exchange.share_inverses(due, self.curvature)
            self.exchange.learn_limits(due, self.curvature, damping)
            self.curvature.finish(due, self.groups)
            self._flags.append((False, due, self.exchange.agree(failed, due)))
            self.counters["refreshed"] += len(due)

    def pending(self) -> list[str]:
        """Layers to be inverted at the next step, from what the last one found."""
        self._again = list(dict.fromkeys([*self._again, *self._follow_up()]))
        return list(self._again)

    def resume(self, due: Sequence[str]) -> None:
        """Takes over what :meth:`pending` was."""
        self._again = list(due)
        self._flags.clear()

    def _owned(self, names: Sequence[str]) -> list[Layer]:
        return [layer for layer in self.exchange.owned if layer.name in set(names)]

    def _follow_up(self) -> list[str]:
        due, levels = [], self.curvature.levels
        for is_probe, names, flags in self._flags:
            for name, flag in zip(names, flags.tolist(), strict=True):
                level = levels.pop(name, 0)
                if is_probe or not flag:
                    due += [name] if flag else []
                elif level < LADDER:
                    levels[name] = level + 1
                    self.counters["retried"] += 1
                    due.append(name)
                else:
                    self.counters["kept"] += 1
        self._flags.clear()
        return due
