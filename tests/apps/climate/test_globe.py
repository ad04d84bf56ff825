"""What networks for the globe are made of, against PyTorch's padding, interpolation and norms."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from apps.climate.globe import ChannelNorm, GlobePad, Zoom


def padded(image_BCHW: Tensor, margin: int, periodic: bool) -> Tensor:
    """PyTorch's own padding, a pixel at a time: it refuses to go around more than once."""
    for _ in range(margin if not periodic else 0):
        image_BCHW = functional.pad(image_BCHW, (1, 1, 0, 0), mode="replicate")
    if periodic:
        columns = torch.arange(-margin, image_BCHW.shape[-1] + margin) % image_BCHW.shape[-1]
        image_BCHW = image_BCHW[..., columns]
    return functional.pad(image_BCHW, (0, 0, margin, margin), mode="replicate")


@given(
    height=st.integers(1, 6),
    width=st.integers(1, 7),
    margin=st.integers(1, 16),
    periodic=st.booleans(),
)
def test_padding_is_circular_in_longitude_and_replicated_at_the_poles(
    height: int, width: int, margin: int, periodic: bool
) -> None:
    pad = GlobePad(margin)
    pad.periodic = periodic
    image_BCHW = torch.randn(2, 3, height, width, dtype=torch.float64, requires_grad=True)
    expected = padded(image_BCHW, margin, periodic)
    torch.testing.assert_close(pad(image_BCHW), expected, rtol=0, atol=0)
    weight = torch.randn_like(expected)
    slopes = [
        torch.autograd.grad((it * weight).sum(), image_BCHW)[0]
        for it in (pad(image_BCHW), expected)
    ]
    torch.testing.assert_close(*slopes)


def test_padding_of_two_columns_and_rows() -> None:
    found = GlobePad()(torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None])[0, 0]
    assert found.tolist() == [[2, 1, 2, 1], [2, 1, 2, 1], [4, 3, 4, 3], [4, 3, 4, 3]]


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_interpolation_is_pytorchs_without_a_seam(factor: int) -> None:
    zoom, image_BCHW = Zoom(factor), torch.randn(2, 3, 4, 6, dtype=torch.float64)
    zoom.pad.periodic = False
    regional = functional.interpolate(image_BCHW, scale_factor=float(factor), mode="bilinear")
    torch.testing.assert_close(zoom(image_BCHW), regional)
    zoom.pad.periodic = True
    rolled = zoom(image_BCHW.roll(3, -1)).roll(-3 * factor, -1)
    torch.testing.assert_close(zoom(image_BCHW), rolled)
    middle = (..., slice(factor, -factor))  # columns without a neighbour across the date line
    torch.testing.assert_close(zoom(image_BCHW)[middle], regional[middle])


def test_channel_norm_is_that_of_each_pixel_alone() -> None:
    image_BCHW = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    norm = ChannelNorm(5).double()
    one = functional.layer_norm(image_BCHW[1, :, 2, 3], (5,), norm.weight, norm.bias)
    torch.testing.assert_close(norm(image_BCHW)[1, :, 2, 3], one)
