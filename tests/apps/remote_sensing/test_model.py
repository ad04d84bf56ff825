"""Networks: they begin as interpolation, are what their stages are, and tiles do not show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from apps.remote_sensing.model import EDSR, RCAN, bicubic
from apps.remote_sensing.swinir import SwinIR
from scadl_core.errors import ConfigError
from scadl_core.workflow.tiles import Tiles
from tests.apps.remote_sensing.conftest import smooth

KINDS: dict[str, Any] = {
    "edsr": lambda c, s: EDSR(c, s, width=4, blocks=2),
    "rcan": lambda c, s: RCAN(c, s, width=4, groups=2, blocks=1, reduction=2),
    "swinir": lambda c, s: SwinIR(c, s, width=4, depths=[2], heads=2, window=4),
}
EACH = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, channels: int = 2, scale: int = 2, awake: bool = True) -> nn.Module:
    torch.manual_seed(1)
    network = KINDS[kind](channels, scale)
    if awake:  # the last layer is 0 at first
        for name, parameter in network.named_parameters():
            if name.startswith("up"):
                nn.init.normal_(parameter, std=0.2)
    return network.eval()


@EACH
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_a_network_begins_as_interpolation_of_any_number_of_bands(kind: str, scale: int) -> None:
    for channels in (1, 5):
        image = torch.rand(2, channels, 9, 14)
        with torch.no_grad():
            found = made(kind, channels, scale, awake=False)(image)
        assert found.shape == (2, channels, 9 * scale, 14 * scale)
        torch.testing.assert_close(found, bicubic(image, scale), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["edsr", "rcan"])
def test_stages_are_the_network(kind: str) -> None:
    network, image = made(kind), torch.rand(2, 2, 8, 8)
    state: Any = image
    for stage in network.stages():  # type: ignore[operator]
        state = stage(state)
    torch.testing.assert_close(state, network(image), atol=1e-6, rtol=0)
    own = {id(p) for stage in network.stages() for p in stage.parameters()}  # type: ignore[operator]
    assert own == {id(p) for p in network.parameters()}


def test_recomputed_blocks_give_the_same_gradients() -> None:
    image = torch.rand(1, 2, 8, 8)
    slopes = []
    for recompute in (False, True):
        torch.manual_seed(0)
        network = EDSR(2, 2, width=4, blocks=3, recompute=recompute)
        nn.init.normal_(network.up[-1].weight)
        network(image).square().sum().backward()
        slopes.append([p.grad for p in network.parameters()])
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other)


@EACH
@pytest.mark.parametrize(
    ("shape", "tile"), [((37, 53), 12), ((64, 48), 29), ((1, 61), 12), ((45, 1), 12)]
)
def test_tiles_equal_the_whole_image(kind: str, shape: tuple[int, int], tile: int) -> None:
    network = made(kind)
    image = torch.from_numpy(smooth(4, 2, *shape))
    with torch.no_grad():
        whole = network(image[None])[0]
    tiled, tiles = torch.full_like(whole, torch.nan), Tiles(network, 2, tile)
    count = 0
    for rows, columns, part in tiles(lambda r, c: image[:, r, c], *shape):
        tiled[:, rows, columns] = part
        count += 1
    assert count > 1 or tile > 12  # with their margins, larger ones may be as large as the image
    torch.testing.assert_close(tiled, whole, atol=1e-5, rtol=0)


def test_moved_windows_keep_opposite_edges_apart() -> None:
    network = made("swinir", 1)
    image = torch.rand(1, 1, 16, 16, requires_grad=True)
    output = network(image)
    (slope,) = torch.autograd.grad(output[0, 0, 0, :].sum(), image)
    assert slope[0, 0, 0].abs().max() > 0
    assert slope[0, 0, -3:].abs().max() < 1e-40  # exp(-100), squared


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (EDSR, {"width": 0}),
        (RCAN, {"groups": True}),
        (SwinIR, {"width": 7}),
        (SwinIR, {"window": 5}),
        (SwinIR, {"depths": []}),
    ],
)
def test_sizes_that_do_not_fit_are_refused(kind: Any, words: dict) -> None:
    with pytest.raises(ConfigError, match=r"model\."):
        kind(3, 2, **words)


def test_sizes_of_the_published_networks() -> None:
    def count(network: nn.Module) -> float:
        return sum(p.numel() for p in network.parameters()) / 1e6

    # For 3 bands, x4: Lim et al. 2017, table 1: 1.5 M and 43 M; Liang et al. 2021, table 3: 897 K,
    # which is one convolution less than its text and figure have.
    assert count(EDSR(3, 4, width=64, blocks=16)) == pytest.approx(1.5, abs=0.05)
    assert count(EDSR(3, 4, width=256, blocks=32)) == pytest.approx(43, abs=0.2)
    assert count(SwinIR(3, 4)) == pytest.approx(0.897 + 0.0325, abs=0.001)
    rcan = RCAN(3, 4, width=64, groups=10, blocks=20, reduction=16)  # Zhang et al. 2018: 16 M
    assert count(rcan) == pytest.approx(15.6, abs=0.1)
