"""The bound of each saved tensor: from what its readers' gradients have told."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from scadl_core.compress import Absolute, Bound, PointwiseRelative, Relative
from scadl_core.memory.operations import Call, Need, ceiling
from scadl_core.memory.sites import NOISIEST, Site


class Bounds:
    """Of one training.

    Args:
        fraction: See :class:`scadl_core.memory.CompressedActivations`.
        fixed: The same bound for all values instead.
        seed: Of the dither.

    Attributes:
        sites: What is known of each place.
        pressure: A factor on all bounds.
        step: Number of the step, for the dither.
    """

    def __init__(self, fraction: float, fixed: Bound | None, seed: int) -> None:
        self.fraction, self.fixed, self.seed = fraction, fixed, seed
        self.sites: dict[str, Site] = {}
        self.pressure, self.step = 1.0, 0

    def site(self, place: str, need: Need) -> Site:
        """That of a place."""
        if place not in self.sites:
            known = need if need in (Need.SUM, Need.NORM) else Need.VALUE
            self.sites[place] = Site(place, known)
        return self.sites[place]

    def choose(self, site: Site, call: Call, tensor: Tensor) -> tuple[Bound, int | None]:
        """The bound of a tensor, and the seed of its dither where it needs one."""
        bound: Bound
        if self.fixed is not None:
            eps = _absolute(self.fixed, tensor)
            bound = self.fixed if eps is None else Absolute(eps)
        else:
            eps = self._adaptive(site, call) or 0.0
            allowed = self.fraction * site.loosened * self.pressure
            eps = site.own = min(eps, ceiling(call, tensor, allowed)) if eps else 0.0
            if site.need is Need.VALUE and call.operation.curvature is None and self.fraction:
                bound, eps = PointwiseRelative(self.fraction), None
            else:
                # What several operations share is kept as the most sensitive one needs it.
                shared = [eps for name in site.partners if (eps := self.sites[name].own)]
                eps = min([site.own, *shared])
                bound = Absolute(eps)
        site.eps = bound.eps if isinstance(bound, Absolute) else 0.0
        if eps is None or not site.is_loose(eps):
            return bound, None
        return bound, self.dither(site)

    def dither(self, site: Site) -> int:
        """The seed of the dither at a place in this step."""
        return zlib.crc32(f"{self.seed} {self.step} {site.name}".encode())

    def _adaptive(self, site: Site, call: Call) -> float | None:
        eps = site.bound(call, self.fraction) if self.fraction else 0.0
        if not eps:
            return eps
        eps *= self.pressure
        if site.scale is not None and site.need is not Need.VALUE:
            eps = min(eps, NOISIEST * site.scale)
        return eps

    def state(self) -> dict[str, Any]:
        """In plain values."""
        return {name: site.state() for name, site in self.sites.items()}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.sites.clear()
        self.sites |= {name: Site.from_state(name, known) for name, known in state.items()}


def _absolute(bound: Bound, tensor: Tensor) -> float | None:
    if isinstance(bound, Relative):
        low, high = torch.aminmax(tensor.detach())
        return bound.eps * (float(high) - float(low))
    return bound.eps if isinstance(bound, Absolute) else None
