"""Tiles against the whole field, whatever the network, the sizes and the edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from apps.climate.globe import GlobeNetwork
from apps.climate.model import CGNet, DeepLab, Tiramisu, UNet
from scadl_core.errors import ConfigError
from scadl_core.memory import AliveBytes
from scadl_core.workflow.tiles import FieldMean, FieldNorm, Tiles, enlarged

NETWORKS: dict[str, Callable[..., GlobeNetwork]] = {
    "unet": lambda **how: UNet(2, 3, 4, depth=2, **how),
    "cgnet": lambda **how: CGNet(2, 3, 4, blocks=[2], **how),
    "tiramisu": lambda **how: Tiramisu(2, 3, 4, growth=4, layers=[1, 2], **how),
    "deeplab": lambda **how: DeepLab(2, 3, 4, depth=2, blocks=1, rates=[1, 2], **how),
}
EACH = pytest.mark.parametrize("name", NETWORKS)


def whole(network: nn.Module, field_CHW: Tensor) -> Tensor:
    with torch.no_grad():
        return network(field_CHW[None])[0]


def tiled(tiles: Tiles, field_CHW: Tensor, scale: int = 1) -> Tensor:
    """Puts pieces together; each pixel must come once."""
    height, width = field_CHW.shape[1:]
    pieces = list(tiles(lambda rows, columns: field_CHW[:, rows, columns], height, width))
    shape = (len(pieces[0][2]), height * scale, width * scale)
    output_KHW, times_HW = torch.full(shape, torch.nan).to(field_CHW), torch.zeros(shape[1:])
    for rows, columns, piece_KHW in pieces:
        output_KHW[:, rows, columns] = piece_KHW
        times_HW[rows, columns] += 1
    assert (times_HW == 1).all()
    return output_KHW


def made(name: str, dtype: torch.dtype = torch.float64, **how: object) -> GlobeNetwork:
    torch.manual_seed(0)
    return NETWORKS[name](**how).to(dtype).eval()


@EACH
@settings(max_examples=12, deadline=None)
@given(
    tile=st.integers(1, 80),
    height=st.integers(1, 75),
    width=st.integers(1, 90),
    periodic=st.booleans(),
    norm=st.sampled_from(["group", "channel", "batch"]),
)
def test_tiles_equal_the_whole_field(
    name: str, tile: int, height: int, width: int, periodic: bool, norm: str
) -> None:
    """In float64, where nothing hides in rounding; also where the stride divides no size."""
    network = made(name, periodic=periodic, norm=norm)
    field_CHW = 3 + 5 * torch.randn(2, height, width, dtype=torch.float64)
    if tile < 8:
        field_CHW = field_CHW[:, :30, :40]  # many tiles
    found_KHW = tiled(Tiles(network, 2, tile), field_CHW)
    torch.testing.assert_close(found_KHW, whole(network, field_CHW), rtol=1e-9, atol=1e-9)
    assert network.periodic is periodic


@EACH
@pytest.mark.parametrize("periodic", [True, False])
def test_probabilities_in_float32_equal_to_1e_5(name: str, periodic: bool) -> None:
    network = made(name, torch.float32, periodic=periodic)
    field_CHW = torch.randn(2, 101, 147)
    tiles = Tiles(network, 2, 40)
    found_KHW = tiled(tiles, field_CHW)
    expected_KHW = whole(network, field_CHW)
    torch.testing.assert_close(found_KHW.softmax(0), expected_KHW.softmax(0), rtol=0, atol=1e-5)
    torch.testing.assert_close(found_KHW, expected_KHW, rtol=1e-5, atol=1e-5)


def test_the_date_line_is_inside_a_tile_as_any_other_place() -> None:
    """Turning the field by strides turns the result, so the line is nowhere."""
    network = made("unet")
    field_CHW = torch.randn(2, 48, 96, dtype=torch.float64)
    turned_CHW = tiled(Tiles(network, 2, 12), field_CHW.roll(20, -1)).roll(-20, -1)
    torch.testing.assert_close(turned_CHW, whole(network, field_CHW), rtol=1e-9, atol=1e-9)


class Attention(nn.Module):
    """Channel attention (Zhang et al. 2018, arXiv:1807.02758)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sequential(FieldMean(), nn.Conv2d(8, 8, 1), nn.Sigmoid())

    def forward(self, image_BCHW: Tensor) -> Tensor:
        return image_BCHW * self.gate(image_BCHW)


