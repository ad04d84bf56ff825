"""A codec of fixed size that can be traced: block-scaled integers, as torch custom ops.

Every block of 32 elements shares one scale, its largest magnitude; the elements become integers of
2, 4 or 8 bits with stochastic rounding, so that the expected decoded value is the element (Chen et
al. 2021, ActNN, arXiv:2104.14129). Sizes depend on shapes alone, which is what ``torch.compile``
needs; the error is within one step of the block, and not a bound that a user sets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scadl_core.errors import CodecError

BLOCK = 32
BITS = (2, 4, 8)


def packed_bytes(size: int, bits: int) -> int:
    """Bytes of :func:`quantise_blocks` for ``size`` elements: codes, and a float32 a block."""
    blocks = -(-size // BLOCK)
    return blocks * (BLOCK * bits // 8 + 4)


@torch.library.custom_op("scadl::quantise_blocks", mutates_args=())
def quantise_blocks(array: Tensor, bits: int, seed: int) -> Tensor:
    """Packs a float tensor.

    Args:
        array: float16, bfloat16 or float32, any shape; a block with NaN or infinity decodes to NaN.
        bits: 2, 4 or 8.
        seed: Of the rounding; the same seed gives the same bytes on every device.

    Returns:
        uint8, 1-D, :func:`packed_bytes` long: per block its float32 scale, then its codes.

    Raises:
        CodecError: Other bits or another type.
    """
    if bits not in BITS:
        raise CodecError(f"bits: expected one of {BITS}, got {bits}")
    if array.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise CodecError(f"expected float16, bfloat16 or float32, got {array.dtype}")
    if array.numel() == 0:
        return array.new_empty(0, dtype=torch.uint8)
    blocks = _blocks(array.float().reshape(-1))
    scale = blocks.abs().amax(dim=1, keepdim=True)
    levels = float(2 ** (bits - 1) - 1)
    finite = scale.isfinite()
    steps = torch.where(scale > 0, levels / scale, 0.0)
    # A subnormal scale has no finite inverse; then the block is too small to tell from zero.
    steps = torch.where(steps.isfinite() & finite, steps, 0.0)
    noise = _noise(blocks.numel(), seed, array.device).reshape(blocks.shape)
    codes = torch.floor(torch.where(finite, blocks, 0.0) * steps + noise).clamp(-levels, levels)
    packed = _pack_codes((codes + levels).to(torch.uint8), bits)
    kept = torch.where(finite, scale, torch.nan)
    return torch.cat([kept.view(torch.uint8), packed], dim=1).reshape(-1)


@torch.library.custom_op("scadl::dequantise_blocks", mutates_args=())
def dequantise_blocks(packed: Tensor, shape: list[int], dtype: torch.dtype, bits: int) -> Tensor:
    """Inverse of :func:`quantise_blocks`.

    Args:
        packed: What it returned.
        shape: Of the tensor.
        dtype: Of the tensor.
        bits: As they were.

    Returns:
        Contiguous tensor.

    Raises:
        CodecError: ``packed`` has another size than that shape needs.
    """
    size = math.prod(shape)
    if packed.numel() != packed_bytes(size, bits):
        expected = packed_bytes(size, bits)
        raise CodecError(f"expected {expected} bytes for {shape}, got {packed.numel()}")
    if size == 0:
        return packed.new_empty(shape, dtype=dtype)
    rows = packed.reshape(-(-size // BLOCK), BLOCK * bits // 8 + 4)
    scale = rows[:, :4].contiguous().view(torch.float32)
    levels = float(2 ** (bits - 1) - 1)
    codes = _unpack_codes(rows[:, 4:], bits).float() - levels
    return (codes * (scale / levels)).reshape(-1)[:size].reshape(shape).to(dtype)


@quantise_blocks.register_fake
def _(array: Tensor, bits: int, seed: int) -> Tensor:
    return array.new_empty(packed_bytes(array.numel(), bits), dtype=torch.uint8)


@dequantise_blocks.register_fake
def _(packed: Tensor, shape: list[int], dtype: torch.dtype, bits: int) -> Tensor:
    return packed.new_empty(shape, dtype=dtype)


def _blocks(flat: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(flat, (0, -flat.numel() % BLOCK))
    return padded.reshape(padded.numel() // BLOCK, BLOCK)


def _noise(size: int, seed: int, device: torch.device) -> Tensor:
    """Uniform in [0, 1) from a hash of the index: MurmurHash3's finaliser in int64."""
    value = torch.arange(size, dtype=torch.int64, device=device) ^ (seed & 0xFFFFFFFF)
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return ((value ^ (value >> 16)) >> 8).float() * 2.0**-24


def _pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Codes of a block side by side: the first in the lowest bits."""
    parts = codes.reshape(codes.shape[0], BLOCK * bits // 8, 8 // bits)
    packed = parts[..., 0].clone()
    for place in range(1, 8 // bits):
        packed |= parts[..., place] << (bits * place)
    return packed


def _unpack_codes(packed: Tensor, bits: int) -> Tensor:
    places = [(packed >> (bits * place)) & (2**bits - 1) for place in range(8 // bits)]
    return torch.stack(places, dim=-1).reshape(packed.shape[0], BLOCK)
