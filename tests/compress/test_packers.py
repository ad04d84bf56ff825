"""Lossless packers on the extremes of every type."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scadl_core.compress.packers import pack_bits, pack_integers, pack_signs, unpack
from scadl_core.errors import CodecError

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=20)


@settings(deadline=None)
@given(hnp.arrays(st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64]), SHAPES))
def test_integers(array: NDArray[Any]) -> None:
    again = unpack(pack_integers(array))
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


@settings(deadline=None)
@given(hnp.arrays(np.bool_, SHAPES))
def test_bits(array: NDArray[Any]) -> None:
    packed = pack_bits(array)
    assert packed.nbytes == -(-array.size // 8)
    assert np.array_equal(unpack(packed), array)


def test_the_whole_range_of_int64() -> None:
    ends = np.array([np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max])
    assert np.array_equal(unpack(pack_integers(ends)), ends)


def test_indices_of_a_pool_take_two_bytes_each() -> None:
    image = torch.randn(2, 3, 64, 96)
    _, index = torch.nn.functional.max_pool2d(image, 2, return_indices=True)
    packed = pack_integers(index)
    assert packed.nbytes == index.numel() * 2
    assert torch.equal(unpack(packed), index)


def test_signs_give_the_gradient_of_relu_exactly() -> None:
    x = torch.randn(5, 7, requires_grad=True)
    y = x.relu()
    slope = torch.randn(5, 7)
    (expected,) = torch.autograd.grad(y, x, slope)
    packed = pack_signs(y)
    assert packed.nbytes == 5
    assert torch.equal(slope * unpack(packed), expected)


def test_mistakes() -> None:
    with pytest.raises(CodecError, match="expected booleans, got int64"):
        pack_bits(np.zeros(3, np.int64))
    with pytest.raises(CodecError, match="expected integers, got float64"):
        pack_integers(np.zeros(3))
