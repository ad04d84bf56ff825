"""All networks: no seam, any size, float type and batch; each can fit a batch; their sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from apps.climate.globe import GlobeNetwork
from apps.climate.model import CGNet, DeepLab, Tiramisu, UNet
from scadl_core.errors import ConfigError

SMALL: dict[type[GlobeNetwork], dict[str, object]] = {
    UNet: {"width": 4, "depth": 2},
    CGNet: {"width": 4, "blocks": [2, 2]},
    Tiramisu: {"width": 4, "growth": 4, "layers": [2, 1, 2]},
    DeepLab: {"width": 4, "depth": 2, "blocks": 2, "rates": [2, 3]},
}
EACH = pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)


def network(make: Callable[..., GlobeNetwork] = UNet, **changes: object) -> GlobeNetwork:
    torch.manual_seed(0)
    return make(**{"in_channels": 4, "num_classes": 3, **SMALL[make], **changes})


@pytest.mark.parametrize(("width", "parameters"), [(8, 53_211), (12, 119_127)])
def test_number_of_parameters_is_the_prototypes(width: int, parameters: int) -> None:
    assert sum(weight.numel() for weight in UNet(4, 3, width).parameters()) == parameters


@EACH
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (16, 16), (17, 24), (32, 33)])
@pytest.mark.parametrize("periodic", [True, False])
def test_output_has_the_size_of_the_input(
    make: type[GlobeNetwork], size: tuple[int, int], periodic: bool
) -> None:
    logits_BKHW = network(make, periodic=periodic)(torch.randn(2, 4, *size))
    assert logits_BKHW.shape == (2, 3, *size)
    assert torch.isfinite(logits_BKHW).all()


@EACH
@pytest.mark.parametrize("norm", ["group", "channel", "batch"])
def test_rolling_the_globe_rolls_the_output(make: type[GlobeNetwork], norm: str) -> None:
    net = network(make, norm=norm).double().eval()
    image_BCHW = torch.randn(1, 4, 32, 48, dtype=torch.float64)
    rolled = net(image_BCHW.roll(net.stride, -1)).roll(-net.stride, -1)
    torch.testing.assert_close(rolled, net(image_BCHW))


@pytest.mark.parametrize("depth", [1, 3, 4])
def test_rolling_by_the_stride_of_any_depth(depth: int) -> None:
    net = network(depth=depth).double().eval()
    image_BCHW = torch.randn(1, 4, 32, 48, dtype=torch.float64)
    assert net.stride == 2**depth
    rolled = net(image_BCHW.roll(net.stride, -1)).roll(-net.stride, -1)
    torch.testing.assert_close(rolled, net(image_BCHW))


def test_the_poles_are_not_neighbours() -> None:
    """What is at one pole has no influence at the other, which it would have if rows wrapped."""
    net = network(depth=1, norm="channel").eval()
    image_BCHW = torch.randn(1, 4, 64, 16)
    changed = image_BCHW.clone()
    changed[..., :4, :] += 10
    torch.testing.assert_close(
        net(image_BCHW)[..., -4:, :], net(changed)[..., -4:, :], rtol=0, atol=0
    )
    assert not torch.allclose(net(image_BCHW)[..., :4, :], net(changed)[..., :4, :])


@EACH
def test_periodic_can_be_switched_on_an_existing_network(make: type[GlobeNetwork]) -> None:
    net, regional = network(make), network(make, periodic=False)
    image_BCHW = torch.randn(1, 4, 16, 16)
    assert not torch.allclose(net(image_BCHW), regional(image_BCHW))
    net.periodic = False
    assert net.periodic is False
    torch.testing.assert_close(net(image_BCHW), regional(image_BCHW), rtol=0, atol=0)


@EACH
@pytest.mark.parametrize("norm", ["group", "channel"])
def test_a_map_does_not_depend_on_its_batch(make: type[GlobeNetwork], norm: str) -> None:
    net = network(make, norm=norm).double()
    image_BCHW = torch.randn(4, 4, 16, 24, dtype=torch.float64)
    alone = torch.cat([net(image_BCHW[:1]), net(image_BCHW[1:])])
    torch.testing.assert_close(net(image_BCHW), alone)


@EACH
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_float_types(make: type[GlobeNetwork], dtype: torch.dtype) -> None:
    net = network(make)
    image_BCHW = torch.randn(2, 4, 16, 24)
    expected = net(image_BCHW)
    logits_BKHW = net.to(dtype)(image_BCHW.to(dtype))
    assert logits_BKHW.dtype is dtype
    tolerance = 0.1 if dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(logits_BKHW.float(), expected, rtol=tolerance, atol=tolerance)


@EACH
def test_a_batch_of_noise_is_learnt_by_heart(make: type[GlobeNetwork]) -> None:
    """Labels that nothing but the place tells, as smooth as the coarsest output is."""
    net = network(make, width=8, **({"blocks": [2]} if make is CGNet else {}))
    image_BCHW, noise_BKHW = torch.randn(1, 4, 16, 16), torch.randn(1, 3, 4, 4)
    label_BHW = functional.interpolate(noise_BKHW, scale_factor=4.0, mode="bilinear").argmax(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        logits_BKHW = net(image_BCHW)
        functional.cross_entropy(logits_BKHW, label_BHW).backward()
        optimizer.step()
    assert (logits_BKHW.argmax(1) == label_BHW).float().mean() > 0.95


@EACH
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "model.width: expected a whole number of at least 1, got 0"),
        (
            {"in_channels": True},
            "model.in_channels: expected a whole number of at least 1, got True",
        ),
        ({"norm": "grup"}, "model.norm: expected a known norm, got 'grup'; did you mean 'group'?"),
    ],
)
def test_wrong_arguments_are_named(
    make: type[GlobeNetwork], change: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        network(make, **change)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (UNet, {"depth": 30}, "model.depth: expected at most 8, got 30"),
        (CGNet, {"blocks": [1] * 12}, "model.blocks: expected at most 8 numbers, got 12"),
        (UNet, {"depth": 2.5}, "model.depth: expected a whole number of at least 1, got 2.5"),
        (
            CGNet,
            {"blocks": [3, 0]},
            "model.blocks: expected a list of whole numbers of at least 1, got [3, 0]",
        ),
        (
            Tiramisu,
            {"layers": []},
            "model.layers: expected a list of whole numbers of at least 1, got []",
        ),
        (
            Tiramisu,
            {"layers": 4},
            "model.layers: expected a list of whole numbers of at least 1, got 4",
        ),
        (Tiramisu, {"kernel": 4}, "model.kernel: expected an odd number, got 4"),
        (
            DeepLab,
            {"rates": "6"},
            "model.rates: expected a list of whole numbers of at least 1, got '6'",
        ),
    ],
)
def test_wrong_arguments_of_one_network(
    make: type[GlobeNetwork], change: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        network(make, **change)
    assert str(caught.value) == message


def test_cgnet_has_as_many_parameters_as_climatenets() -> None:
    """Measured on ClimateNet's own, with 4 and with 16 channels."""
    counts = [sum(it.numel() for it in CGNet(C, 3).parameters()) for C in (4, 16)]
    assert counts == [494_232, 518_496]


