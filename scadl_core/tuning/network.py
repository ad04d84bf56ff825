"""A network as the cost model sees it: sizes, and the times of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from scadl_core.tuning.machine import Machine


class Codec(NamedTuple):
    """What an exchange does to the gradients of a network.

    Attributes:
        ratio: Bytes of float32 over bytes that are sent.
        error: Norm of what one message gets wrong, over that of the gradient; what is sent later is
            not taken off.
        encode: Bytes of float32 a second that are compressed; 0 is what the machine does of others.
        decode: The same of decompression.
    """

    ratio: float
    error: float
    encode: float = 0.0
    decode: float = 0.0


class Kept(NamedTuple):
    """Activations that are kept compressed.

    Attributes:
        ratio: Bytes saved for the backward pass without compression over those with it.
        seconds: In the codec, a sample.
    """

    ratio: float
    seconds: float


@dataclass(frozen=True)
class Block:
    """A layer that K-FAC preconditions.

    Attributes:
        inputs: Rows of the factor A, of each group; 0 without one, or of a diagonal.
        outputs: Rows of G, as well.
        elements: Of the gradient.
        groups: Matrices in each factor.
        rows: A sample adds to the statistics.
        flops: Of the forward pass of a sample.
        nbytes: Of the output of a sample.
    """

    inputs: int
    outputs: int
    elements: int
    groups: int = 1
    rows: float = 1.0
    flops: float = 0.0
    nbytes: float = 0.0

    @property
    def factor_bytes(self) -> float:
        """Of both factors as triangles of float32."""
        return 2.0 * self.groups * (self.inputs**2 + self.outputs**2)


@dataclass(frozen=True)
class Network:
    """What is trained, and what a rank takes for it.

    Attributes:
        shapes: Of each parameter, as (rows, columns); columns is 0 where it is a vector.
        fixed: Seconds of forward and backward pass that do not depend on the batch.
        per_sample: Seconds of both for each sample.
        forward: Of it the share of the forward pass.
        update: Seconds of the optimizer's step, without what K-FAC adds.
        state: Tensors of the size of a parameter that the optimizer keeps of it.
        flops: Of forward and backward pass of a sample.
        saved: Bytes that a sample's forward pass keeps for the backward pass.
        kept: The same under ``memory=adaptive``; None where it was not measured.
        blocks: That K-FAC preconditions.
        codecs: What exchanges do to its gradients, by :attr:`scadl_core.tuning.plan.Plan.codec`.
    """

    shapes: tuple[tuple[int, int], ...]
    fixed: float = 0.0
    per_sample: float = 1e-3
    forward: float = 1 / 3
    update: float = 0.0
    state: float = 2.0
    flops: float = 0.0
    saved: float = 0.0
    kept: Kept | None = None
    blocks: tuple[Block, ...] = ()
    codecs: Mapping[str, Codec] = field(default_factory=lambda: {"off": Codec(1.0, 0.0)})

    @property
    def elements(self) -> int:
        """Of all parameters."""
        return sum(rows * max(1, columns) for rows, columns in self.shapes)

    @property
    def gradient_bytes(self) -> float:
        """In float32."""
        return 4.0 * self.elements

    def seconds(self, samples: float) -> float:
        """Of forward and backward pass of a batch on one rank."""
        return self.fixed + self.per_sample * samples

    def on(self, machine: Machine) -> Network:
        """The same network on a rank of a machine that is not at hand: its operations at the rate
        of matrix products, an optimizer that reads and writes all that it keeps, and a codec that
        is as fast on activations as on gradients.
        """
        kept = self.kept
        if kept is not None:
            codec = 1 / machine.encode + 1 / machine.decode
            kept = Kept(kept.ratio, self.saved * codec)
        codecs = {name: Codec(it.ratio, it.error) for name, it in self.codecs.items()}
        update = 2 * (1 + self.state) * self.gradient_bytes / machine.stream
        return replace(
            self, fixed=0.0, per_sample=self.flops / machine.matmul, update=update, kept=kept,
            codecs=codecs,
        )  # fmt: skip
