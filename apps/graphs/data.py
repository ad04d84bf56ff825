"""A labelled graph from any files: checks, hops of features, samples.

Suffixes: N node, F feature, K hop, C class or output, B node of a batch.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from apps.graphs.audit import report
from apps.graphs.columns import BLOCK
from apps.graphs.csr import CSR, build
from apps.graphs.files import read
from apps.graphs.formats.tables import Columns
from apps.graphs.halo import Part, cut
from apps.graphs.hops import hops, in_files, scales
from apps.graphs.labels import label_hops
from apps.graphs.nodes import DEFAULT_SPLIT, Features, features_of, splits_of, target_of
from apps.graphs.partition import partition
from apps.graphs.propose import propose
from apps.graphs.samples import BATCHES, GraphSamples
from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError, check_whole, nearest
from scadl_core.files import Paths, reading
from scadl_core.record.datareport import DataReport
from scadl_core.workflow.statistics import Moments

Floats = NDArray[np.float32]
MOST_HOPS = 64  # features are kept after each
SCALINGS = ("auto", "standard", "rows", "none")
LABELLED = ("target", "kind", "label_use")  # where labels are inputs
STORAGES = ("auto", "memory", "disk")
PART_OF_MEMORY = 4  # files beyond this part of the memory allowed are not read whole
# What predictions on another graph need to be told of these arguments.
REMEMBERED = (
    "weight", "columns", "unknown", "directed", "loops", "missing", "make", "norm", "hops",
    "batches", "fanouts", "replace", "parts",
)  # fmt: skip


class GraphData:
    """A graph with features and labels; see ``configs/data/graph.yaml`` for the arguments.

    Args:
        path: A file, a folder, a pattern, or several of them.
        inputs: Features; empty: all.
        target: See :func:`apps.graphs.nodes.target_of`, and
        kind: for these two;
        classes: the names of the classes in their order, or none.
        weight: Edge weights: ``auto``: those of the file; a column; None.
        split: See :func:`apps.graphs.nodes.splits_of`.
        columns: Names of the columns ``source``, ``target``, ``id`` of tables.
        unknown: What to do with edges to unknown ids: ``error`` or ``drop``.
        directed: Whether messages go along edges only, else both ways.
        loops: Whether edges from a node to itself are kept.
        missing: See :func:`apps.graphs.nodes.features_of`, and
        make: for this.
        scale: ``standard`` (mean 0, spread 1 over train), ``rows`` (sum 1 a node, for counts of
            words), ``none``, or ``auto``: rows where most values are 0 and none is negative.
        norm: See :func:`apps.graphs.hops.scales`.
        hops: How often features are propagated, for networks that take hops.
        label_use: Whether labels of train nodes are propagated beside, see ``labels.py``.
        batches: What a network is given: ``hops`` of nodes, sampled ``neighbours``, ``clusters``,
            or the ``full`` graph.
        fanouts: Neighbours drawn in each layer.
        replace: Whether one may be drawn twice.
        parts: Clusters in the graph.
        storage: ``disk``: edges, features and hops lie in files that are mapped into memory, and
            tables are read in pieces; ``memory``; or ``auto``: on disk where the files that are
            read are beyond a quarter of memory_GiB.
        memory_GiB: Features and hops beyond this lie in files, too.
        store: The folder of these files, which are removed with the object.

    Raises:
        ConfigError: Values that do not fit together.
        DataError: Files that are missing, broken, or not what the configuration says.
    """

    propose = staticmethod(propose)

    def __init__(
        self,
        path: Paths,
        inputs: Iterable[str] = (),
        target: str | Sequence[str] | None = "auto",
        kind: str = "auto",
        classes: Iterable[str] = (),
        weight: str | None = "auto",
        split: Mapping[str, Any] | None = None,
        columns: Mapping[str, str | None] | None = None,
        unknown: str = "error",
        directed: bool = False,
        loops: bool = False,
        missing: str = "error",
        make: str = "degree",
        scale: str = "auto",
        norm: str = "sym",
        hops: int = 4,
        label_use: bool = False,
        batches: str = "hops",
        fanouts: Sequence[int] = (15, 10),
        replace: bool = False,
        parts: int = 64,
        storage: str = "auto",
        memory_GiB: float = 4.0,
        store: str | None = None,
    ) -> None:
        given = dict(locals())
        remembered = (*REMEMBERED, *LABELLED) if label_use else REMEMBERED
        self.settings = {name: given[name] for name in remembered}
        words_of = {"batches": BATCHES, "scale": SCALINGS, "storage": STORAGES}
        for name, words in words_of.items():
            if given[name] not in words:
                raise ConfigError(f"data.{name}: got {given[name]!r}{nearest(given[name], words)}")
        check_whole("data.hops", hops, 0, MOST_HOPS)
        check_whole("data.parts", parts)
        if label_use and batches != "hops":
            raise ConfigError("data.label_use=true needs a model of hops, such as model=sign")
        self.scale, self.label_use, self.memory_GiB, self.store = (
            scale,
            label_use,
            memory_GiB,
            store,
        )
        self.num_hops, self.batches, self.fanouts, self.replace = hops, batches, fanouts, replace
        self.parts, self.split = parts, DEFAULT_SPLIT | dict(split or {})
        self.storage, self.on_disk = storage, storage == "disk"
        self.raw = read(path, Columns(**(columns or {})), weight, unknown, place=self._place)
        if not len(self.raw.ids):
            raise DataError(f"{self.raw.files[0]}: has no node")
        rows = self._folder / "rows" if self.on_disk else None
        with reading(self.raw.files[0]):
            self.graph: CSR = build(self.raw.stream(), len(self.raw.ids), directed, loops, rows)
        self.scales = scales(self.graph, norm)
        self.features: Features = features_of(self.raw, self.graph, list(inputs), missing, make)
        self.target = target_of(self.raw, target, kind, list(classes))
        self._scaling: dict[str, Any] | None = None
        self._part: Part | None = None
        self._full: dict[bool, Any] = {}

    def files(self) -> list[Path]:
        """The files that were read."""
        return self.raw.files

    def example(self) -> list[Path]:
        """The files of the graph: a graph is one sample."""
        return self.raw.files

    @cached_property
    def splits(self) -> dict[str, NDArray[np.int64]]:
        """Labelled nodes of train, val and test."""
        return splits_of(self.raw, self.target, self.split)

    def samples(self, split: str) -> GraphSamples:
        """The labelled nodes of ``train``, ``val``, ``test``, or ``all`` nodes."""
        node_N = np.arange(self.graph.num_nodes) if split == "all" else self.splits[split]
        return GraphSamples(self, node_N, World.start())

    def whole(self) -> GraphSamples:
        """All nodes, for this process alone, whatever others there are."""
        return GraphSamples(self, np.arange(self.graph.num_nodes), World())

    def scaled_by(self, facts: Mapping[str, Any]) -> None:
        """Takes the scales of a training, instead of those of this graph."""
        self._scaling = dict(facts["scaling"])

    @cached_property
    def scaling(self) -> dict[str, Any]:
        """How features are scaled: ``by`` a word, and statistics of the train split."""
        if self._scaling is not None:
            return self._scaling
        by, values = self.scale, self.features.values
        if by == "auto":
            few = values[np.arange(0, len(self.raw.ids), max(1, len(self.raw.ids) // BLOCK))]
            few = few.toarray() if sp.issparse(few) else few
            by = "rows" if few.size and few.min() >= 0 and (few == 0).mean() > 0.5 else "standard"
        if by != "standard":
            return {"by": by}
        of = _moments(values, self.splits["train"])
        return {"by": by, "mean_F": of.mean_C.tolist(), "std_F": of.std_C.tolist()}

    @cached_property
    def x_NF(self) -> Floats:
        """Scaled features, float32, in memory or mapped from a file."""
        values = self.features.values
        x_NF = self._make("x", values.shape[1])(0)
        for at in range(0, len(x_NF), BLOCK):
            part = values[at : at + BLOCK]
            part = part.toarray() if sp.issparse(part) else np.asarray(part, np.float32)
            x_NF[at : at + BLOCK] = _scaled(part, self.scaling)
        return x_NF

    @cached_property
    def hops_KNF(self) -> list[Floats]:
        """Features after 0..K hops; where labels are used, those of train nodes beside them."""
        make = self._make("hop", self.x_NF.shape[1])
        found = hops(self.graph, self.scales, self.x_NF, self.num_hops, make)
        if not self.label_use:
            return found
        one_hot_NC = self.target.label
        if self.target.kind == "classes":
            one_hot_NC = np.eye(len(self.target.names), dtype=np.float32)[self.target.label]
        more = label_hops(self.graph, self.scales, one_hot_NC, self.splits["train"], self.num_hops)
        make = self._make("labelled", self.x_NF.shape[1] + one_hot_NC.shape[1])
        return [
            np.concatenate(it, 1, out=make(k)) for k, it in enumerate(zip(found, more, strict=True))
        ]

    @cached_property
    def rms_K(self) -> list[float]:
        """The root mean square of each hop over train nodes, by which a network of hops divides;
        one that passes messages is given features as they are: published rates and decays are for
        rows of sum 1, and 160 times as large they end in one that knows its few labels by heart.
        """
        if self.batches != "hops":
            return [1.0]
        return [self.rms(x_NF) for x_NF in self.hops_KNF]

    def rms(self, x_NF: Floats) -> float:
        """The root mean square of values over train nodes; 1 where all are 0."""
        node = self.splits["train"]
        return float(np.sqrt(np.mean(np.square(x_NF[node], dtype=np.float64)))) or 1.0

    @cached_property
    def cluster_N(self) -> NDArray[np.int64]:
        """The cluster of each node."""
        return partition(self.graph, self.parts)

    def part(self, world: World) -> Part | None:
        """What this rank has of the full graph; None: all of it."""
        if world.size == 1:
            return None
        if self._part is None:
            owner_N = world.first(lambda: partition(self.graph, world.size))
            self._part = cut(self.graph, owner_N, world)
        return self._part

    def full(self, part: Part | None, make: Callable[[], Any]) -> Any:
        """The features and edges of all nodes, or of a part, made once."""
        if (part is not None) not in self._full:
            self._full[part is not None] = make()
        return self._full[part is not None]

    def _make(self, name: str, features: int) -> Any:
        """Makes arrays of a hop, in files where all hops together are beyond the memory allowed."""
        shape = (self.graph.num_nodes, features)
        is_small = np.prod(shape) * 4 * (self.num_hops + 1) <= self.memory_GiB * 2**30
        if is_small and not self.on_disk:
            return lambda hop: np.empty(shape, np.float32)
        return in_files(self._folder, name, shape)

    def _place(self, files: Sequence[Path]) -> Path | None:
        """Where the columns of files lie; None: in memory."""
        size = sum(file.stat().st_size for file in files)
        if self.storage == "auto":
            self.on_disk = size > self.memory_GiB * 2**30 / PART_OF_MEMORY
        return self._folder / "columns" if self.on_disk else None

    @cached_property
    def _folder(self) -> Path:
        if self.store is not None:
            Path(self.store).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="graph-", dir=self.store))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def dimensions(self) -> dict[str, Any]:
        """The arguments that the data decide for the network, by torch-geometric's names."""
        outputs = len(self.target.names)
        return {
            "in_channels": len(self.features.names) + outputs * self.label_use,
            "out_channels": outputs,
        }

    def facts(self) -> dict[str, Any]:
        """What a model must remember of its data."""
        train, label = self.splits["train"], self.target.label
        count_C = np.bincount(label[train], minlength=len(self.target.names)) if (
            self.target.kind == "classes"
        ) else np.nansum(label[train], 0)  # fmt: skip
        std_C = np.nanstd(label[train], 0) if self.target.kind == "regression" else []
        mean_C = np.nanmean(label[train], 0) if self.target.kind == "regression" else []
        return {
            "inputs": self.features.names,
            "kind": self.target.kind,
            "classes": self.target.names,
            "model": self.dimensions(),
            "scaling": self.scaling,
            "rms_K": self.rms_K,
            "label_use": self.label_use,
            "count_C": [float(it) for it in count_C],
            "mean_C": [float(it) for it in mean_C],
            "std_C": [float(it) or 1.0 for it in std_C],
            "settings": {
                name: dict(it)
                if isinstance(it, Mapping)
                else list(it)
                if isinstance(it, tuple)
                else it
                for name, it in self.settings.items()
            },
        }

    def report(self) -> DataReport:
        """The audit of the graph."""
        return report(self)


def _moments(values: Any, node: NDArray[np.int64]) -> Moments:
    total = None
    for at in range(0, len(node), BLOCK):
        part = values[node[at : at + BLOCK]]
        of = Moments.of((part.toarray() if sp.issparse(part) else np.asarray(part)).T)
        total = total + of if total else of
    assert total is not None  # a split is never empty
    return total


def _scaled(x_NF: Floats, scaling: Mapping[str, Any]) -> Floats:
    if scaling["by"] == "standard":
        mean_F, std_F = (np.asarray(scaling[it], np.float32) for it in ("mean_F", "std_F"))
        return (x_NF - mean_F) / std_F
    if scaling["by"] == "rows":
        return x_NF / np.maximum(np.abs(x_NF).sum(1, keepdims=True), 1e-12)
    return x_NF
