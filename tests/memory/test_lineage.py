"""Where a ReLU's output is found again: as it is, padded, joined, enlarged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.compress import Absolute
from scadl_core.memory import CompressedActivations


def around(image: Tensor) -> Tensor:
    """Periodic in the last axis, the first and last row repeated: split and joined again."""
    first, inner, last = image.split([2, image.shape[-1] - 4, 2], -1)
    image = torch.cat([last, first, inner, last, first], -1)
    first, inner, last = image.split([1, image.shape[-2] - 2, 1], -2)
    return torch.cat([first] * 3 + [inner] + [last] * 3, -2)


def beside(image: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(image), image], 1)


def enlarged(image: Tensor) -> Tensor:
    return functional.interpolate(image, scale_factor=2.0, mode="nearest")


def joined_enlarged_and_padded(image: Tensor) -> Tensor:
    return around(torch.cat([enlarged(image), torch.zeros(2, 3, 24, 32)], 1))


def in_another_order(image: Tensor) -> Tensor:
    first, last = image.split([5, image.shape[-1] - 5], -1)
    return torch.cat([last, first], -1)


def smooth(image: Tensor) -> Tensor:
    return functional.interpolate(image, scale_factor=2.0, mode="bilinear")


def half_as_large_again(image: Tensor) -> Tensor:
    return functional.interpolate(image, size=(18, 24), mode="nearest")


class Net(nn.Module):
    def __init__(self, between: Callable[[Tensor], Tensor], in_place: bool) -> None:
        super().__init__()
        channels = between(torch.zeros(2, 8, 12, 16)).shape[1]
        self.first, self.relu = nn.Conv2d(1, 8, 1), nn.ReLU(in_place)
        self.between, self.last = between, nn.Conv2d(channels, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        out: Tensor = self.last(self.between(self.relu(self.first(image))))
        return out


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("between", "found"),
    [
        (lambda it: it, True),
        (around, True),
        (beside, True),
        (enlarged, True),
        (joined_enlarged_and_padded, True),
        (in_another_order, False),
        (smooth, False),
        (half_as_large_again, False),
    ],
)
def test_signs_are_read_where_the_values_are_kept(
    between: Callable[[Tensor], Tensor], found: bool, channels_last: bool, in_place: bool
) -> None:
    torch.manual_seed(0)
    net, image = Net(between, in_place), torch.randn(2, 1, 12, 16)
    if channels_last:
        net, image = net.to(memory_format=torch.channels_last), image.to(
            memory_format=torch.channels_last)  # fmt: skip
    compressed = CompressedActivations(net, bound=Absolute(0.2), smallest=16)

    def gradient(loss: Tensor) -> Tensor:
        net.zero_grad()
        loss.sum().backward()
        assert net.first.bias.grad is not None
        return net.first.bias.grad.clone()

    exact = gradient(net(image))
    with compressed:
        loss = net(image)
    (signs,) = [line for line in compressed.ledger.lines.values() if line.kind == "sign"]
    assert (signs.stored == 0) == found
    alive = compressed.ledger.live
    torch.testing.assert_close(gradient(loss), exact)  # of the first bias: the mask alone
    del loss
    assert compressed.ledger.live == 0 < alive


def test_signs_of_what_is_changed_in_place_later_are_kept() -> None:
    """The values that a convolution keeps are then another tensor's."""
    torch.manual_seed(0)
    first, last, image = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 1, 1), torch.randn(2, 1, 12, 16)
    compressed = CompressedActivations(nn.ModuleList([first, last]), bound=Absolute(0.2))
    with compressed:
        hidden = first(image).relu()
        joined = torch.cat([hidden], 1)
        joined += 1
        last(joined).sum().backward()
    (signs,) = [line for line in compressed.ledger.lines.values() if line.kind == "sign"]
    assert signs.stored > 0
