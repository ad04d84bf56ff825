"""Random choices: as NumPy's SeedSequence makes them, and independent of one another."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest

from scadl_core.errors import ConfigError
from scadl_core.workflow.seeds import derive, generator


def test_a_seed_is_that_of_the_seed_sequence() -> None:
    """A stored run goes on with the same numbers only while this formula stays."""
    sequence = np.random.SeedSequence([7, zlib.crc32(b"sample"), 3, 5])
    expected = int(sequence.generate_state(1, np.uint64)[0]) >> 1
    assert derive(7, "sample", 3, 5) == expected
    assert generator(7, "sample", 3, 5).random() == np.random.default_rng(expected).random()


def test_seeds_differ_and_fit_into_63_bits() -> None:
    cases = itertools.product(range(5), ("order", "sample", "step"), range(8), range(8))
    seeds = [derive(*case) for case in cases]
    assert len(set(seeds)) == len(seeds) == 960
    assert all(0 <= seed < 2**63 for seed in seeds)
    # Half of the bits are ones: within 5 standard deviations of a fair coin.
    ones = sum(seed.bit_count() for seed in seeds)
    assert abs(ones - 960 * 31.5) < 5 * (960 * 63 / 4) ** 0.5


def test_negative_seeds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^seed: expected 0 or more, got -1$"):
        derive(-1, "order")
