"""The places of a network where tensors are saved, and the bound of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from scadl_core.memory.operations import Call, Need

MEMORY = 0.1  # weight of the newest statistics in their exponential average
NOISIEST = 2.0  # bound, in scales of the values, above which the noise would be more than they
# Bound over the root mean square from which nearest rounding is biased. Behind a ReLU small values
# are many and all become zero: by more than 5 % at 1e-2 (docs/results/memory.md). What goes into a
# normalisation has a smooth density, of which steps up to a standard deviation are too small to
# notice (Widrow 1956, doi:10.1109/TCT.1956.1086334).
DITHER_FROM = {Need.SUM: 1e-2, Need.VALUE: 1e-2, Need.NORM: 0.5}


@dataclass
class Site:
    """What is known of one place.

    Attributes:
        name: Operation and parameter, such as ``conv2d net.0``.
        need: What is kept.
        reach: The bound at which the gradient's error is as large as the gradient, an exponential
            average; None until a backward pass has told.
        scale: Root mean square of the values (about their mean for a normalisation), an average.
        updates: How many values ``reach`` has averaged.
        partners: Other places that share the same stored tensor.
        own: The bound that it would have alone.
        eps: The bound last used.
        density: Share of the values that are not zero.
        values: How many are not zero.
        error: Predicted squared error of the gradient in the last step with statistics.
        loosened: Factor on the bound that the plan or a full budget asked for.
        passed: Of a normalisation: relative error of the gradient that it passes on, for an error
            of the normalised values of one, an average.
    """

    name: str
    need: Need
    reach: float | None = None
    scale: float | None = None
    updates: int = 0
    partners: set[str] = field(default_factory=set)
    own: float = 0.0
    eps: float = 0.0
    density: float = 1.0
    values: float = 0.0
    error: float = 0.0
    loosened: float = 1.0
    passed: float = 0.0

    def measure(self, values: Tensor) -> None:
        """Takes the scale of the values into the average."""
        wide = values.detach().to(torch.promote_types(values.dtype, torch.float32))
        if self.need is not Need.NORM:
            self.density = float(torch.count_nonzero(wide)) / max(1, values.numel())
        self.values = self.density * values.numel()
        if self.need is Need.NORM:
            found = float(wide.std(correction=0))
        else:
            found = float(torch.linalg.vector_norm(wide)) / math.sqrt(max(1, values.numel()))
        if math.isfinite(found):
            self.scale = found if self.scale is None else self.scale + MEMORY * (found - self.scale)

    def learn(self, unit: float, gradient: float, total: float) -> None:
        """Takes what a backward pass told into the average.

        Both may carry the factor of a loss scaler, which cancels.

        Args:
            unit: See :mod:`scadl_core.memory.sensitivity`.
            gradient: Norm of the gradient that errors go into.
            total: The units of all places whose errors go into it.
        """
        self.error = self.eps**2 * unit
        reach = gradient / math.sqrt(total) if total > 0 else math.inf
        if not math.isfinite(reach) or reach == 0:
            return
        self.updates += 1
        weight = max(MEMORY, 1 / self.updates)
        self.reach = reach if self.reach is None else self.reach + weight * (reach - self.reach)

    def bound(self, call: Call, fraction: float) -> float | None:
        """The largest absolute error for a gradient within ``fraction`` of its norm; None where
        only a relative error says something.

        Without statistics yet the gradient is taken for a sum of products without correlation:
        then ``||dW||^2 = fan ||g||^2 rms(x)^2`` in the mean, from which ``reach = sqrt(3) rms``
        follows. A bound above the root mean square would save little more.
        """
        if self.need is Need.VALUE:
            bend = call.operation.curvature
            return None if bend is None else fraction * self.loosened / bend
        if self.scale is None:  # nothing finite was seen yet
            return 0.0
        reach = self.reach if self.reach is not None else math.sqrt(3) * self.scale
        if self.passed:
            reach = min(reach, math.sqrt(3) * self.scale / self.passed)
        return self.loosened * min(fraction * reach, self.scale)

    def learn_passed(self, error: float) -> None:
        """Takes a value of ``passed`` into the average."""
        if math.isfinite(error):
            known = self.passed or error
            self.passed = known + max(MEMORY, 1 / max(1, self.updates)) * (error - known)

    def is_loose(self, eps: float) -> bool:
        """Whether a bound needs dither."""
        return self.scale is not None and eps > DITHER_FROM[self.need] * self.scale

    _stored: ClassVar[tuple[str, ...]] = ("reach", "scale", "updates", "loosened", "passed")

    def state(self) -> dict[str, Any]:
        """What a resumed training goes on with."""
        plain = {name: getattr(self, name) for name in self._stored}
        return {"need": self.need.value, "partners": sorted(self.partners), **plain}

    @classmethod
    def from_state(cls, name: str, state: dict[str, Any]) -> Site:
        """Inverse of :meth:`state`."""
        known = {k: v for k, v in state.items() if k not in ("need", "partners")}
        return cls(name, Need(state["need"]), partners=set(state["partners"]), **known)
