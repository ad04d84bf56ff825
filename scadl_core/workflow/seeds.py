"""Every random choice as a function of one seed and what it is for.

Nothing random is carried from step to step, so a run that was stopped anywhere goes on exactly: the
order of the samples depends on (seed, epoch), the augmentation of a sample on (seed, epoch,
sample), and the model's own noise on (seed, step, rank). A data worker therefore needs no seed of
its own.
"""

from __future__ import annotations

import zlib

import numpy as np

from scadl_core.errors import ConfigError


def derive(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit seed for one purpose.

    Args:
        seed: The seed of the run.
        purpose: What the random numbers are for.
        keys: Which epoch, sample, step or rank, each 0 or more.

    Returns:
        An integer in [0, 2**63), independent over purposes and keys
        (``numpy.random.SeedSequence``).

    Raises:
        ConfigError: A negative seed.
    """
    if seed < 0:
        raise ConfigError(f"seed: expected 0 or more, got {seed}")
    state = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *keys]).generate_state(
        1, np.uint64
    )
    return int(state[0] >> np.uint64(1))


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A NumPy generator for one purpose, see :func:`derive`."""
    return np.random.default_rng(derive(seed, purpose, *keys))
