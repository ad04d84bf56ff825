"""torch-geometric's GCN and GraphSAGE, whose sums over neighbours on a processor are one product
with a sparse matrix: nothing of the size of messages times features is made.

Suffixes: N node, F feature, M message (an edge one way).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric import nn

from apps.graphs.product import multiply


class Adjacency(NamedTuple):
    """Row i of ``rows`` holds the weights of the messages to node i; ``columns`` is its transpose,
    by which gradients go back.
    """

    rows: sp.csr_matrix
    columns: sp.csr_matrix

    @classmethod
    def of(cls, edge_index: Tensor, weight_M: Tensor | None, num_nodes: int) -> Adjacency:
        """The matrix of edges, as :class:`apps.graphs.samples.GraphSamples` gives them.

        Args:
            edge_index: int64 of shape (2, M), from the first row to the second.
            weight_M: Of the messages; None: each takes part in the mean over a node's messages.
            num_nodes: N.
        """
        source_M, target_M = edge_index.numpy()
        if weight_M is None:
            count_N = np.bincount(target_M, minlength=num_nodes)
            weight = (1 / count_N[target_M]).astype(np.float32)
        else:
            weight = weight_M.numpy()
        shape = (num_nodes, num_nodes)
        rows = sp.coo_matrix((weight, (target_M, source_M)), shape).tocsr()
        return cls(rows, rows.T.tocsr())

    def times(self, x_NF: Tensor) -> Tensor:
        """The sums over neighbours, with a gradient."""
        return _Times.apply(x_NF, self)


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NF: Tensor, matrix: Adjacency) -> Tensor:
        ctx.matrix = matrix
        return _product(matrix.rows, x_NF)

    @staticmethod
    def backward(ctx: Any, grad_NF: Tensor) -> tuple[Tensor, None]:
        return _product(ctx.matrix.columns, grad_NF), None


def _product(matrix: sp.csr_matrix, x_NF: Tensor) -> Tensor:
    kind = x_NF.dtype if x_NF.dtype == torch.float64 else torch.float32
    found_NF = multiply(matrix, x_NF.detach().to(kind).contiguous().numpy())
    return torch.from_numpy(found_NF).to(x_NF.dtype)


def _propagate(layer: Any, edge_index: Any, size: Any = None, **given: Any) -> Tensor:
    if not isinstance(edge_index, Adjacency):
        return super(type(layer), layer).propagate(edge_index, size, **given)
    x = given["x"]
    return edge_index.times(x[0] if isinstance(x, tuple) else x)


class _GCNConv(nn.GCNConv):
    propagate = _propagate


class _SAGEConv(nn.SAGEConv):
    propagate = _propagate


class GCN(nn.GCN):
    """Takes an :class:`Adjacency` for edges, too."""

    def init_conv(self, in_channels: int, out_channels: int, **given: Any) -> nn.MessagePassing:
        """One layer."""
        return _GCNConv(in_channels, out_channels, **given)

    def edges(self, edge_index: Tensor, weight_M: Tensor, num_nodes: int) -> Any:
        """What the layers are given for edges."""
        return _matrix(weight_M, edge_index, weight_M, num_nodes)


class GraphSAGE(nn.GraphSAGE):
    """Takes an :class:`Adjacency` for edges, too."""

    def init_conv(self, in_channels: Any, out_channels: int, **given: Any) -> nn.MessagePassing:
        """One layer."""
        return _SAGEConv(in_channels, out_channels, **given)

    def edges(self, edge_index: Tensor, weight_M: Tensor, num_nodes: int) -> Any:
        """What the layers are given for edges: the mean knows no weights."""
        return _matrix(edge_index, edge_index, None, num_nodes)


class GAT(nn.GAT):
    """Weights each message itself, so that there is no matrix."""

    def edges(self, edge_index: Tensor, weight_M: Tensor, num_nodes: int) -> Tensor:
        """What the layers are given for edges."""
        return edge_index


_matrices: Any = WeakIdKeyDictionary()  # of the full graph, which is a batch again and again


def _matrix(known_by: Tensor, edge_index: Tensor, weight_M: Tensor | None, num_nodes: int) -> Any:
    if edge_index.device.type != "cpu" or torch.compiler.is_exporting():
        return edge_index
    if known_by not in _matrices:
        _matrices[known_by] = Adjacency.of(edge_index, weight_M, num_nodes)
    return _matrices[known_by]
