"""The float types that are coded."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from scadl_core.errors import CodecError


class Format(NamedTuple):
    """An IEEE-like binary format.

    Attributes:
        name: As NumPy and torch call it.
        code: In a container.
        bits: Of one element.
        mantissa: Bits of the stored significand.
    """

    name: str
    code: int
    bits: int
    mantissa: int

    @property
    def sign_bit(self) -> int:
        """The sign's place in a pattern."""
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        """The pattern of infinity."""
        return self.sign_bit - (1 << self.mantissa)

    @property
    def patterns(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned type of a pattern."""
        return _dtype(f"u{self.bits // 8}")

    @property
    def values(self) -> np.dtype[np.generic]:
        """What the linear law reads: floats, or patterns of the 16-bit types."""
        return self.patterns if self.bits == 16 else _dtype(self.name)


@cache  # NumPy parses the name each time, which costs more than a kernel's call
def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name)


FORMATS = {
    form.name: form
    for form in (
        Format("float32", 0, 32, 23),
        Format("float64", 1, 64, 52),
        Format("float16", 2, 16, 10),
        Format("bfloat16", 3, 16, 7),
    )
}


def format_of(name: str) -> Format:
    """The format of a type's name, such as ``"float32"``.

    Raises:
        CodecError: The codec does not take this type.
    """
    if name not in FORMATS:
        raise CodecError(
            f"expected an array of {', '.join(FORMATS)}, got {name}; convert it first, or pack "
            "integers and booleans with scadl_core.compress.packers"
        )
    return FORMATS[name]


def value_of_key(key: int, form: Format) -> float:
    """The value of a key that orders as values do: the pattern of the magnitude, with a sign."""
    if form.name == "bfloat16":
        size = np.array(abs(key) << 16, np.uint32).view(np.float32)
    else:
        size = np.array(abs(key), form.patterns).view(form.name)
    return float(size) if key >= 0 else -float(size)
