"""Lossless packing of what is no float: booleans, signs, indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.arrays import is_tensor
from scadl_core.errors import CodecError


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed array.

    Attributes:
        data: uint8 bits, or offsets of the narrowest unsigned type.
        shape: Of the array.
        dtype: Name of its type.
        low: What is added to the offsets.
        library: "numpy" or "torch".
    """

    data: NDArray[Any]
    shape: tuple[int, ...]
    dtype: str
    low: int
    library: str

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return self.data.nbytes


def pack_bits(array: Any) -> Packed:
    """A boolean array in one bit an element.

    Args:
        array: NumPy array or torch tensor of booleans, any shape.

    Raises:
        CodecError: Another type.
    """
    values, library = _values(array)
    if values.dtype != np.bool_:
        raise CodecError(f"pack_bits: expected booleans, got {values.dtype}")
    return Packed(np.packbits(values, bitorder="little"), values.shape, "bool", 0, library)


def pack_signs(array: Any) -> Packed:
    """Where an array is above zero, in one bit an element: all that ReLU's backward needs of its
    output.

    Args:
        array: NumPy array or torch tensor of numbers, any shape.
    """
    return pack_bits(array > 0)


def pack_integers(array: Any) -> Packed:
    """An integer array in the narrowest unsigned type that holds its range, such as the int64
    indices of a max-pool in one or two bytes each.

    Args:
        array: NumPy array or torch tensor of integers, any shape.

    Raises:
        CodecError: Another type.
    """
    values, library = _values(array)
    if values.dtype.kind not in "iu":
        raise CodecError(f"pack_integers: expected integers, got {values.dtype}")
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    narrow = np.min_scalar_type(high - low)
    # Differences wrap in 64 bits, and so come out right where int64 would overflow.
    shifted = values.astype(np.uint64) - np.uint64(low % 2**64)
    return Packed(shifted.astype(narrow), values.shape, values.dtype.name, low, library)


def unpack(packed: Packed) -> Any:
    """The array of :func:`pack_bits` or :func:`pack_integers`, contiguous.

    Args:
        packed: What they gave.
    """
    if packed.dtype == "bool":
        count = int(np.prod(packed.shape, dtype=np.int64))
        bits = np.unpackbits(packed.data, count=count, bitorder="little")
        array = bits.view(np.bool_).reshape(packed.shape)
    else:
        wide = packed.data.astype(np.uint64) + np.uint64(packed.low % 2**64)
        array = wide.astype(packed.dtype)
    if packed.library == "numpy":
        return array
    import torch

    return torch.from_numpy(array)


def _values(array: Any) -> tuple[NDArray[Any], str]:
    if is_tensor(array):
        return np.asarray(array.detach().cpu().numpy()), "torch"
    return np.asarray(array), "numpy"
