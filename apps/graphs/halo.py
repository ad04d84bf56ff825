"""A graph over ranks: each owns the nodes of one part, and sees copies of their neighbours.

Before every layer of message passing the copies are renewed by their owners, and in the backward
pass their gradients go back, so that training equals that of the whole graph on one rank.

Suffixes: N own node, then copies (the halo); M message (an edge one way).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from apps.graphs.csr import CSR
from scadl_core.comm import World
from scadl_core.compress import Relative, decode, encode
from scadl_core.compress.container import from_bytes, to_bytes

Ints = NDArray[np.int64]


@dataclass
class Part:
    """What a rank has of a graph.

    Attributes:
        node_N: int64, own nodes first, then the halo, by owner.
        owned: How many are own.
        row_M: int64, places in ``node_N`` of the receiving ends, all own.
        column_M: int64, places of the sending ends.
        entry_M: int64, places in ``indices`` of the graph.
        give: For each rank the own places whose copies it has.
        take: For each rank how many copies are its nodes'.
        world: The ranks.
        bound: Of the relative error of compressed messages; None: they are exact.
    """

    node_N: Ints
    owned: int
    row_M: Ints
    column_M: Ints
    entry_M: Ints
    give: list[Tensor]
    take: list[int]
    world: World
    bound: float | None = None

    @contextmanager
    def renewing(self, network: nn.Module) -> Iterator[None]:
        """Renews the halo before every layer of message passing of a network."""
        from torch_geometric.nn import MessagePassing

        def renew(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return _Renew.apply(inputs[0], self), *inputs[1:]

        layers = [it for it in network.modules() if isinstance(it, MessagePassing)]
        hooks = [layer.register_forward_pre_hook(renew) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def swap(self, parts: list[Tensor], counts: list[int]) -> list[Tensor]:
        """Sends each rank its part, float32 of shape (rows, width), and gives what came.

        Args:
            parts: What goes to each rank.
            counts: How many rows come from each.
        """
        width = parts[0].shape[1]
        if self.bound is None:
            sizes = [count * width for count in counts]
            came = _exchange([part.reshape(-1) for part in parts], sizes, self.world)
        else:
            packed = [_pack(part, self.bound) for part in parts]
            lengths = torch.tensor([len(it) for it in packed])
            sizes = torch.empty_like(lengths)
            dist.all_to_all_single(sizes, lengths)
            came = [_unpack(it) for it in _exchange(packed, sizes.tolist(), self.world)]
        return [it.reshape(-1, width) for it in came]


def _pack(part: Tensor, bound: float) -> Tensor:
    if not part.numel():
        return torch.empty(0, dtype=torch.uint8)
    content = to_bytes(encode(part.detach().cpu().contiguous(), Relative(bound)))
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _unpack(content: Tensor) -> Tensor:
    if not len(content):
        return torch.empty(0)
    return torch.as_tensor(decode(from_bytes(content.numpy().tobytes()))).reshape(-1)


def _exchange(parts: list[Tensor], sizes: list[int], world: World) -> list[Tensor]:
    sent = torch.cat(parts).cpu()
    world.traffic.count(sent)
    came = torch.empty(sum(sizes), dtype=sent.dtype)
    dist.all_to_all_single(came, sent, sizes, [len(part) for part in parts])
    return list(came.split(sizes))


class _Renew(torch.autograd.Function):
    """Own rows stay, copies come from their owners; the gradient of a copy is its owner's."""

    @staticmethod
    def forward(ctx: Any, x_NF: Tensor, part: Part) -> Tensor:
        ctx.part = part
        came = part.swap([x_NF[own] for own in part.give], part.take)
        return torch.cat([x_NF[: part.owned], *(it.to(x_NF) for it in came)])

    @staticmethod
    def backward(ctx: Any, grad_NF: Tensor) -> tuple[Tensor, None]:
        part: Part = ctx.part
        copies = list(grad_NF[part.owned :].split(part.take))
        came = part.swap(copies, [len(own) for own in part.give])
        result_NF = torch.cat([grad_NF[: part.owned], torch.zeros_like(grad_NF[part.owned :])])
        for own, grad in zip(part.give, came, strict=True):
            result_NF.index_add_(0, own, grad.to(grad_NF))
        return result_NF, None


def cut(graph: CSR, owner_N: Ints, world: World) -> Part:
    """The part of this rank.

    Args:
        graph: The whole graph.
        owner_N: int64, the rank of each node, the same on every rank.
        world: The ranks.
    """
    halos = [_halo(graph, owner_N, rank) for rank in range(world.size)]
    own, halo = np.flatnonzero(owner_N == world.rank), halos[world.rank]
    node_N = np.concatenate([own, halo])
    row_M, column_M, entry_M = graph.subgraph(own, node_N)
    give = [
        torch.from_numpy(np.searchsorted(own, theirs[owner_N[theirs] == world.rank]))
        for theirs in halos
    ]
    take = np.bincount(owner_N[halo], minlength=world.size).tolist()
    return Part(node_N, len(own), row_M, column_M, entry_M, give, take, world)


def _halo(graph: CSR, owner_N: Ints, rank: int) -> Ints:
    """Neighbours of a part's nodes outside it, by owner, then by number."""
    *_, entry_M = graph.subgraph(np.flatnonzero(owner_N == rank), np.arange(graph.num_nodes))
    outside = np.unique(graph.indices[entry_M]).astype(np.int64)
    outside = outside[owner_N[outside] != rank]
    return outside[np.argsort(owner_N[outside], kind="stable")]
