"""Lossless forms against the tensors themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.memory import boxes
from scadl_core.memory.places import narrow_codes, places_of


@given(st.integers(0, 255), st.integers(1, 70))
def test_narrow_codes(largest: int, count: int) -> None:
    codes = torch.randint(0, largest + 1, (count,), dtype=torch.uint8)
    codes[0] = largest
    kept = narrow_codes(codes)
    assert torch.equal(kept.restore(), codes)
    bits = next(b for b in (1, 2, 4, 8) if 2**b > largest)
    assert kept.nbytes == -(-count * bits // 8)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "bits"),
    [(2, 2, 0, 1, 2), (3, 2, 1, 1, 4), (3, 1, 1, 1, 4), (2, 3, 0, 2, 4), (5, 5, 2, 1, 8)],
)
def test_where_a_maximum_lies_takes_a_few_bits(
    kernel: int, stride: int, padding: int, dilation: int, bits: int
) -> None:
    image = torch.randn(3, 5, 31, 47)
    _, index = functional.max_pool2d(image, kernel, stride, padding, dilation, return_indices=True)
    kept = places_of(index, 47)
    assert kept is not None
    assert torch.equal(kept.restore(), index)
    assert kept.rest.nbytes <= -(-index.numel() * bits // 8)
    assert kept.nbytes < index.numel() * 8 / 6


def test_indices_of_adaptive_windows_and_of_any_kind() -> None:
    _, index = functional.adaptive_max_pool2d(
        torch.randn(2, 3, 30, 45), (7, 9), return_indices=True
    )
    kept = places_of(index, 45)
    assert kept is not None
    assert torch.equal(kept.restore(), index)
    assert places_of(torch.randint(0, 10_000, (2, 3, 8, 8)), 100) is None


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_bits(order: torch.memory_format) -> None:
    values = torch.randn(2, 3, 5, 7).to(memory_format=order)
    bits = boxes.bits_of(values, values > 0)
    again = bits.restore()
    assert torch.equal(again, (values > 0).float())
    assert again.stride() == values.stride()
    assert bits.nbytes == -(-2 * 3 * 5 * 7 // 8)


def test_the_bits_of_a_device_are_those_of_the_cpu() -> None:
    """The path for devices, which works on the CPU as well, against NumPy's packing."""
    bits = torch.rand(1001) > 0.5
    packed = boxes.pack_bits_on_device(bits)
    assert packed.numpy().tolist() == boxes.pack_bits(bits).data.tolist()
    assert torch.equal(boxes._unpack_bits(packed, 1001, bits.device), bits)


def test_a_mask_is_zeros_and_one_number() -> None:
    mask = (torch.rand(4, 100) > 0.3) / 0.7
    kept = boxes.mask_of(mask)
    assert kept is not None
    assert torch.equal(kept.restore(), mask)
    assert kept.nbytes == 50
    assert boxes.mask_of(torch.rand(4, 100)) is None
    assert boxes.mask_of(torch.zeros(4, 100)) is None
    assert boxes.mask_of(mask[:, ::2]) is None


@pytest.mark.parametrize(
    "values",
    [
        torch.randint(-5, 200, (40, 30)), torch.randint(0, 9, (40, 30), dtype=torch.int32).t(),
        torch.rand(40, 30) > 0.5, (torch.rand(40, 30) > 0.5).t(),
    ],
)  # fmt: skip
def test_integers(values: Tensor) -> None:
    kept = boxes.integers_of(values)
    again = kept.restore()
    assert torch.equal(again, values)
    assert again.stride() == values.stride()
    assert kept.nbytes <= values.numel()


def test_what_is_dense() -> None:
    values = torch.zeros(4, 6, 5)
    assert boxes.is_dense(values)
    assert boxes.is_dense(values.permute(2, 0, 1))
    assert boxes.is_dense(values[:1])
    assert not boxes.is_dense(values[:, :3])
    assert not boxes.is_dense(values[:1].expand(4, 6, 5))


def test_no_value_of_a_pooling_layers_input_is_read() -> None:
    """Which is why its shape is enough; each layer, against its own gradient."""
    from scadl_core.memory import CompressedActivations

    layers = [
        nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(5), nn.AdaptiveMaxPool2d(5),
    ]  # fmt: skip
    for layer in layers:
        for order in (torch.contiguous_format, torch.channels_last):
            image = torch.rand(2, 8, 17, 23).to(memory_format=order)
            exact = torch.autograd.functional.vjp(layer, image, torch.ones_like(layer(image)))[1]
            leaf = image.clone(memory_format=torch.preserve_format).requires_grad_()
            compressed = CompressedActivations(layer, smallest=16)
            with compressed:
                output = layer(leaf)
            assert compressed.ledger.live < 0.1 * compressed.ledger.live_raw
            output.sum().backward()
            assert torch.equal(leaf.grad, exact)
