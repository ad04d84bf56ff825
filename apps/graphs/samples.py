"""Batches of nodes: their hops, or the part of the graph that a message-passing network needs.

Suffixes: N node, B node of a batch, K hop, F feature, M message (an edge one way).
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from apps.graphs.halo import Part
from apps.graphs.hops import edge_weights
from apps.graphs.sampling import sample
from scadl_core.comm import World

if TYPE_CHECKING:
    from apps.graphs.data import GraphData

BATCHES = ("hops", "neighbours", "clusters", "full")
Ints = NDArray[np.int64]


class GraphSamples:
    """Some nodes of a graph. A sample is a node; a cluster; or the full graph, a part a rank.

    Args:
        data: The graph.
        node_N: int64, the nodes that are trained on, scored or predicted.
        world: The ranks that share the full graph.
    """

    def __init__(self, data: GraphData, node_N: Ints, world: World) -> None:
        self.data, self.node_N, self.world = data, node_N, world
        self._groups: list[Ints] | None = None
        self.part: Part | None = None
        if data.batches == "full":
            self.part = data.part(world)
        elif data.batches == "clusters":
            part_N = data.cluster_N
            inside = [np.flatnonzero(part_N == it) for it in np.unique(part_N[node_N])]
            self._groups = inside

    def __len__(self) -> int:
        if self.data.batches == "full":
            return self.world.size
        return len(self.node_N) if self._groups is None else len(self._groups)

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, Any]:
        """One sample: ``node`` int64, its ``label``, and with hops ``x_KF``."""
        if self.data.batches != "hops":
            index = min(index, len(self.node_N) - 1)
        batch = self._hops(self.node_N[[index]], with_x=self.data.batches == "hops")
        return {name: values[0].numpy() for name, values in batch.items()}

    def batch(self, indices: list[int], key: int | None) -> Any:
        """Some samples together.

        Args:
            indices: Which.
            key: The seed of what is drawn; None in evaluations, which draw the same each time.

        Returns:
            With hops a dictionary of tensors, ``x_BKF``, ``label`` and ``node``; else a
            ``torch_geometric.data.Data`` whose nodes ``place`` are those of the batch.
        """
        if self.data.batches == "hops":
            return self._hops(self.node_N[indices])
        if self.data.batches == "neighbours":
            return self._neighbours(self.node_N[indices], 0 if key is None else key)
        if self.data.batches == "clusters":
            assert self._groups is not None
            return self._induced(np.sort(np.concatenate([self._groups[it] for it in indices])))
        return self._full

    def _hops(self, node_B: Ints, with_x: bool = True) -> dict[str, torch.Tensor]:
        found = {"node": torch.from_numpy(node_B), "label": self._labels(node_B)}
        if with_x:
            hops = [np.asarray(x_NF[node_B]) for x_NF in self.data.hops_KNF]
            found["x_BKF"] = torch.from_numpy(np.stack(hops, 1))
        return found

    def _labels(self, node_B: Ints) -> torch.Tensor:
        return torch.from_numpy(self.data.target.label[node_B])

    def _neighbours(self, seed_B: Ints, key: int) -> Any:
        data = self.data
        drawn = sample(data.graph, seed_B, data.fanouts, key, data.replace)
        ends = drawn.node_N[drawn.row_M], drawn.node_N[drawn.column_M]
        weight_M = edge_weights(data.graph, data.scales, *ends, drawn.entry_M) * drawn.factor_M
        messages = drawn.row_M, drawn.column_M, weight_M
        return self._part_of_graph(drawn.node_N, *messages, np.arange(len(seed_B)))

    def _induced(self, node_N: Ints) -> Any:
        row_M, column_M, entry_M = self.data.graph.subgraph(node_N)
        ends = node_N[row_M], node_N[column_M]
        weight_M = edge_weights(self.data.graph, self.data.scales, *ends, entry_M)
        place = np.flatnonzero(self._is_wanted_N[node_N])
        return self._part_of_graph(node_N, row_M, column_M, weight_M, place)

    @cached_property
    def _is_wanted_N(self) -> NDArray[np.bool_]:
        is_wanted_N = np.zeros(self.data.graph.num_nodes, bool)
        is_wanted_N[self.node_N] = True
        return is_wanted_N

    @cached_property
    def _full(self) -> Any:
        """Features and edges are the same tensors for all splits."""
        found = copy(self.data.full(self.part, self._everything))
        here_N = np.arange(self.data.graph.num_nodes)
        if self.part is not None:
            here_N = self.part.node_N[: self.part.owned]
            found.part = self.part
        place_B = np.flatnonzero(self._is_wanted_N[here_N])
        found.place, found.node = torch.from_numpy(place_B), torch.from_numpy(here_N[place_B])
        found.label = self._labels(here_N[place_B])
        return found

    def _everything(self) -> Any:
        part, data = self.part, self.data
        if part is None:
            return self._induced(np.arange(data.graph.num_nodes))
        ends = part.node_N[part.row_M], part.node_N[part.column_M]
        weight_M = edge_weights(data.graph, data.scales, *ends, part.entry_M)
        none = np.empty(0, np.int64)
        return self._part_of_graph(part.node_N, part.row_M, part.column_M, weight_M, none)

    def _part_of_graph(
        self, node_N: Ints, row_M: Ints, column_M: Ints, weight_M: Any, place_B: Ints
    ) -> Any:
        """Loops of the normalisation are edges of their own, the last ones."""
        from torch_geometric.data import Data

        by, data = self.data.scales, self.data
        if by.loop:
            own = np.arange(len(node_N))
            row_M, column_M = np.concatenate([row_M, own]), np.concatenate([column_M, own])
            weight_M = np.concatenate([weight_M, (by.left_N * by.right_N)[node_N] * by.loop])
        tensors = [np.asarray(data.x_NF[node_N]), np.stack([column_M, row_M]), weight_M, place_B]
        names = ("x", "edge_index", "edge_weight", "place")
        arrays = {name: torch.from_numpy(it) for name, it in zip(names, tensors, strict=True)}
        wanted_B = node_N[place_B]
        return Data(**arrays, node=torch.from_numpy(wanted_B), label=self._labels(wanted_B))