@pytest.mark.parametrize(
    ("growth", "layers", "millions"),
    [(16, (5,) * 6, 3.5), (16, (4, 5, 7, 10, 12, 15), 9.4)],
    ids=["FC-DenseNet67", "FC-DenseNet103"],
)
def test_tiramisu_has_the_parameters_of_the_paper(
    growth: int, layers: tuple[int, ...], millions: float
) -> None:
    """Against table 1 of the paper, rounded there, and counted by hand."""
    features, total, skips = 48, 9 * 3 * 48, []

    def dense(features: int, count: int) -> int:
        inputs = [features + growth * index for index in range(count)]
        return sum(2 * it + 9 * it * growth for it in inputs)

    for count in layers[:-1]:
        total += dense(features, count)
        features += count * growth
        skips.append(features)
        total += 2 * features + features**2
    total += dense(features, layers[-1])
    new = layers[-1] * growth
    for count, skip in zip(reversed(layers[:-1]), reversed(skips), strict=True):
        total += 9 * new**2 + new + dense(new + skip, count)
        features, new = new + skip + count * growth, count * growth
    total += 11 * (features + 1)
    found = sum(it.numel() for it in Tiramisu(3, 11, 48, growth, layers).parameters())
    assert found == total
    assert found / 1e6 == pytest.approx(millions, rel=0.015)
