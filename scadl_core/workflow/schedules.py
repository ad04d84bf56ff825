"""The learning rate along a run."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from scadl_core.errors import ConfigError


def warmup_cosine(
    optimizer: Optimizer, total_steps: int, warmup: float = 0.1, floor: float = 0.0
) -> LambdaLR:
    """Rises linearly to the optimizer's rate, then falls along half a cosine.

    Works with any optimizer, since only the rate moves (a one-cycle policy would also move the
    momentum).

    Args:
        optimizer: Whose rate is scaled.
        total_steps: Optimizer steps in the whole run, at least 1.
        warmup: Share of the steps in which the rate rises, in [0, 1).
        floor: The last rate as a share of the highest, in [0, 1].

    Returns:
        A scheduler to be stepped after every optimizer step.

    Raises:
        ConfigError: A share outside its range.
    """
    if not 0 <= warmup < 1:
        raise ConfigError(f"schedule.warmup: expected a share of the steps in [0, 1), got {warmup}")
    if not 0 <= floor <= 1:
        raise ConfigError(f"schedule.floor: expected a share of the rate in [0, 1], got {floor}")
    rising = warmup * total_steps

    def scale(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        done = (step - rising) / max(1.0, total_steps - rising)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return LambdaLR(optimizer, scale)
