"""What ranks say to one another so that each needs only the factors it owns.

Statistics are sums, so they are reduced to the owner of a layer alone, as packed triangles, in
buckets whose order is the same on every rank. All messages go through process groups of their own:
those of DistributedDataParallel may be on their way at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from scadl_core.comm import World
from scadl_core.optim.compression import FactorCodec, Part, decode_factors
from scadl_core.optim.curvature import Curvature, Group
from scadl_core.optim.factors import Tally
from scadl_core.optim.layers import Layer
from scadl_core.optim.packing import pack, packed_size, unpack
from scadl_core.optim.placement import place

T = TypeVar("T")
# Of a layer with so many samples and rows, by factor.
Scales = Callable[[Layer, Sequence[float]], Mapping[str, float] | None]
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
    buffer: Tensor | None = None
    work: list[Any] | None = None
    is_compressed: bool = False

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Layer and factor, in the order of the buffer."""
        return [(layer.name, name) for layer in self.layers for name in layer.sides]

    @property
    def sizes(self) -> list[int]:
        """Of the parts of the buffer: the factors of a layer, then its counts."""
        return [n for layer in self.layers for n in (*map(packed_size, layer.sides.values()), 2)]

    def separate(self, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """All factors, and all counts."""
        parts = iter(buffer.split(self.sizes))
        factors, counts = [], []
        for layer in self.layers:
            factors += [next(parts) for _ in layer.sides]
            counts.append(next(parts))
        return torch.cat(factors), torch.cat(counts)

    def counts_of(self, layer: Layer, counts: Tensor) -> list[float]:
        """Samples and rows of one layer."""
        start = 2 * self.layers.index(layer)
        return counts[start : start + 2].tolist()

    def join(self, factors: Tensor, counts: Tensor) -> Tensor:
        """The reverse of :meth:`separate`."""
        each = iter(factors.split([packed_size(s) for x in self.layers for s in x.sides.values()]))
        two = iter(counts.split(2))
        return torch.cat(
            [p for x in self.layers for p in (*(next(each) for _ in x.sides), next(two))]
        )


@dataclass
class _Sent:
    """A message on its way, and the memory it is sent from."""

    work: Any
    values: Tensor

    def wait(self) -> None:
        self.work.wait()


class Exchange:
    """Placement, and the messages it needs; with one rank there are none.

    Args:
        layers: All of the model.
        fraction: See :func:`scadl_core.optim.placement.place`.
        local_factors: Whether statistics stay where they are.
        compression: None, or eps of :class:`scadl_core.optim.compression.FactorCodec`.
        world: The processes; None is those of torch.distributed.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        fraction: float,
        local_factors: bool,
        compression: float | None,
        world: World | None,
    ) -> None:
        self.codec = None if compression is None else FactorCodec(compression)
        self._limits: dict[tuple[str, str], float] = {}
        self._messages = 0
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
        self._factor_bytes = self._full_bytes = 0
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

    def listen(self, tallies: dict[str, Tally], model: Any, scales: Scales) -> None:
        """Lets :meth:`arrived` look at the tallies of a model.

        Args:
            tallies: Of all layers.
            model: Which may be a DistributedDataParallel.
            scales: What the sums of a tally are multiplied by.
        """
        self._tallies, self.model, self._scales = tallies, model, scales

    def learn_limits(self, names: Sequence[str], curvature: Curvature, damping: float) -> None:
        """Tells every rank the damping of each factor, to which errors will be tied."""
        if self.codec is None or self.is_alone or self.local_factors:
            return
        keys = [
            (layer.name, n) for layer in self.layers if layer.name in names for n in layer.sides
        ]
        shares = {
            (layer.name, n): share.min()
            for layer in self.owned
            if layer.name in names
            for n, share in curvature.damping_of(layer, damping).items()
        }
        zero = torch.zeros((), device=self.layers[0].device)
        told = torch.stack([shares.get(key, zero).to(zero) for key in keys])
        self._reduce_all(told)
        self._limits.update(zip(keys, told.tolist(), strict=True))

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
            self._full_bytes += 4 * sum(s.numel for x in bucket.layers for s in x.sides.values())
        if self.codec is not None and all(self._limits.get(key) for key in bucket.keys):
            self._send_compressed(bucket)
            return
        if bucket.owner != self.world.rank:
            self._count(bucket.buffer)
        bucket.work = [dist.reduce(bucket.buffer, bucket.owner, group=self._all, async_op=True)]

    def _count(self, values: Tensor) -> None:
        self.world.traffic.count(values)
        self._factor_bytes += values.nbytes

    def _send_compressed(self, bucket: _Bucket) -> None:
        """Sums of what was rounded cannot be formed on the way: each rank writes to the owner."""
        assert self.codec is not None and bucket.buffer is not None
        bucket.is_compressed, bucket.work = True, []
        self._messages += 1
        if bucket.owner == self.world.rank:
            return
        factors, counts = bucket.separate(bucket.buffer)
        limits = []
        for layer in bucket.layers:
            scales = self._scales(layer, bucket.counts_of(layer, counts))
            limits += [
                Part(side, self._limits[layer.name, n] / scales[n] if scales else 0.0)
                for n, side in layer.sides.items()
            ]
        data = self.codec.encode(
            factors, limits, self._messages * self.world.size + self.world.rank
        )
        data = counts.double().cpu().numpy().tobytes() + data
        payload = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(factors.device)
        size = torch.tensor([len(payload)], device=factors.device)
        for values in (size, payload):
            self._count(values)
            work = dist.isend(values, bucket.owner, group=self._all)
            bucket.work.append(_Sent(work, values))

    def _receive(self, bucket: _Bucket) -> None:
        """Adds what the other ranks have sent to the owner's own statistics."""
        assert bucket.buffer is not None
        sides = [side for layer in bucket.layers for side in layer.sides.values()]
        head = 16 * len(bucket.layers)
        for rank in range(self.world.size):
            if rank == self.world.rank:
                continue
            size = torch.zeros(1, dtype=torch.int64, device=bucket.buffer.device)
            dist.recv(size, rank, group=self._all)
            payload = torch.empty(int(size), dtype=torch.uint8, device=bucket.buffer.device)
            dist.recv(payload, rank, group=self._all)
            data = payload.cpu().numpy().tobytes()
            counts = torch.frombuffer(bytearray(data[:head]), dtype=torch.float64)
            factors = decode_factors(data[head:], sides, bucket.buffer)
            bucket.buffer += bucket.join(factors, counts.to(bucket.buffer))

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
            for work in bucket.work or ():
                work.wait()
            if bucket.owner == self.world.rank:
                if bucket.is_compressed:
                    self._receive(bucket)
                found.update(self._read(bucket))
            bucket.work = bucket.buffer = None
            bucket.is_compressed = False
        return found

    def _read(self, bucket: _Bucket) -> Iterator[tuple[str, Totals]]:
        assert bucket.buffer is not None
        parts = iter(bucket.buffer.split(bucket.sizes))
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
        """What this rank has sent for factors, and the ratio of full float32 matrices to it."""
        ratio = self._full_bytes / self._factor_bytes if self._factor_bytes else 1.0
        found = {"factor_bytes": self._factor_bytes, "factor_ratio": ratio}
        if self.codec is not None:
            found |= {"tightened": self.codec.tightened, "factor_error": self.codec.worst}
        return found

    def _broadcast(self, values: Tensor, source: int, group: Any) -> None:
        if source == self.world.rank:
            self.world.traffic.count(values)
        dist.broadcast(values, source, group=group)


def _world() -> World:
    if not (dist.is_available() and dist.is_initialized()):
        return World()
    return World(rank=dist.get_rank(), size=dist.get_world_size(), launcher="torch")
