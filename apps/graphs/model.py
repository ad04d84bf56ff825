"""Networks on nodes: on hops of their features, or passing messages.

Shapes: B node of a batch, K hop, F feature, H hidden, C output.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from scadl_core.errors import ConfigError, check_whole, nearest

MOST = {"hops": 64, "depth": 1000, "heads": 1000}


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        check_whole(f"model.{name}", size, 0 if name == "hops" else 1, MOST.get(name))


def perceptron(sizes: Sequence[int], dropout: float) -> nn.Sequential:
    """A chain of blocks of one linear layer each; every block but the last ends in a ReLU.

    A chain, since the gradient-free solver gives each rank some blocks of it.
    """
    blocks: list[nn.Module] = []
    for number, pair in enumerate(pairwise(sizes)):
        last = number == len(sizes) - 2
        noise = [nn.Dropout(dropout)] * (dropout > 0)
        blocks.append(nn.Sequential(*noise, nn.Linear(*pair), *[nn.ReLU()] * (not last)))
    return nn.Sequential(*blocks)


class Chain(nn.Module):
    """A network that makes one tensor of the hops, and sends it through a chain of blocks."""

    blocks: nn.Sequential
    hops: int

    def check_hops(self, x_BKF: Tensor) -> None:
        """Raises ConfigError where the data have another number of hops."""
        if x_BKF.shape[1] != self.hops + 1:
            raise ConfigError(
                f"data.hops={x_BKF.shape[1] - 1}: the network takes model.hops={self.hops}; leave "
                "data.hops out, or set both"
            )

    def enter(self, x_BKF: Tensor) -> Tensor:
        """What the chain is given."""
        raise NotImplementedError

    def forward(self, x_BKF: Tensor) -> Tensor:
        """Logits, shape (B, C)."""
        return self.blocks(self.enter(x_BKF))

    def stages(self) -> list[nn.Module]:
        """Modules whose composition is this network."""
        entry, (first, *rest) = Entry(self), self.blocks
        if any(True for _ in entry.parameters()):
            return [entry, first, *rest]
        return [nn.Sequential(entry, first), *rest]


class Entry(nn.Module):
    """The first stage of a chain: its parts, without its blocks."""

    def __init__(self, network: Chain) -> None:
        super().__init__()
        self.parts = nn.ModuleList(it for it in network.children() if it is not network.blocks)
        self.enter = network.enter

    def forward(self, x_BKF: Tensor) -> Tensor:
        """What the chain is given."""
        return self.enter(x_BKF)


class GraphAugmentedMLP(Chain):
    """A perceptron on all hops at once: Chen et al. 2021, arXiv:2010.15116.

    With ``depth`` 1 and ``use`` last it is SGC, Wu et al. 2019, arXiv:1902.07153; with ``hops`` 0
    a perceptron without a graph.

    Args:
        in_channels: F.
        out_channels: C.
        hops: K.
        width: H.
        depth: Linear layers.
        dropout: Before each of them.
        use: ``all`` hops or the ``last``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, hops: int = 4, width: int = 128, depth: int = 2,
        dropout: float = 0.0, use: str = "all",
    ) -> None:  # fmt: skip
        super().__init__()
        if use not in ("all", "last"):
            raise ConfigError(f"model.use: got {use!r}{nearest(use, ('all', 'last'))}")
        _check(hops=hops, width=width, depth=depth)
        self.hops, self.first = hops, 0 if use == "all" else hops
        inputs = in_channels * (hops + 1 - self.first)
        self.blocks = perceptron([inputs, *[width] * (depth - 1), out_channels], dropout)

    def enter(self, x_BKF: Tensor) -> Tensor:
        """Shape (B, H)."""
        self.check_hops(x_BKF)
        return x_BKF[:, self.first :].flatten(1)


