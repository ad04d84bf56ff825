"""A network is described as it is: sizes by hand, times that the model gives back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scadl_core.comm import World
from scadl_core.tuning.describe import Batch, _line, describe


def described(samples: int, smaller: int) -> tuple[nn.Module, object]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))

    def batch(count: int) -> Batch:
        image = torch.randn(count, 3, 8, 8)

        def loss() -> Tensor:
            return net(image).square().mean()

        return Batch(count, loss)

    optimizer = torch.optim.Adam(net.parameters())
    return net, describe(net, [batch(samples), batch(smaller)], optimizer, World(), steps=2)


def test_sizes() -> None:
    _, found = described(16, 8)
    assert found.shapes == ((8, 27), (8, 0), (10, 512), (10, 0))
    assert found.elements == 8 * 27 + 8 + 5120 + 10
    assert found.state == pytest.approx(2.0, abs=0.01)  # of Adam
    conv, linear = found.blocks
    assert (conv.inputs, conv.outputs, conv.elements) == (28, 8, 28 * 8)  # with the bias
    assert (linear.inputs, linear.outputs, linear.rows) == (513, 10, 1.0)
    assert conv.nbytes == 4 * 8 * 8 * 8 and linear.nbytes == 40
    # Forward and gradient of weights of both, and of the input of the second.
    products = 2 * (2 * 8 * 27 * 64) + 3 * (2 * 512 * 10)
    assert found.flops == pytest.approx(products)
    # The input of each product, and what a ReLU returns, is kept: images 192, maps 512 floats.
    assert 4 * (192 + 512) <= found.saved <= 4 * (192 + 3 * 512 + 20)
    assert set(found.codecs) >= {"off", "bf16", "quantised", "compressed 1", "powersgd 1"}
    assert found.seconds(16) > 0 and 0 < found.forward < 1


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([(8, 1.0), (4, 0.6)], (0.2, 0.1)),
        ([(8, 1.0)], (0.0, 0.125)),
        ([(8, 1.0), (8, 0.9)], (0.0, 0.125)),
        ([(8, 1.0), (4, 1.2)], (1.0, 0.0)),  # noise: less for more
        ([(8, 1.0), (4, 0.1)], (0.0, 0.125)),  # nothing is less than nothing
    ],
)
def test_the_line_through_two_batches(
    points: list[tuple[int, float]], line: tuple[float, float]
) -> None:
    assert _line(points) == pytest.approx(line)
