"""The network: padding against PyTorch's, no seam, any size, any float type, any batch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from apps.climate.model import GlobePad, UNet
from scadl_core.errors import ConfigError


def network(**changes: object) -> UNet:
    torch.manual_seed(0)
    return UNet(**{"in_channels": 4, "num_classes": 3, "width": 4, **changes})


@pytest.mark.parametrize("periodic", [True, False])
def test_padding_is_circular_in_longitude_and_replicated_at_the_poles(periodic: bool) -> None:
    pad = GlobePad()
    pad.periodic = periodic
    image_BCHW = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    wide = functional.pad(image_BCHW, (1, 1, 0, 0), mode="circular" if periodic else "replicate")
    expected = functional.pad(wide, (0, 0, 1, 1), mode="replicate")
    torch.testing.assert_close(pad(image_BCHW), expected, rtol=0, atol=0)
    weight = torch.randn_like(expected)
    slopes = [
        torch.autograd.grad((padded * weight).sum(), image_BCHW)[0]
        for padded in (pad(image_BCHW), expected)
    ]
    torch.testing.assert_close(*slopes)


def test_padding_of_two_columns_and_rows() -> None:
    padded = GlobePad()(torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None])[0, 0]
    assert padded.tolist() == [[2, 1, 2, 1], [2, 1, 2, 1], [4, 3, 4, 3], [4, 3, 4, 3]]


@pytest.mark.parametrize(("width", "parameters"), [(8, 53_211), (12, 119_127)])
def test_number_of_parameters_is_the_prototypes(width: int, parameters: int) -> None:
    assert sum(weight.numel() for weight in UNet(4, 3, width).parameters()) == parameters


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (16, 16), (17, 24), (32, 33), (96, 144)])
@pytest.mark.parametrize("periodic", [True, False])
def test_output_has_the_size_of_the_input(size: tuple[int, int], periodic: bool) -> None:
    logits_BKHW = network(periodic=periodic)(torch.randn(2, 4, *size))
    assert logits_BKHW.shape == (2, 3, *size)
    assert torch.isfinite(logits_BKHW).all()


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_rolling_the_globe_rolls_the_output(depth: int, norm: str) -> None:
    net = network(depth=depth, norm=norm).double().eval()
    image_BCHW = torch.randn(1, 4, 32, 48, dtype=torch.float64)
    shift = 2**depth
    torch.testing.assert_close(net(image_BCHW.roll(shift, -1)), net(image_BCHW).roll(shift, -1))


def test_the_poles_are_not_neighbours() -> None:
    """What is at one pole has no influence at the other, which it would have if rows wrapped."""
    net = network(depth=1, norm="batch").eval()
    image_BCHW = torch.randn(1, 4, 64, 16)
    changed = image_BCHW.clone()
    changed[..., :4, :] += 10
    torch.testing.assert_close(
        net(image_BCHW)[..., -4:, :], net(changed)[..., -4:, :], rtol=0, atol=0
    )
    assert not torch.allclose(net(image_BCHW)[..., :4, :], net(changed)[..., :4, :])


def test_periodic_can_be_switched_on_an_existing_network() -> None:
    net, regional = network(), network(periodic=False)
    image_BCHW = torch.randn(1, 4, 16, 16)
    assert not torch.allclose(net(image_BCHW), regional(image_BCHW))
    net.periodic = False
    assert net.periodic is False
    torch.testing.assert_close(net(image_BCHW), regional(image_BCHW), rtol=0, atol=0)


def test_a_map_does_not_depend_on_its_batch() -> None:
    net = network().double()
    image_BCHW = torch.randn(4, 4, 16, 24, dtype=torch.float64)
    alone = torch.cat([net(image_BCHW[:1]), net(image_BCHW[1:])])
    torch.testing.assert_close(net(image_BCHW), alone)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_float_types(dtype: torch.dtype) -> None:
    net = network()
    image_BCHW = torch.randn(2, 4, 16, 24)
    expected = net(image_BCHW)
    logits_BKHW = net.to(dtype)(image_BCHW.to(dtype))
    assert logits_BKHW.dtype is dtype
    tolerance = 0.1 if dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(logits_BKHW.float(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 30}, "model.depth: expected at most 8, got 30"),
        ({"width": 0}, "model.width: expected a whole number of at least 1, got 0"),
        ({"depth": 2.5}, "model.depth: expected a whole number of at least 1, got 2.5"),
        (
            {"in_channels": True},
            "model.in_channels: expected a whole number of at least 1, got True",
        ),
        ({"norm": "grup"}, "model.norm: expected a known norm, got 'grup'; did you mean 'group'?"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        network(**change)
    assert str(caught.value) == message
