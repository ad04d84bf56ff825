"""Ratios and errors against formulas for known gradients."""

from __future__ import annotations

import math

import pytest
import torch

from scadl_core.tuning.codecs import BOUNDS, measure_codecs
from scadl_core.tuning.network import Codec

NORMAL = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))


def test_errors_of_a_normal_gradient() -> None:
    found = measure_codecs([NORMAL], ranks=2)
    # Uniform rounding within a bound b: b / sqrt(3) of the root mean square.
    for bound in BOUNDS[:2]:
        assert found[f"compressed {bound:g}"].error == pytest.approx(bound / math.sqrt(3), rel=0.05)
    largest = float(NORMAL.abs().max() / NORMAL.square().mean().sqrt())
    step = largest / 63
    assert found["quantised"].error == pytest.approx(step / math.sqrt(12), rel=0.05)
    assert 2**-9 / 2 < found["bf16"].error < 2**-8
    assert found["off"] == Codec(1.0, 0.0)


def test_ratios_of_a_normal_gradient() -> None:
    found = measure_codecs([NORMAL], ranks=2)
    assert found["bf16"].ratio == 2 and found["quantised"].ratio == 4
    assert measure_codecs([NORMAL], ranks=40)["quantised"].ratio == 2
    ratios = [found[f"compressed {bound:g}"].ratio for bound in BOUNDS]
    assert ratios == sorted(ratios) and ratios[0] > 2
    # No code of a step 2b holds fewer bits than the entropy of the rounded values.
    entropy = 0.5 * math.log2(2 * math.pi * math.e) - math.log2(2 * BOUNDS[0])
    assert 32 / ratios[0] > entropy
    for rank in (1, 2, 4):
        assert found[f"powersgd {rank}"].ratio == pytest.approx(256 * 256 / (512 * rank))


def test_powersgd_is_exact_where_gradients_have_its_rank() -> None:
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(2, 128, 2, generator=generator)
    found = measure_codecs([left @ right.mT, torch.randn(128, generator=generator)], ranks=2)
    assert found["powersgd 2"].error < 1e-5
    assert found["powersgd 1"].error > 0.1
    assert found["powersgd 2"].ratio == pytest.approx((128 * 128 + 128) / (256 * 2 + 128))


def test_gradients_of_zeros_and_numbers() -> None:
    found = measure_codecs([torch.zeros(40, 40), torch.tensor(0.0)], ranks=2)
    assert all(codec.error == 0 for codec in found.values())