@pytest.mark.parametrize("scale", [2, 4])
def test_networks_that_enlarge(scale: int) -> None:
    """As for super-resolution: zero padding, pixel shuffle, no stride; a layer met twice."""
    torch.manual_seed(0)
    attention = Attention()
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), attention, nn.Conv2d(8, 8, 5, padding=2),
        attention, nn.Conv2d(8, 2 * scale**2, 3, padding=1), nn.PixelShuffle(scale),
    ).double()  # fmt: skip
    field_CHW = torch.randn(3, 41, 57, dtype=torch.float64)
    tiles = Tiles(network, 3, 10)
    assert tiles.margins == (4, 4)
    found_KHW = tiled(tiles, field_CHW, scale)
    torch.testing.assert_close(found_KHW, whole(network, field_CHW), rtol=1e-9, atol=1e-9)


def conv(kernel: int | Sequence[int], **how: int) -> nn.Conv2d:
    return nn.Conv2d(1, 1, tuple(kernel) if isinstance(kernel, Sequence) else kernel, **how)


class Halves(nn.Sequential):
    stride = 2


@pytest.mark.parametrize(
    ("network", "margins"),
    [
        (nn.Sequential(conv(1)), (0, 0)),
        (nn.Sequential(conv(3, padding=1), nn.ReLU(), conv(3, padding=1)), (2, 2)),
        (nn.Sequential(nn.Conv2d(1, 1, (1, 7), padding=(0, 3))), (0, 3)),
        (nn.Sequential(conv(3, padding=4, dilation=4), conv(5, padding=2)), (6, 6)),
        # An output of the pair (2i, 2i + 1) sees the pairs i - 1 to i + 1: up to 3 pixels, so 4.
        (Halves(nn.MaxPool2d(2), conv(3, padding=1), nn.Upsample(scale_factor=2)), (4, 4)),
        # Within the pair alone: a pixel, rounded up to the stride.
        (Halves(nn.MaxPool2d(2), conv(1), nn.Upsample(scale_factor=2)), (2, 2)),
    ],
)
def test_receptive_field_of_stacks_counted_by_hand(
    network: nn.Module, margins: tuple[int, int]
) -> None:
    assert Tiles(network, 1).margins == margins


def test_receptive_field_of_the_unet_is_that_of_its_layers() -> None:
    """Of depth 1: from pixel 2i by two convolutions to 2i + 2, in the pair i + 1; by two coarse
    ones to the pair i + 3, so to the pixel 2i + 7; by two to 2i + 9. The next even number is 10.
    """
    assert Tiles(UNet(1, 2, 4, depth=1), 1).margins == (10, 10)


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.GroupNorm(1, 2), r"1 \(GroupNorm\)"),
        (nn.InstanceNorm2d(2), r"1 \(InstanceNorm2d\)"),
        (nn.AdaptiveAvgPool2d(1), r"1 \(AdaptiveAvgPool2d\)"),
        (nn.BatchNorm2d(2).train(), r"1 \(BatchNorm2d\)"),
    ],
)
def test_what_sees_the_whole_field_otherwise_is_refused_by_name(
    layer: nn.Module, named: str
) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), layer)
    field_CHW = torch.randn(1, 40, 40)
    if not isinstance(layer, nn.AdaptiveAvgPool2d):  # a single tile is the network itself
        expected_KHW = whole(network, field_CHW)
        torch.testing.assert_close(tiled(Tiles(network, 1, 40), field_CHW), expected_KHW)
    with pytest.raises(ConfigError, match=f"model: {named} depends on the whole field"):
        tiled(Tiles(network, 1, 8), field_CHW)


