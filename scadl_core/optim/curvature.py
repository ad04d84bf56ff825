"""The mathematics of one process: factors in, inverses, preconditioned gradients out.

Which layers' factors and inverses a process has is decided elsewhere
(:mod:`scadl_core.optim.placement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from scadl_core.optim.factors import Averages, Bank, Bucket, shape_order
from scadl_core.optim.inverse import Inverse, make_inverse, residual, split_damping
from scadl_core.optim.layers import Layer

LADDER = 3  # times a failed factor is tried again, each with ten times the damping


@dataclass
class Group:
    """Layers whose gradients are preconditioned in one product.

    Attributes:
        layers: Of equal shapes, neighbours in every bank.
        rate: Index of the inner optimizer's parameter group.
        moments: Under EKFAC, mean squared gradients in the eigenbasis (K, O, I), else None.
    """

    layers: list[Layer]
    rate: int
    moments: Tensor | None = field(default=None, repr=False)

    def matrices(self) -> Tensor:
        """Gradients (K, O, I); zero where a layer has none."""
        found = [
            layer.matrix()
            if layer.has_gradient
            else torch.zeros(layer.shape, dtype=layer.dtype, device=layer.device)
            for layer in self.layers
        ]
        return found[0] if len(found) == 1 else torch.cat(found)

    def assign(self, matrices_KOI: Tensor, usable: Callable[[Layer], bool]) -> None:
        """Writes gradients back, except those of layers that are not usable."""
        start = 0
        for layer in self.layers:
            stop = start + layer.shape[0]
            if layer.has_gradient and usable(layer):
                layer.assign(matrices_KOI[start:stop])
            start = stop


def make_groups(layers: Iterable[Layer], key: Callable[[Layer], tuple[int, ...]]) -> list[Group]:
    """Puts layers together that have equal shapes and an equal key; the key's first element is the
    index of the parameter group. A layer with a diagonal factor is alone.
    """
    groups: dict[tuple[object, ...], Group] = {}
    for layer in sorted(layers, key=shape_order):
        alone = any(side.is_diagonal for side in layer.sides.values())
        shape = tuple(side.size for side in layer.sides.values())
        # Layers of one shape must be neighbours in the banks, so they differ in groups only.
        name = (layer.name if alone else "", shape, layer.dtype, layer.device, key(layer))
        groups.setdefault(name, Group([], key(layer)[0])).layers.append(layer)
    return list(groups.values())


class Curvature:
    """Averages of the owned layers, inverses of the worked ones (which include the owned).

    Args:
        owned: Layers whose factors this process has.
        worked: Layers whose gradients it preconditions.
        groups: Of all layers; those of worked ones are preconditioned here.
        method: "cholesky", "eigen" or "ekfac".
    """

    def __init__(
        self, owned: Sequence[Layer], worked: Sequence[Layer], groups: Sequence[Group], method: str
    ) -> None:
        self.averages = Averages(owned)
        self.method: Inverse = make_inverse(method)
        self.is_corrected = method == "ekfac"
        # Neighbours within a group must be neighbours here.
        ordered = [layer for group in groups for layer in group.layers if layer in set(worked)]
        self.inverses = Bank(ordered)
        self.values: dict[Bucket, Tensor] = {}
        if self.method.keeps_values:
            self.values = {b: s.new_zeros(s.shape[:2]) for b, s in self.inverses.stacks.items()}
        self.started: set[str] = set()
        self.levels: dict[str, int] = {}

    def damping_of(self, layer: Layer, damping: float) -> dict[str, Tensor]:
        """The damping of each factor of an owned layer, (groups,)."""
        means = {name: self.averages.mean_diagonal(layer, name) for name in layer.sides}
        if "A" not in means:
            return {"G": torch.full_like(means["G"], damping)}
        a, g = split_damping(means["A"], means["G"], damping)
        return {"A": a, "G": g}

    def refresh(self, layers: Sequence[Layer], damping: float) -> dict[str, Tensor]:
        """Inverts the present factors of owned layers; where that fails the old inverse stays.

        Returns:
            Of each layer whether it failed, a 0-d tensor of bool on its device.
        """
        failed: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
        for entries, stack, shares in self._stacks(layers, damping):
            done = self.method.invert(stack, shares)
            start = 0
            for layer, name in entries:
                rows = slice(start, start := start + layer.sides[name].groups)
                if layer.name not in self.started:
                    self._begin(layer, name, shares[rows])
                values = None if done.values is None else done.values[rows]
                self._keep(layer, name, done.matrices[rows], values, done.good[rows])
                failed[layer.name].append(~done.good[rows].all())
        return {name: torch.stack(flags).any() for name, flags in failed.items()}

    def _stacks(
        self, layers: Sequence[Layer], damping: float
    ) -> Iterable[tuple[list[tuple[Layer, str]], Tensor, Tensor]]:
        buckets: dict[Bucket, list[tuple[Layer, str]]] = {}
        shares: dict[tuple[str, str], Tensor] = {}
        for layer in layers:
            raised = damping * 10.0 ** self.levels.get(layer.name, 0)
            for name, share in self.damping_of(layer, raised).items():
                shares[layer.name, name] = share
                bucket = self.averages.bank.slots[layer.name, name][0]
                buckets.setdefault(bucket, []).append((layer, name))
        for entries in buckets.values():
            stack = torch.cat([self.averages.mean(layer, name) for layer, name in entries])
            yield entries, stack, torch.cat([shares[layer.name, name] for layer, name in entries])

    def finish(self, names: Sequence[str], groups: Iterable[Group]) -> None:
        """Ends a refresh, on every rank and for all that was renewed anywhere."""
        self.started |= set(names)
        for group in groups:
            self._restart(group, names)

    def _begin(self, layer: Layer, name: str, damping: Tensor) -> None:
        """Stands in until an inversion succeeds: the factor taken for its mean diagonal."""
        mean = self.averages.mean_diagonal(layer, name)
        stand_in = self.inverses.view(layer, name)
        scale = torch.ones_like(mean) if self.values else 1 / (mean + damping)
        stand_in.copy_(torch.eye(stand_in.shape[1]).to(stand_in) * scale[:, None, None])
        if self.values:
            self.eigenvalues(layer, name).copy_(mean[:, None].expand(-1, stand_in.shape[1]))

    def _keep(
        self, layer: Layer, name: str, new: Tensor, values: Tensor | None, good: Tensor
    ) -> None:
        old = self.inverses.view(layer, name)
        old.copy_(torch.where(good[:, None, None], new, old))
        if values is not None:
            kept = self.eigenvalues(layer, name)
            kept.copy_(torch.where(good[:, None], values, kept))

    def eigenvalues(self, layer: Layer, name: str) -> Tensor:
        """(groups, size) of a worked layer, in place."""
        bucket, rows = self.inverses.slots[layer.name, name]
        return self.values[bucket][rows]

    def stale(
        self, layers: Sequence[Layer], damping: float, tolerance: float, seed: int
    ) -> dict[str, Tensor]:
        """Of each owned layer whether its inverse no longer fits its factors, 0-d bool tensors."""
        stale: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
        for entries, stack, shares in self._stacks(layers, damping):
            old = torch.cat([self.inverses.view(layer, name) for layer, name in entries])
            values = (
                torch.cat([self.eigenvalues(layer, name) for layer, name in entries])
                if self.values
                else None
            )
            far = residual(stack, shares, old, values, seed) > tolerance
            start = 0
            for layer, name in entries:
                stale[layer.name].append(
                    far[start : (start := start + layer.sides[name].groups)].any()
                )
        return {name: torch.stack(flags).any() for name, flags in stale.items()}

    def precondition(self, group: Group, gradient_KOI: Tensor, damping: float) -> Tensor:
        """``(A (x) G + damping)^-1`` applied to the gradients of worked layers, (K, O, I)."""
        left, right = self._side(group, "G"), self._side(group, "A")
        if not self.values:
            return _apply(left, gradient_KOI, right)
        turned = _apply(None if left is None else left.mT, gradient_KOI, right)
        product = self._products(group)
        if group.moments is not None:
            product = group.moments
        turned = turned / (product + damping)
        return _apply(left, turned, None if right is None else right.mT)

    def correct(self, group: Group, gradient_KOI: Tensor, samples: int, decay: float) -> None:
        """Moves EKFAC's scalings: mean squares of mini-batch gradients in the eigenbasis, times
        the samples of a mini-batch (George et al. 2018, running averages), starting after each
        refresh from those of K-FAC.
        """
        left, right = self._side(group, "G"), self._side(group, "A")
        turned = _apply(None if left is None else left.mT, gradient_KOI, right)
        if group.moments is None:
            group.moments = self._products(group)
        squares = torch.where(turned.isfinite(), samples * turned.square(), group.moments)
        group.moments.lerp_(squares, 1 - decay)

    def _restart(self, group: Group, names: Iterable[str]) -> None:
        """Sets EKFAC's scalings of refreshed layers back to those of K-FAC: their basis is new."""
        if group.moments is None:
            return
        products, start, wanted = self._products(group), 0, set(names)
        for layer in group.layers:
            rows = slice(start, start := start + layer.shape[0])
            if layer.name in wanted:
                group.moments[rows] = products[rows]

    def _rows(self, group: Group, name: str) -> tuple[Bucket, slice]:
        slots = [self.inverses.slots[layer.name, name] for layer in group.layers]
        return slots[0][0], slice(slots[0][1].start, slots[-1][1].stop)

    def _side(self, group: Group, name: str) -> Tensor | None:
        """The matrices of a group; a diagonal as a row or a column, None for an identity."""
        side = group.layers[0].sides.get(name)
        if side is None or (side.is_diagonal and self.values):
            return None
        bucket, rows = self._rows(group, name)
        matrices = self.inverses.stacks[bucket][rows]
        if side.is_diagonal:
            return matrices.view(1, 1, -1) if name == "A" else matrices.view(1, -1, 1)
        return matrices

    def _products(self, group: Group) -> Tensor:
        """Products of eigenvalues, (K, O, I)."""
        found = {}
        for name, side in group.layers[0].sides.items():
            bucket, rows = self._rows(group, name)
            values = self.values[bucket][rows]
            found[name] = values.view(1, -1) if side.is_diagonal else values
        g_KO = found["G"]
        return (
            g_KO[:, :, None] * found["A"][:, None, :] if "A" in found else g_KO[:, :, None].clone()
        )


def _apply(left: Tensor | None, middle: Tensor, right: Tensor | None) -> Tensor:
    """Left @ middle @ right for stacks; a row or column vector scales."""
    for matrix, on_left in ((left, True), (right, False)):
        if matrix is None:
            continue
        if 1 in matrix.shape[1:] and matrix.shape[1] != matrix.shape[2]:
            middle = middle * matrix
        else:
            first, second = (matrix, middle) if on_left else (middle, matrix)
            # A batch of one is dearer than a product.
            middle = (first[0] @ second[0])[None] if len(first) == 1 else first @ second
    return middle
