"""What ranks say to one another so that each needs only the factors it owns.

Statistics are sums, so they are reduced to the owner of a layer alone, as packed triangles, in
buckets whose order is the same on every rank. All messages go through process groups of their own:
those of DistributedDataParallel may be on their way at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from scadl_core.comm import World
from scadl_core.optim.curvature import Curvature, Group
from scadl_core.optim.factors import Tally
from scadl_core.optim.layers import Layer
from scadl_core.optim.packing import pack, packed_size, split, unpack
from scadl_core.optim.placement import place

T = TypeVar("T")
_BUCKET_BYTES = 25 * 2**20


@dataclass
class Totals:
    """The statistics of a layer over all ranks.

    Attributes:
        sums: Of outer products, by factor.
        samples: All, N.
        rows: All, R.
    """

    sums: dict[str, Tensor]
    samples: Tensor | float
    rows: Tensor | float


@dataclass
class _Bucket:
    """Layers of one owner whose statistics are sent together."""

    owner: int
    layers: list[Layer]
    waiting: set[str] = field(default_factory=set)
    buffer: Tensor | None = None
    work: Any = None


class Exchange:
    """Placement, and the messages it needs; with one rank there are none.

    Args:
        layers: All of the model.
        fraction: See :func:`scadl_core.optim.placement.place`.
        local_factors: Whether statistics stay where they are.
        world: The processes; None is those of torch.distributed.
    """

    def __init__(
        self, layers: Sequence[Layer], fraction: float, local_factors: bool, world: World | None
    ) -> None:
        self.world = world or _world()
        self.local_factors, self.is_alone = local_factors, self.world.size == 1
        costs = {
            layer.name: float(sum(s.groups * s.size**3 for s in layer.sides.values()))
            for layer in layers
        }
        self.placement = place(costs, self.world.size, fraction)
        rank, owners = self.world.rank, self.placement.owners
        self.owned = [layer for layer in layers if owners[layer.name] == rank]
        self.worked = [layer for layer in layers if self.placement.works(rank, layer.name)]
        self.layers = list(layers)
        self.model: Any = None
        self._buckets: list[_Bucket] = []
        if not self.is_alone:
            self._meet()
            self._fill_buckets()

    def _meet(self) -> None:
        """Makes the process groups, in the same order on every rank."""
        place, size = self.placement, self.world.size
        self._all = dist.new_group(list(range(size)))
        columns = [place.ranks_of_column(c) for c in range(place.columns)]
        rows = [place.ranks_of_row(r) for r in range(0, size, place.columns)]
        self._column = self._own_group(columns)
        self._row = self._own_group(rows)

    def _own_group(self, lists: list[list[int]]) -> Any:
        found = None
        for ranks in lists:
            if len(ranks) > 1:
                group = dist.new_group(ranks)
                found = group if self.world.rank in ranks else found
        return found

    def _fill_buckets(self) -> None:
        sizes: dict[tuple[Any, ...], int] = {}
        latest: dict[tuple[Any, ...], _Bucket] = {}
        for layer in reversed(self.layers):  # as backward passes meet them
            key = (self.placement.owners[layer.name], layer.dtype, layer.device)
            size = sum(map(packed_size, layer.sides.values())) * layer.dtype.itemsize
            if key not in latest or sizes[key] + size > _BUCKET_BYTES:
                latest[key] = _Bucket(key[0], [])
                self._buckets.append(latest[key])
                sizes[key] = 0
            latest[key].layers.append(layer)
            sizes[key] += size

    def column(self, layer: Layer) -> int:
        """The column of a layer, so that groups lie in one."""
        return self.placement.column_of(layer.name)

    def works(self, group: Group) -> bool:
        """Whether this rank preconditions a group."""
        return self.placement.works(self.world.rank, group.layers[0].name)

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Each flag: whether it is set on any rank."""
        if self.is_alone:
            return list(flags)
        told = torch.tensor(flags, dtype=torch.int32, device=self.layers[0].device)
        self._reduce_all(told)
        return [bool(flag) for flag in told.tolist()]

    def agree(self, flags: dict[str, Tensor], names: Sequence[str]) -> Tensor:
        """The flags of all owners in the order of names, one int32 each, without waiting for the
        device.
        """
        zero = torch.zeros((), dtype=torch.bool, device=self.layers[0].device)
        told = torch.stack([flags.get(name, zero).to(zero.device) for name in names]).int()
        if not self.is_alone:
            self._reduce_all(told)
        return told

    def _reduce_all(self, values: Tensor, operation: Any = None) -> None:
        self.world.traffic.count(values)
        dist.all_reduce(values, operation or dist.ReduceOp.MAX, group=self._all)

    def arrived(self, layer: Layer) -> None:
        """Sends buckets whose layers are complete while the backward pass goes on.

        That needs to know which backward pass is a step's last, which DistributedDataParallel
        says; without it everything is sent by :meth:`collect`.
        """
        if self.is_alone or self.local_factors or not self._tallies[layer.name].is_complete:
            return
        if not getattr(self.model, "require_backward_grad_sync", False):
            return
        for bucket in self._buckets:
            if bucket.work is None:
                if not all(self._tallies[layer.name].is_complete for layer in bucket.layers):
                    return
                self._send(bucket)

    def listen(self, tallies: dict[str, Tally], model: Any) -> None:
        """Lets :meth:`arrived` look at the tallies of a model."""
        self._tallies, self.model = tallies, model

    def _send(self, bucket: _Bucket) -> None:
        parts = []
        for layer in bucket.layers:
            tally = self._tallies[layer.name]
            tally.fold()
            for name, side in layer.sides.items():
                value = tally.sums.get(name)
                parts.append(
                    torch.zeros(packed_size(side), dtype=layer.dtype, device=layer.device)
                    if value is None
                    else pack(value)
                )
            parts.append(tally.counts())
            tally.sums = {}
        bucket.buffer = torch.cat(parts)
        if bucket.owner != self.world.rank:
            self.world.traffic.count(bucket.buffer)
        bucket.work = dist.reduce(bucket.buffer, bucket.owner, group=self._all, async_op=True)

    def collect(self, tallies: dict[str, Tally]) -> dict[str, Totals]:
        """The statistics of owned layers over all ranks; every rank calls it.

        Args:
            tallies: Of all layers, complete.
        """
        if self.is_alone or self.local_factors:
            return {
                layer.name: Totals(t.sums, t.samples, t.rows)
                for layer in self.owned
                if (t := tallies[layer.name]).samples
            }
        for bucket in self._buckets:
            if bucket.work is None:
                self._send(bucket)
        found: dict[str, Totals] = {}
        for bucket in self._buckets:
            bucket.work.wait()
            if bucket.owner == self.world.rank:
                found.update(self._read(bucket))
            bucket.work = bucket.buffer = None
        return found

    def _read(self, bucket: _Bucket) -> Iterator[tuple[str, Totals]]:
        assert bucket.buffer is not None
        sizes = [n for layer in bucket.layers for n in (*map(packed_size, layer.sides.values()), 2)]
        parts = iter(split(bucket.buffer, sizes))
        for layer in bucket.layers:
            sums = {name: unpack(next(parts), side) for name, side in layer.sides.items()}
            samples, rows = next(parts).double()
            yield layer.name, Totals(sums, samples, rows)

    def share_inverses(self, names: Sequence[str], curvature: Curvature) -> None:
        """Sends renewed inverses from their owners to the other workers of their columns."""
        if self.is_alone or self._column is None:
            return
        for owner in self.placement.ranks_of_column(self.world.rank % self.placement.columns):
            layers = [
                layer
                for layer in self.worked
                if layer.name in names and self.placement.owners[layer.name] == owner
            ]
            for layer in layers:
                self._share_inverse(layer, owner, curvature)

    def _share_inverse(self, layer: Layer, owner: int, curvature: Curvature) -> None:
        for name, side in layer.sides.items():
            matrices = curvature.inverses.view(layer, name)
            if curvature.values:
                self._broadcast(matrices, owner, self._column)
                self._broadcast(curvature.eigenvalues(layer, name), owner, self._column)
                continue
            flat = pack(matrices)
            self._broadcast(flat, owner, self._column)
            matrices.copy_(unpack(flat, side))

    def share_gradients(self, groups: Sequence[Group], products: Sequence[Tensor]) -> None:
        """Fills in, in place, the preconditioned gradients that other ranks of the row have."""
        if self.is_alone or self._row is None:
            return
        row = self.placement.ranks_of_row(self.world.rank)
        for group, product in zip(groups, products, strict=True):
            self._broadcast(product, row[self.column(group.layers[0])], self._row)

    def from_owner(self, value: T | None, layer: Layer, owner: int) -> T:
        """A value of the owner of a layer, on every rank."""
        if self.is_alone:
            assert value is not None
            return value
        box = [value]
        dist.broadcast_object_list(box, owner, group=self._all, device=layer.device)
        return box[0]  # type: ignore[return-value]

    def report(self) -> dict[str, float]:
        """Bytes sent by this rank, and how many full float32 factors would have been."""
        return {"sent_bytes": self.world.traffic.sent_bytes}

    def _broadcast(self, values: Tensor, source: int, group: Any) -> None:
        if source == self.world.rank:
            self.world.traffic.count(values)
        dist.broadcast(values, source, group=group)


def _world() -> World:
    if not (dist.is_available() and dist.is_initialized()):
        return World()
    return World(rank=dist.get_rank(), size=dist.get_world_size(), launcher="torch")
