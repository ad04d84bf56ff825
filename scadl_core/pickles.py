"""Pickles of arrays, read without running what they hold."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from scadl_core.errors import DataError


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
    """The value of a pickle of Python 2 or 3.

    Args:
        content: Of the file.
        where: Its name, for messages.

    Raises:
        DataError: It is damaged, or names anything but arrays, sparse matrices, lists and dicts.
    """
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        return value.matrix() if isinstance(value, _Sparse) else value
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to mean
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: is no pickle of plain data ({reason})") from None