class SIGN(Chain):
    """A linear layer a hop, and a perceptron on their outputs: Frasca et al. 2020,
    arXiv:2004.11198; with a norm before it, which evens out hops of different spread.
    """

    def __init__(
        self, in_channels: int, out_channels: int, hops: int = 4, width: int = 64, depth: int = 2,
        dropout: float = 0.5, input_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(hops=hops, width=width, depth=depth)
        self.hops = hops
        self.inputs = nn.ModuleList(nn.Linear(in_channels, width) for _ in range(hops + 1))
        self.before = nn.Dropout(input_dropout)
        self.middle = nn.Sequential(nn.LayerNorm(width * (hops + 1)), nn.PReLU())
        sizes = [width * (hops + 1), *[width] * (depth - 2), out_channels]
        self.blocks = perceptron(sizes, dropout)

    def enter(self, x_BKF: Tensor) -> Tensor:
        """Shape (B, H)."""
        self.check_hops(x_BKF)
        hops = self.before(x_BKF).unbind(1)
        hidden = [layer(x_BF) for layer, x_BF in zip(self.inputs, hops, strict=True)]
        return self.middle(torch.cat(hidden, 1))


class Hedge(nn.Module):
    """SIGN beside a perceptron on a node's own features, each trained for itself; the one that
    scores better in validation speaks. Where neighbours differ and there are few nodes to learn
    from, hops are noise: on Texas a perceptron is better than any of our networks on a graph.

    Attributes:
        chosen: int64 of shape (1,): the head that speaks, 0 (SIGN) or 1.
    """

    chosen: Tensor
    num_heads = 2

    def __init__(
        self, in_channels: int, out_channels: int, hops: int = 4, width: int = 64, depth: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.graph = SIGN(in_channels, out_channels, hops, width, depth, dropout)
        self.own = perceptron([in_channels, width, out_channels], dropout)
        self.register_buffer("chosen", torch.zeros(1, dtype=torch.int64))

    def heads(self, x_BKF: Tensor) -> Tensor:
        """Logits of both, shape (B, 2, C)."""
        return torch.stack([self.graph(x_BKF), self.own(x_BKF[:, 0])], 1)

    def forward(self, x_BKF: Tensor) -> Tensor:
        """Logits, shape (B, C); in training those of both heads, (B, 2, C)."""
        both_B2C = self.heads(x_BKF)
        return both_B2C if self.training else both_B2C.index_select(1, self.chosen).squeeze(1)

    def stages(self) -> list[nn.Module]:
        """SIGN's: without gradients the perceptron is not trained, and validation finds it out."""
        return self.graph.stages()


class HopAttention(Chain):
    """A perceptron on a mean of hops whose weights each node chooses: the gate of GAMLP, Zhang et
    al. 2022, arXiv:2108.10097, with all hops together as its reference (their eq. 7).
    """

    def __init__(
        self, in_channels: int, out_channels: int, hops: int = 4, width: int = 128, depth: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(hops=hops, width=width, depth=depth)
        self.hops = hops
        self.inputs = nn.Linear(in_channels, width)
        self.reference = perceptron([in_channels * (hops + 1), width], 0.0)
        self.gate = nn.Linear(2 * width, 1)
        self.blocks = perceptron([2 * width, *[width] * (depth - 1), out_channels], dropout)

    def enter(self, x_BKF: Tensor) -> Tensor:
        """Shape (B, H)."""
        self.check_hops(x_BKF)
        hidden_BKH = self.inputs(x_BKF)
        reference_BH = self.reference(x_BKF.flatten(1))
        both = torch.cat([hidden_BKH, reference_BH[:, None].expand_as(hidden_BKH)], 2)
        weight_BK1 = nn.functional.leaky_relu(self.gate(both), 0.2).softmax(1)
        mean_BH = (weight_BK1 * hidden_BKH).sum(1)
        return torch.cat([mean_BH, reference_BH], 1).relu()


class MessagePassing(nn.Module):
    """torch-geometric's GCN, GraphSAGE and GAT.

    Args:
        in_channels: F.
        out_channels: C.
        layer: ``gcn`` (arXiv:1609.02907), ``sage`` (arXiv:1706.02216) or ``gat``
            (arXiv:1710.10903).
        width: H.
        depth: Layers.
        dropout: Between layers, and on the inputs.
        heads: Of attention.
        norm: Between layers: None, or a norm of torch-geometric's such as ``LayerNorm``.
        batches: What ``data.batches`` is by default, and
        edges: what ``data.norm`` is. GraphSAGE takes a plain mean, and GAT its own weights and
            loops, so they are given the edges as they are.
    """

    def __init__(
        self, in_channels: int, out_channels: int, layer: str = "gcn", width: int = 64,
        depth: int = 2, dropout: float = 0.5, heads: int = 1, norm: str | None = None,
        batches: str = "full", edges: str = "sym",
    ) -> None:  # fmt: skip
        super().__init__()
        from apps.graphs.message import GAT, GCN, GraphSAGE

        kinds: dict[str, Any] = {"gcn": GCN, "sage": GraphSAGE, "gat": GAT}
        _check(width=width, depth=depth, heads=heads)
        if layer not in kinds:
            raise ConfigError(f"model.layer: got {layer!r}{nearest(layer, kinds)}")
        # The weights of edges are those of the whole graph, whatever part of it is at hand.
        given = {"gcn": {"normalize": False, "add_self_loops": False}, "gat": {"heads": heads}}
        self.before = nn.Dropout(dropout)
        self.layers = kinds[layer](
            in_channels, width, depth, out_channels, dropout, norm=norm, **given.get(layer, {})
        )

    def forward(self, x_NF: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Logits, shape (N, C), of a part of a graph.

        Args:
            x_NF: Features.
            edge_index: int64 of shape (2, M), from the first row to the second.
            edge_weight: Of shape (M,).
        """
        edges = self.layers.edges(edge_index, edge_weight, len(x_NF))
        return self.layers(self.before(x_NF), edges, edge_weight=edge_weight)
