"""The interface of all rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from scadl_core.admm.block import Block, Phase, Visit


class Rule(ABC):
    """What a block does in an iteration, from what it holds and hears alone.

    An iteration has phases. In each phase every block computes and sends; between two phases
    nothing need be waited for but what a phase takes from a neighbour. Blocks of one rank do a
    phase one after another, those of different ranks at the same time, to the same result.

    Attributes:
        phases: In order.
        hears_left: Whether a message from the block before is under way when an iteration ends.
        hears_right: The same of the block after.
        penalty: rho at the start.
        staleness: How many iterations older than need be the messages are that a block uses.
    """

    hears_left: bool
    hears_right: bool
    penalty: float
    staleness: int = 0

    @property
    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """The phases of an iteration."""

    @abstractmethod
    def check(self, block: Block) -> None:
        """Refuses, by a ConfigError, a module that the rule cannot train; makes the optimizer."""

    @abstractmethod
    def begin(self, block: Block, visit: Visit, inputs: Tensor, outputs: Tensor) -> None:
        """Sets the variables of a batch that is met for the first time.

        Args:
            block: The block.
            visit: The batch.
            inputs: The packed input that a forward pass through the chain gives it.
            outputs: Its packed output.
        """

    def rescale(self, block: Block, penalty: float) -> None:
        """Sets another penalty; a rule that keeps scaled duals scales them."""
        block.penalty = penalty
