"""The fixed-size codec: its size, its expectation, and under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scadl_core.compress.blockscaled import (
    BITS,
    dequantise_blocks,
    packed_bytes,
    quantise_blocks,
)
from scadl_core.errors import CodecError


def again(x: Tensor, bits: int, seed: int = 0) -> Tensor:
    return dequantise_blocks(quantise_blocks(x, bits, seed), list(x.shape), x.dtype, bits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", [(), (0, 3), (31,), (5, 7, 11), (64, 64)])
def test_error_is_within_a_step_of_the_block(
    shape: tuple[int, ...], bits: int, dtype: torch.dtype
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    packed = quantise_blocks(x, bits, 3)
    assert packed.numel() == packed_bytes(x.numel(), bits)
    y = again(x, bits, 3)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    flat = torch.nn.functional.pad(x.float().reshape(-1), (0, -x.numel() % 32)).reshape(-1, 32)
    step = flat.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    step = step.expand_as(flat).reshape(-1)[: x.numel()].reshape(shape)
    rounding = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert ((y.float() - x.float()).abs() <= step + rounding * x.float().abs() + 1e-7).all()


@pytest.mark.parametrize("bits", BITS)
def test_the_mean_over_seeds_is_the_element(bits: int) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    seeds = 400
    mean = torch.stack([again(x, bits, seed) for seed in range(seeds)]).mean(0)
    step = x.reshape(-1, 32).abs().amax(1) / (2 ** (bits - 1) - 1)
    # Rounding has at most the variance step^2 / 4; five standard deviations of the mean.
    assert ((mean - x).reshape(-1, 32).abs() <= 5 * step[:, None] / 2 / seeds**0.5).all()


def test_what_is_not_finite_and_what_is_next_to_nothing() -> None:
    x = torch.ones(96)
    x[3], x[40], x[64:] = torch.nan, torch.inf, 1e-45
    y = again(x, 8)
    assert y[:64].isnan().all()
    assert (y[64:].abs() <= 1e-44).all()
    assert torch.equal(again(torch.zeros(50), 2), torch.zeros(50))


@pytest.mark.parametrize("bits", BITS)
def test_opcheck(bits: int) -> None:
    x = torch.randn(3, 50)
    torch.library.opcheck(quantise_blocks, (x, bits, 1))
    packed = quantise_blocks(x, bits, 1)
    torch.library.opcheck(dequantise_blocks, (packed, [3, 50], torch.float32, bits))


def test_compiled() -> None:
    def work(x: Tensor) -> Tensor:
        doubled = x * 2
        packed = quantise_blocks(doubled, 4, 7)
        return dequantise_blocks(packed, list(doubled.shape), doubled.dtype, 4) + 1

    x = torch.randn(40, 30)
    compiled: Any = torch.compile(work, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), work(x))


def test_mistakes() -> None:
    with pytest.raises(CodecError, match="one of"):
        quantise_blocks(torch.zeros(3), 3, 0)
    with pytest.raises(CodecError, match="float64"):
        quantise_blocks(torch.zeros(3, dtype=torch.float64), 4, 0)
    with pytest.raises(CodecError, match="expected 20 bytes"):
        dequantise_blocks(torch.zeros(7, dtype=torch.uint8), [3], torch.float32, 4)
