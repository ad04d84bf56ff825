"""What neighbours say to one another, within a bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from scadl_core.compress import Bound, decode, encode, to_bytes


class Message(NamedTuple):
    """One variable of one batch.

    Attributes:
        batch: Which batch it is of.
        value: What the receiver will see.
        stream: It in compressed bytes, or None where it travels as it is.
    """

    batch: int
    value: Tensor
    stream: bytes | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on the wire, without the header."""
        return len(self.stream) if self.stream is not None else self.value.nbytes


@dataclass
class Wire:
    """Compresses messages with error feedback: what was lost of one is added to the next of the
    same batch (Seide et al. 2014, doi:10.21437/Interspeech.2014-274).

    A message is coded whether or not it leaves the rank: iterates do not depend on where blocks
    are.

    Attributes:
        bound: None sends every bit.
        feedback: Whether errors are kept.
        errors: What was lost, by batch.
    """

    bound: Bound | None = None
    feedback: bool = True
    errors: dict[int, Tensor] = field(default_factory=dict)

    def message(self, batch: int, value: Tensor) -> Message:
        """The message of a value; a rank's own memory of it is left as it is."""
        if self.bound is None:
            return Message(batch, value)
        if batch in self.errors:
            value = value + self.errors[batch]
        packed = encode(value.contiguous(), self.bound)
        seen: Tensor = decode(packed)
        if self.feedback:
            self.errors[batch] = value - seen
        return Message(batch, seen, to_bytes(packed))
