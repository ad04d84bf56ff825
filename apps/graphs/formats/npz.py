"""Graphs in NumPy archives, in the dialects found in the wild.

* Shchur et al. 2018, arXiv:1811.05868: ``adj_data adj_indices adj_indptr adj_shape attr_* labels``;
* SparseGraph of Gasteiger et al. 2019, arXiv:1810.05997: ``adj_matrix.data ..``, and the same for
  ``attr_matrix``; arrays of Python objects in it are left out, as they might run code;
* Platonov et al. 2023, arXiv:2302.11640: ``node_features node_labels edges train_masks ..``.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from apps.graphs.raw import Ids, Raw, check_ends, once
from scadl_core.errors import DataError

DAMAGES = (OSError, ValueError, KeyError, IndexError, TypeError, EOFError)
PIECES = ("data", "indices", "indptr", "shape")


def read_npz(path: Path) -> Raw:
    """A graph from an archive; a DataError where it is damaged, or of no known dialect."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays, objects = _plain_arrays(archive)
        raw = _read(path, arrays)
        check_ends(raw.stream(), len(raw.ids), path)
    except (*DAMAGES, zipfile.BadZipFile, zlib.error, MemoryError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read as a graph ({reason})") from None
    raw.notes += [f"left out, as they are Python objects: {', '.join(objects)}"] * bool(objects)
    return raw


def _plain_arrays(archive: Any) -> tuple[dict[str, Any], list[str]]:
    arrays, objects = {}, []
    for name in archive.files:
        try:
            arrays[name] = archive[name]
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            objects.append(name)
    return arrays, objects


def _read(path: Path, arrays: dict[str, Any]) -> Raw:
    for joint, adjacency, attributes in (("_", "adj", "attr"), (".", "adj_matrix", "attr_matrix")):
        if f"{adjacency}{joint}indptr" in arrays:
            return _sparse(path, arrays, f"{adjacency}{joint}", f"{attributes}{joint}")
    if {"edges", "node_features", "node_labels"} <= arrays.keys():
        return _masks(path, arrays)
    known = "adj_data.., adj_matrix.data.., or edges, node_features, node_labels"
    raise DataError(f"{path}: is no graph known here: it holds {', '.join(arrays)}, not {known}")


def _sparse(path: Path, arrays: dict[str, Any], adjacency: str, attributes: str) -> Raw:
    matrix = sp.coo_matrix(_matrix(arrays, adjacency))
    weight = None if (matrix.data == 1).all() else matrix.data
    has = f"{attributes}data" in arrays
    dense = arrays.get(attributes.rstrip("_."))
    names = arrays.get("node_names")
    label = arrays.get("labels")
    return Raw(
        f"npz ({adjacency}*)",
        [path],
        Ids(np.arange(matrix.shape[0]) if names is None else names, path),
        once(matrix.row, matrix.col, weight),
        _matrix(arrays, attributes).astype(np.float32) if has else dense,
        [str(it) for it in arrays.get("attr_names", ())],
        label=None if label is None else label.astype(np.int64),
        class_names=[str(it) for it in arrays.get("class_names", ())],
    )


def _matrix(arrays: dict[str, Any], prefix: str) -> sp.csr_matrix:
    data, indices, indptr, shape = (arrays[f"{prefix}{piece}"] for piece in PIECES)
    matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(map(int, shape)))
    matrix.check_format()
    return matrix


def _masks(path: Path, arrays: dict[str, Any]) -> Raw:
    splits = {it: f"{it}_masks" for it in ("train", "val", "test")}
    return Raw(
        "npz (edges, node_features)",
        [path],
        Ids(np.arange(len(arrays["node_features"])), path),
        once(*arrays["edges"].T),
        arrays["node_features"],
        label=arrays["node_labels"],
        splits={it: np.atleast_2d(arrays[key]) for it, key in splits.items() if key in arrays},
        directed=None,
    )
