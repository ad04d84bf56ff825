"""Planetoid's raw files (Yang et al. 2016, arXiv:1603.08861), and pickles that cannot run code."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from apps.graphs.raw import Ids, Raw, check_ends, once, split_masks
from scadl_core.errors import DataError

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VALIDATION = 500  # nodes after those of training, as in all published tables


class _Sparse:
    """What a pickled SciPy matrix holds, and nothing of what it does."""

    def matrix(self) -> sp.csr_matrix:
        of = self.__dict__
        shape = of.get("_shape", of.get("shape"))
        return sp.csr_matrix((of["data"], of["indices"], of["indptr"]), shape=shape)


_reconstruct = np.empty(0).__reduce__()[0]
_SAFE: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): lambda *_: {},
    **{(module, "list"): list for module in ("__builtin__", "builtins")},
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Sparse for module in ("csr", "_csr")},
    ("copy_reg", "_reconstructor"): lambda kind, *_: kind(),
    ("copyreg", "_reconstructor"): lambda kind, *_: kind(),
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
}


class _Unpickler(pickle._Unpickler):  # in C, one damaged number takes gigabytes of memory
    """Makes arrays, SciPy matrices, lists and dictionaries; whatever else is named is refused."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _SAFE[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which might run code"
            ) from None


def unpickle(content: bytes, where: Path | str) -> Any:
    """The value of a pickle; a DataError where it is damaged, or holds more than data."""
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        return value.matrix() if isinstance(value, _Sparse) else value
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to mean
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: is no pickle of plain data ({reason})") from None


def read_planetoid(path: Path) -> Raw:
    """A graph from ``ind.<name>.*``.

    Args:
        path: One of the files; the others lie beside it.

    Raises:
        DataError: One is missing, damaged, or does not fit the others.
    """
    stem = path.with_name(".".join(path.name.split(".")[:2]))
    files = [stem.with_name(f"{stem.name}.{part}") for part in PARTS]
    for file in files:
        if not file.is_file():
            raise DataError(f"{file}: is missing; a Planetoid graph has {', '.join(PARTS)}")
    parts = [unpickle(file.read_bytes(), file) for file in files[:-1]]
    try:
        return _assemble(stem.name, files, *parts, np.loadtxt(files[-1], np.int64, ndmin=1))
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise DataError(f"{stem}.*: the files do not fit one another ({error})") from None


def _assemble(
    name: str, files: list[Path], x: Any, y: Any, tx: Any, ty: Any, allx: Any, ally: Any,
    neighbours: Any, test: Any,
) -> Raw:  # fmt: skip
    nodes = max(int(test.max()) + 1, len(ally) + len(ty))
    features, label_NC = sp.lil_matrix((nodes, x.shape[1])), np.zeros((nodes, y.shape[1]))
    features[: allx.shape[0]], label_NC[: len(ally)] = allx, ally
    features[test], label_NC[test] = tx, ty
    source, target = (
        np.array([pair[end] for pair in ((u, v) for u in neighbours for v in neighbours[u])])
        for end in (0, 1)
    )
    given = label_NC.any(1)
    stream = once(source, target)
    check_ends(stream(), nodes, files[-2])
    missing = sorted(set(range(int(test.min()), int(test.max()) + 1)) - set(test.tolist()))
    return Raw(
        "Planetoid",
        files,
        Ids(np.arange(nodes), files[0]),
        stream,
        features.tocsr().astype(np.float32),
        label=np.where(given, label_NC.argmax(1), -1),
        splits=split_masks(
            nodes,
            train=np.arange(len(y)),
            val=np.arange(len(y), min(len(y) + VALIDATION, len(ally))),
            test=test,
        ),
        directed=False,
        notes=[f"{len(missing)} nodes of {name} have neither features nor label"] * bool(missing),
    )
