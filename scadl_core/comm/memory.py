"""What a lossy exchange of gradients remembers of each parameter, step after step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_POWERS = {"error": 1, "square": 2}  # of the scale of the loss, to which they are proportional


class Memory:
    """Tensors by kind and parameter, of which a step replaces all or none.

    By parameter, since DistributedDataParallel makes new buckets after the first step, and a
    resumed run begins with the first ones again. Where a gradient is not finite the optimizer
    skips the step: what was sent in it is used by nobody, and everything stays as it was.

    The kind ``"error"`` is what was not sent yet (error feedback: Seide et al. 2014, Karimireddy
    et al. 2019).
    """

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Tensor]] = {}
        self._next: dict[str, dict[str, Tensor]] = {}
        self._is_finite, self._scale = True, 1.0

    def get(self, kind: str, name: str, like: Tensor) -> Tensor | None:
        """What is known, on the device and of the dtype of another tensor."""
        found = self.kept.get(kind, {}).get(name)
        return None if found is None else found.to(like)

    def put(self, kind: str, name: str, value: Tensor) -> None:
        """What will be known after the step."""
        self._next.setdefault(kind, {})[name] = value

    def rescale(self, scale: float) -> None:
        """Follows the scale of the loss; once a bucket, before its gradients are looked at."""
        if scale != self._scale:
            for kind, power in _POWERS.items():
                for value in self.kept.get(kind, {}).values():
                    value.mul_((scale / self._scale) ** power)
            self._scale = scale

    def end_bucket(self, averaged: Tensor, is_last: bool) -> None:
        """Ends a bucket, and with the last one the step.

        Args:
            averaged: What all ranks have got, so that all come to the same decision.
            is_last: Of the step.
        """
        ends = torch.stack(averaged.aminmax())  # a NaN is both; faster than a look at each element
        self._is_finite &= bool(torch.isfinite(ends).all())
        if is_last:
            if self._is_finite:
                for kind, values in self._next.items():
                    self.kept.setdefault(kind, {}).update(values)
            self._next, self._is_finite = {}, True

    def state_dict(self) -> dict[str, Any]:
        """Everything, on the CPU."""
        kept = {
            kind: {name: value.cpu().clone() for name, value in values.items()}
            for kind, values in self.kept.items()
        }
        return {"kept": kept, "scale": self._scale}

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]], rank: int, size: int) -> None:
        """Goes on from what all ranks remembered.

        On another number of ranks each takes the mean: what is left to send then has the same
        average as before.
        """
        if len(states) == size:
            state = states[rank]
            self.kept = {k: {n: v.clone() for n, v in d.items()} for k, d in state["kept"].items()}
        else:
            self.kept = {
                kind: {n: torch.stack([s["kept"][kind][n] for s in states]).mean(0) for n in values}
                for kind, values in states[0]["kept"].items()
            }
        self._scale = states[0]["scale"]
