"""Any shape and strides, of both libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scadl_core.compress import Absolute, Relative, decode, encode
from scadl_core.compress.arrays import layout_of
from scadl_core.errors import CodecError


def base() -> torch.Tensor:
    return torch.randn(4, 6, 10, 12, generator=torch.Generator().manual_seed(0))


VIEWS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.permute(3, 1, 0, 2),
    "strided": lambda x: x[:, ::2, 1:, ::3],
    "expanded": lambda x: x[:, :1].expand(4, 50, 10, 12),
    "scalar": lambda x: x[0, 0, 0, 0],
    "scalar_expanded": lambda x: x[0, 0, 0, 0].expand(7, 9),
    "empty": lambda x: x[:, :0],
    "five": lambda x: x.reshape(4, 2, 3, 10, 12),
    "gradient": lambda x: x.clone().requires_grad_(),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("view", VIEWS)
def test_tensors(view: str, dtype: torch.dtype) -> None:
    x = VIEWS[view](base().to(dtype))
    packed = encode(x, Absolute(0.1))
    y = decode(packed)
    assert (y.dtype, y.shape, y.requires_grad) == (x.dtype, x.shape, False)
    assert ((y.double() - x.double()).abs() <= 0.1).all()
    if view not in ("strided", "expanded", "empty"):  # dense in some order, which is kept
        assert y.stride() == x.stride()
    out = torch.full(x.shape, 9.0, dtype=dtype)
    assert decode(packed, out) is out
    assert torch.equal(out, y)


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "gradient"])
def test_numpy(view: str) -> None:
    x = VIEWS[view](base()).numpy()
    packed = encode(x, Absolute(0.1))
    y = decode(packed)
    assert isinstance(y, np.ndarray)
    assert y.shape == x.shape
    assert np.all(np.abs(y - x) <= 0.1)
    assert packed.layout.size == (x.size if "expanded" not in view else x.size // np.prod([
        n for n, s in zip(x.shape, x.strides, strict=True) if s == 0 and n > 1]))  # fmt: skip
    out = np.full(x.shape, 9.0, np.float32)
    assert decode(packed, out) is out
    assert np.array_equal(out, y)


def test_backwards_and_other_byte_order_and_unaligned() -> None:
    x = np.arange(3000, dtype=np.float32)
    assert np.all(np.abs(decode(encode(x[::-1], Absolute(0.1))) - x[::-1]) <= 0.1)
    big = x.astype(">f4")
    assert np.all(np.abs(decode(encode(big, Absolute(0.1))) - x) <= 0.1)
    odd = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32)
    assert np.all(np.abs(decode(encode(odd, Absolute(0.1))) - x) <= 0.1)
    target = np.zeros(12001, np.uint8)[1:].view(np.float32)
    assert np.array_equal(
        decode(encode(x, Absolute(0.1)), target), decode(encode(x, Absolute(0.1)))
    )


def test_an_array_is_decoded_into_the_other_library() -> None:
    x = torch.linspace(0, 1, 5000)
    out = np.empty(5000, np.float32)
    assert decode(encode(x, Relative(1e-3)), out) is out
    assert np.abs(out - x.numpy()).max() <= 1e-3
    target = torch.empty(5000)
    assert decode(encode(x.numpy(), Relative(1e-3)), target) is target
    assert torch.equal(target, torch.from_numpy(out))


def test_axes_of_length_one_do_not_disturb_the_order() -> None:
    assert layout_of((5, 1, 7), (28, 999, 4)).order == (0, 1, 2)
    assert layout_of((1, 4, 3), (4, 4, 16)).order == (2, 0, 1)
    assert layout_of((2, 3), (0, 4)).repeated == (0,)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((2, 5)), "expected float32 of shape"),
        (np.zeros((5, 2), np.float32), "expected float32 of shape"),
        (np.broadcast_to(np.float32(0), (2, 5)), "read-only"),
        ([0.0] * 10, "got list"),
    ],
)
def test_out_that_does_not_fit(out: Any, message: str) -> None:
    packed = encode(np.ones((2, 5), np.float32), Absolute(0.1))
    with pytest.raises(CodecError, match=message):
        decode(packed, out)


def test_a_sparse_tensor_is_refused() -> None:
    with pytest.raises(CodecError, match="dense tensor"):
        encode(torch.eye(3).to_sparse(), Absolute(0.1))


def test_a_tensor_elsewhere_takes_the_way_of_the_cpu_with_one_warning() -> None:
    with pytest.raises(NotImplementedError, match="meta"), pytest.warns(UserWarning, match="meta"):
        encode(torch.empty(3, device="meta"), Absolute(0.1))  # has no values to copy