def test_field_norm_is_group_norm() -> None:
    norm, peer = FieldNorm(2, 6).double(), nn.GroupNorm(2, 6).double()
    assert norm.state_dict().keys() == peer.state_dict().keys()
    with torch.no_grad():
        peer.weight.uniform_()
        peer.bias.uniform_()
    norm.load_state_dict(peer.state_dict())
    field_BCHW = 100 + torch.randn(3, 6, 7, 5, dtype=torch.float64)
    expected_BCHW = peer(field_BCHW)
    assert torch.equal(norm(field_BCHW), expected_BCHW)
    powers_2BCHW = torch.stack([field_BCHW, field_BCHW**2])
    norm.moments = lambda _: powers_2BCHW.mean((3, 4), keepdim=True)
    torch.testing.assert_close(norm(field_BCHW), expected_BCHW, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(norm.float()(field_BCHW.float()).double(), expected_BCHW,
                               rtol=1e-5, atol=1e-5)  # fmt: skip


def test_reading_goes_by_windows_within_the_field() -> None:
    """Slices alone, so that a file can be read; none larger than a tile and its margins."""
    network, asked = made("unet", norm="channel"), []
    field_CHW = np.random.default_rng(0).standard_normal((2, 301, 203))

    def read(rows: slice, columns: slice) -> Tensor:
        asked.append((rows, columns))
        return torch.from_numpy(field_CHW[:, rows, columns])

    tiles = Tiles(network, 2, 16)
    for _ in tiles(read, 301, 203):
        break
    for rows, columns in asked:
        assert 0 <= rows.start < rows.stop <= 301
        assert 0 <= columns.start < columns.stop <= 203
        assert rows.stop - rows.start <= 16 + 2 * tiles.margins[0]
        assert columns.stop - columns.start <= 16 + 2 * tiles.margins[1]


@pytest.mark.parametrize(("share", "pieces"), [(1.01, range(1, 2)), (0.5, range(2, 99))])
def test_tiles_are_chosen_by_memory(share: float, pieces: range) -> None:
    network = made("unet", torch.float32, norm="channel")
    field_CHW = torch.randn(2, 200, 304)
    memory_bytes = share * Tiles(network, 2).bytes_per_pixel * 200 * 304
    tiles = Tiles(network, 2, memory_GiB=memory_bytes / 2**30)
    with AliveBytes() as alive:
        found = sum(1 for _ in tiles(lambda r, c: field_CHW[:, r, c], 200, 304))
    assert found in pieces
    assert alive.most <= 1.1 * memory_bytes


@pytest.mark.parametrize("stride", [1, 4])
def test_enlarged_goes_around_or_repeats_the_last(stride: int) -> None:
    expected = {1: ([0, 1, 2], [0, 1, 2]), 4: ([0, 1, 2] * 2 + [0, 1], [0, 1, 2, 2, 2, 2, 2, 2])}
    assert enlarged(3, stride, True).tolist() == expected[stride][0]
    assert enlarged(3, stride, False).tolist() == expected[stride][1]


@pytest.mark.parametrize("tile", [0, -3, 2.5, True, "large"])
def test_a_tile_is_some_pixels(tile: object) -> None:
    with pytest.raises(ConfigError, match=r"^predict.tile: expected null or a whole number of"):
        Tiles(nn.Identity(), 1, tile)


def test_memory_is_more_than_none() -> None:
    with pytest.raises(ConfigError, match=r"^predict.memory_GiB: expected more than 0, got 0$"):
        Tiles(nn.Identity(), 1, None, 0)


def test_only_wanted_tiles_are_computed_and_means_are_still_of_all() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), Centred()).double().eval()
    field_CHW = torch.randn(2, 40, 40, dtype=torch.float64)
    asked: list[tuple[int, int]] = []

    def wanted(rows: slice, columns: slice) -> bool:
        asked.append((rows.start, columns.start))
        return len(asked) % 3 == 1

    expected_KHW, tiles = whole(network, field_CHW), Tiles(network, 2, 16)
    found = list(tiles(lambda rows, columns: field_CHW[:, rows, columns], 40, 40, wanted))
    assert asked == [(row, column) for row in (0, 16, 32) for column in (0, 16, 32)]
    assert [(rows.start, columns.start) for rows, columns, _ in found] == [(0, 0), (16, 0), (32, 0)]
    for rows, columns, piece_KHW in found:
        torch.testing.assert_close(piece_KHW, expected_KHW[:, rows, columns])


class Centred(nn.Module):
    """Less its mean over the field."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = FieldMean()

    def forward(self, field_BCHW: Tensor) -> Tensor:
        return field_BCHW - self.mean(field_BCHW)
