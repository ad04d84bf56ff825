"""What is decided about the nodes of a graph: features, labels, splits.

Suffixes: N node, F feature, C class or output, S published split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from apps.graphs.columns import BLOCK, Matrix
from apps.graphs.csr import CSR
from apps.graphs.formats.tables import LABELS, SPLIT
from apps.graphs.hops import propagate, scales
from apps.graphs.raw import Raw
from scadl_core.errors import ConfigError, DataError, nearest

Ints = NDArray[np.int64]
MISSING = ("error", "zero", "mean")
STRUCTURE = ("degree", "random", "identity")
KINDS = ("classes", "multilabel", "regression")
SPLITS = ("train", "val", "test")
DEFAULT_SPLIT = {"by": "auto", "number": 0, "val": 0.2, "test": 0.2, "seed": 0}
VALIDATION_WORDS = ("val", "valid", "validation", "dev")
UNLABELLED = -1


class Features(NamedTuple):
    """Of shape (N, F), NaN nowhere, and F names; the columns that were left out."""

    values: Any
    names: list[str]
    ignored: list[str]
    filled: int


class Target(NamedTuple):
    """What is learnt.

    Attributes:
        kind: One of ``KINDS``.
        label: int64 of shape (N,), -1 unlabelled; for other kinds float32 (N, C), NaN unlabelled.
        names: Of the classes, or of the columns.
    """

    kind: str
    label: NDArray[Any]
    names: list[str]

    @property
    def labelled_N(self) -> NDArray[np.bool_]:
        """Which nodes have a label."""
        return self.label >= 0 if self.kind == "classes" else np.isfinite(self.label).any(1)


def features_of(raw: Raw, graph: CSR, inputs: Sequence[str], missing: str, make: str) -> Features:
    """The features of the nodes.

    Args:
        raw: What was read.
        graph: Its edges.
        inputs: Their names; empty: all that are numbers.
        missing: What stands for a missing value: ``error``, ``zero`` or ``mean`` (of the others).
        make: Of what features are made if there are none: ``degree`` (five numbers of the degrees
            of a node and its neighbours), ``random``, ``identity``.

    Raises:
        ConfigError: An unknown word.
        DataError: A feature is not there, is text, or lacks values.
    """
    if missing not in MISSING:
        raise ConfigError(f"data.missing: got {missing!r}{nearest(missing, MISSING)}")
    values, names, ignored = _columns(raw, inputs)
    if not names:
        values, names = _of_structure(graph, make)
        raw.notes.append(f"nodes have no features: made of their {make} (data.make)")
    if sp.issparse(values):
        return Features(values, names, ignored, 0)
    if not isinstance(values, Matrix):
        values = Matrix(values.__getitem__, values.shape)
    filled = 0
    known_F, mean_F = _known(values)
    lacking_F = len(values) - known_F
    if lacking_F.any():
        if missing == "error":
            worst = int(lacking_F.argmax())
            raise DataError(
                f"{raw.ids.where}: the feature {names[worst]} is missing (NaN) in "
                f"{lacking_F[worst]} of {len(values)} nodes; set data.missing=mean or zero, or "
                "leave it out of data.inputs"
            )
        filled = int(lacking_F.sum())
        values = values.filled(mean_F * (missing == "mean"))
    return Features(values, names, ignored, filled)


def _columns(raw: Raw, inputs: Sequence[str]) -> tuple[Any, list[str], list[str]]:
    if raw.features is not None:
        names = raw.feature_names or [f"feature_{f}" for f in range(raw.features.shape[1])]
        if not inputs:
            return raw.features, names, []
        if unknown := [it for it in inputs if it not in names]:
            raise DataError(
                f"{raw.ids.where}: has no feature {unknown[0]}{nearest(unknown[0], names)}"
            )
        chosen = [names.index(it) for it in inputs]
        if sp.issparse(raw.features):
            return raw.features[:, chosen], list(inputs), []
        shape = (len(raw.features), len(chosen))
        return Matrix(lambda rows: raw.features[rows][:, chosen], shape), list(inputs), []
    if unknown := [it for it in inputs if it not in raw.columns]:
        raise DataError(
            f"{raw.ids.where}: has no column {unknown[0]} (data.inputs)"
            f"{nearest(unknown[0], raw.columns)}"
        )
    others = {it for it in raw.columns if it.lower() in (*LABELS, SPLIT)}
    numeric = [
        it for it in raw.columns if it not in others and raw.columns[it].dtype.kind in "iufb"
    ]
    names = list(inputs) or numeric
    for name in names:
        if raw.columns[name].dtype.kind not in "iufb":
            raise DataError(
                f"{raw.ids.where}: {name} is text, such as {raw.columns[name][0]!r}; features are "
                "numbers: encode it, or leave it out of data.inputs"
            )
    ignored = [it for it in raw.columns if it not in (*names, *others)]
    if not names:
        return None, [], ignored
    return Matrix.of([raw.columns[it] for it in names]), names, ignored


def _of_structure(graph: CSR, make: str) -> tuple[Any, list[str]]:
    if make not in STRUCTURE:
        raise ConfigError(f"data.make: got {make!r}{nearest(make, STRUCTURE)}")
    nodes = graph.num_nodes
    if make == "identity":
        return sp.identity(nodes, np.float32, format="csr"), [f"node_{n}" for n in range(nodes)]
    if make == "random":
        values = np.random.default_rng(0).standard_normal((nodes, 64), np.float32)
        return values, [f"random_{f}" for f in range(64)]
    degree_N1 = np.log1p(graph.degree_N.astype(np.float32))[:, None]
    by = scales(graph, "row")
    mean_N1 = propagate(graph, by, degree_N1)
    square_N1 = propagate(graph, by, np.square(degree_N1))
    beyond_N1 = propagate(graph, by, mean_N1)
    std_N1 = np.sqrt(np.maximum(square_N1 - np.square(mean_N1), 0))
    has_N1 = (degree_N1 > 0).astype(np.float32)
    names = [
        "log_degree",
        "has_neighbours",
        "mean_of_neighbours",
        "std_of_neighbours",
        "mean_beyond",
    ]
    return np.hstack([degree_N1, has_N1, mean_N1, std_N1, beyond_N1]), names


def _known(values: Matrix) -> tuple[Ints, NDArray[np.float32]]:
    """How many values of each feature are finite, and their mean."""
    count_F, sum_F = np.zeros(values.shape[1], np.int64), np.zeros(values.shape[1])
    for at in range(0, len(values), BLOCK):
        block_RF = values[at : at + BLOCK]
        finite_RF = np.isfinite(block_RF)
        count_F += finite_RF.sum(0)
        sum_F += np.where(finite_RF, block_RF, 0).sum(0, dtype=np.float64)
    return count_F, (sum_F / np.maximum(count_F, 1)).astype(np.float32)


def target_of(
    raw: Raw, target: str | Sequence[str] | None, kind: str, classes: Sequence[str]
) -> Target:
    """The labels of the nodes.

    Args:
        raw: What was read.
        target: A column of the node table, or several; ``auto``: what the format calls labels, or
            a column of a usual name; None: none.
        kind: One of ``KINDS``, or ``auto``: several columns are multi-label, numbers with
            fractions regression, all else classes.
        classes: Their order; empty: sorted.

    Raises:
        ConfigError: An unknown kind.
        DataError: A column is not there, or a label is none of the classes.
    """
    if kind not in (*KINDS, "auto"):
        raise ConfigError(f"data.kind: got {kind!r}{nearest(kind, (*KINDS, 'auto'))}")
    label, names = _label(raw, target)
    if label is None:
        return Target("classes", np.full(len(raw.ids), UNLABELLED), list(classes))
    if kind == "auto":
        fractions = label.dtype.kind == "f" and np.any(label[np.isfinite(label)] % 1)
        several = label.ndim > 1 and label.shape[1] > 1
        kind = (
            "multilabel" if several and not fractions else "regression" if fractions else "classes"
        )
    if kind == "classes":
        return _classes(raw, label.reshape(len(label)), classes)
    values_NC = np.asarray(pd.DataFrame(label).apply(pd.to_numeric), np.float32)
    known = values_NC[np.isfinite(values_NC)]
    if kind == "multilabel" and not np.isin(known, (0, 1)).all():
        raise DataError(
            f"{raw.ids.where}: labels of several classes are 0 or 1, not {known.max():g}"
        )
    return Target(kind, values_NC, list(classes or names or map(str, range(values_NC.shape[1]))))


def _label(raw: Raw, target: str | Sequence[str] | None) -> tuple[NDArray[Any] | None, list[str]]:
    if target is None:
        return None, []
    if target != "auto":
        names = [target] if isinstance(target, str) else list(target)
        if not set(names) <= raw.columns.keys() and raw.label is not None:
            return raw.label, []  # in these formats it has no name
        for name in names:
            if name not in raw.columns:
                there = nearest(name, raw.columns)
                raise DataError(f"{raw.ids.where}: has no column {name} (data.target){there}")
        columns = [raw.columns[name] for name in names]
        return (columns[0] if len(columns) == 1 else np.stack(columns, 1)), names
    if raw.label is not None:
        return raw.label, []
    by_name = {name.lower(): name for name in raw.columns}
    found = next((by_name[it] for it in LABELS if it in by_name), None)
    return (None, []) if found is None else (raw.columns[found], [found])


def _classes(raw: Raw, label_N: NDArray[Any], classes: Sequence[str]) -> Target:
    values = pd.Series(label_N)
    known_N = values.notna().to_numpy() & (values.astype(str).str.strip() != "").to_numpy()
    if values.dtype.kind in "iuf":
        known_N &= (values >= 0).to_numpy()
        texts = values.where(known_N, 0).astype(np.int64)
        if raw.class_names and (texts < len(raw.class_names)).all():
            texts = texts.map(dict(enumerate(raw.class_names)))
        elif not classes:
            classes = [str(it) for it in sorted(set(texts[known_N]))]
    else:
        texts = values
    texts = texts.astype(str).to_numpy()
    names = list(map(str, classes)) or raw.class_names or sorted(set(texts[known_N]))
    place = {name: number for number, name in enumerate(names)}
    if strange := sorted(set(texts[known_N]) - place.keys()):
        raise DataError(
            f"{raw.ids.where}: the label {strange[0]} is none of data.classes ({', '.join(names)})"
        )
    found_N = np.array([place[t] if k else UNLABELLED for t, k in zip(texts, known_N, strict=True)])
    return Target("classes", found_N.astype(np.int64), names)


def splits_of(raw: Raw, target: Target, split: Mapping[str, Any]) -> dict[str, Ints]:
    """Labelled nodes by split.

    Args:
        raw: What was read.
        target: The labels.
        split: ``by``: ``given`` (the file's own; ``number`` says which of several), ``random``
            (shares ``val`` and ``test`` of each class, by ``seed``), or ``auto``: the file's own
            where it has one.

    Raises:
        ConfigError: An unknown word, number or share.
        DataError: There are no labels, no such split, or one is empty.
    """
    if not target.labelled_N.any():
        raise DataError(
            f"{raw.ids.where}: no node has a label, so nothing can be learnt; name a column of the "
            "node table with data.target"
        )
    given = dict(raw.splits) or _split_column(raw)
    by = split["by"]
    if by not in ("auto", "given", "random"):
        raise ConfigError(f"data.split.by: got {by!r}{nearest(by, ('auto', 'given', 'random'))}")
    if by == "given" and not given:
        raise DataError(f"{raw.ids.where}: has no split of its own; set data.split.by=random")
    masks = _chosen(given, split["number"]) if given and by != "random" else _drawn(target, split)
    found = {it: np.flatnonzero(masks[it] & target.labelled_N) for it in SPLITS if it in masks}
    for name in SPLITS:
        if not len(found.get(name, ())):
            raise DataError(
                f"{raw.ids.where}: the {name} split has no labelled node of {len(raw.ids)}; "
                "set data.split.by=random, or its shares"
            )
    return found


def _split_column(raw: Raw) -> dict[str, NDArray[np.bool_]]:
    name = next((it for it in raw.columns if it.lower() == SPLIT), None)
    if name is None:
        return {}
    words_N = pd.Series(raw.columns[name]).astype(str).str.lower().to_numpy()
    words = {"train": ("train", "training"), "val": VALIDATION_WORDS, "test": ("test",)}
    return {it: np.isin(words_N, of)[None] for it, of in words.items()}


def _chosen(given: Mapping[str, NDArray[np.bool_]], number: int) -> dict[str, NDArray[np.bool_]]:
    count = min(map(len, given.values()))
    if not 0 <= number < count:
        raise ConfigError(f"data.split.number={number}: the file has splits 0..{count - 1}")
    return {name: mask_SN[number] for name, mask_SN in given.items()}


def _drawn(target: Target, split: Mapping[str, Any]) -> dict[str, NDArray[np.bool_]]:
    val, test = split["val"], split["test"]
    if not (0 < val < 1 and 0 < test < 1 and val + test < 1):
        raise ConfigError(
            f"data.split: val={val} and test={test} are shares that leave some to train"
        )
    rng, kind_N = np.random.default_rng(split["seed"]), target.label
    group_N = kind_N if target.kind == "classes" else np.where(target.labelled_N, 0, UNLABELLED)
    masks = {name: np.zeros(len(group_N), bool) for name in SPLITS}
    for group in np.unique(group_N[group_N >= 0]):
        node = rng.permutation(np.flatnonzero(group_N == group))
        ends = np.cumsum([round(len(node) * test), round(len(node) * val)])
        for name, part in zip(("test", "val", "train"), np.split(node, ends), strict=True):
            masks[name][part] = True
    return masks
