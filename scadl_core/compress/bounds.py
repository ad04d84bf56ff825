"""How much a decoded array may differ from what was encoded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from scadl_core.errors import CodecError, nearest


@dataclass(frozen=True)
class Bound:
    """Base of the bounds; values that are not finite are always kept exactly.

    Attributes:
        eps: The bound, at least 0; 0 keeps every bit.

    Raises:
        CodecError: ``eps`` is not a finite number of at least 0.
    """

    eps: float
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        eps: Any = self.eps
        if isinstance(eps, bool) or not isinstance(eps, Real):
            raise CodecError(f"{type(self).__name__}: expected a number, got {eps!r}")
        if not (math.isfinite(eps) and float(eps) >= 0):
            raise CodecError(
                f"{type(self).__name__}: expected a finite number of at least 0, got {eps!r}"
            )
        object.__setattr__(self, "eps", float(eps))

    def to_json(self) -> dict[str, Any]:
        """The bound as a JSON object; :func:`bound_from_json` reads it."""
        return {"kind": self.kind, "eps": self.eps}


class Absolute(Bound):
    """``|x - x'| <= eps`` for every finite element."""

    kind = "absolute"


class Relative(Bound):
    """``|x - x'| <= eps * (max x - min x)`` over the finite elements."""

    kind = "relative"


class PointwiseRelative(Bound):
    """``|x - x'| <= eps * |x|`` for every finite element; zeros and signs are kept.

    Raises:
        CodecError: ``eps`` is 1 or more.
    """

    kind = "pointwise_relative"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps >= 1:
            raise CodecError(f"PointwiseRelative: expected less than 1, got {self.eps!r}")


class L2(Bound):
    """``||x - x'|| <= eps * ||x||``, Euclidean norms over the finite elements."""

    kind = "l2"


_KINDS = {bound.kind: bound for bound in (Absolute, Relative, PointwiseRelative, L2)}


def bound_from_json(value: Any) -> Bound:
    """The bound that :meth:`Bound.to_json` described.

    Args:
        value: ``{"kind": ..., "eps": ...}``.

    Raises:
        CodecError: It is something else.
    """
    if not isinstance(value, dict) or set(value) != {"kind", "eps"}:
        raise CodecError(f'bound: expected {{"kind": ..., "eps": ...}}, got {value!r}')
    if value["kind"] not in _KINDS:
        raise CodecError(
            f"bound: unknown kind {value['kind']!r}{nearest(str(value['kind']), _KINDS)}"
        )
    return _KINDS[value["kind"]](value["eps"])
