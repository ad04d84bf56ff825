"""Every kind of convolution against the derivative of each of its outputs."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from scadl_core.optim import KFAC

CASES: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = {
    "plain": (nn.Conv2d, (2, 3, 3), {}, (5, 4)),
    "no bias": (nn.Conv2d, (2, 3, 3), {"bias": False}, (4, 4)),
    "padded": (nn.Conv2d, (2, 3, 3), {"padding": (1, 0)}, (4, 5)),
    "strided": (nn.Conv2d, (2, 2, (3, 2)), {"stride": (2, 3), "padding": 1}, (6, 7)),
    "dilated": (nn.Conv2d, (2, 2, 3), {"dilation": (2, 1), "padding": 2}, (5, 5)),
    "same": (nn.Conv2d, (2, 2, (4, 3)), {"padding": "same", "dilation": (1, 2)}, (5, 5)),
    "valid": (nn.Conv2d, (1, 2, 2), {"padding": "valid"}, (4, 3)),
    "circular": (nn.Conv2d, (2, 2, 3), {"padding": (1, 2), "padding_mode": "circular"}, (4, 4)),
    "reflect": (nn.Conv2d, (2, 2, 3), {"padding": 1, "padding_mode": "reflect"}, (4, 4)),
    "replicate": (nn.Conv2d, (1, 2, 3), {"padding": 1, "padding_mode": "replicate"}, (3, 4)),
    "grouped": (nn.Conv2d, (4, 6, 3), {"groups": 2, "padding": 1}, (4, 3)),
    "depthwise": (nn.Conv2d, (3, 6, 3), {"groups": 3, "stride": 2}, (5, 5)),
    "1x1": (nn.Conv2d, (3, 2, 1), {}, (3, 3)),
    "1d": (nn.Conv1d, (2, 3, 3), {"padding": 1, "stride": 2}, (7,)),
    "3d": (nn.Conv3d, (2, 2, 2), {"padding": (0, 1, 0)}, (3, 2, 3)),
    "transposed": (nn.ConvTranspose2d, (2, 3, 3), {"stride": 2, "padding": 1}, (3, 2)),
    "transposed, output padded": (
        nn.ConvTranspose2d, (2, 2, 3),
        {"stride": (3, 2), "padding": (2, 0), "output_padding": 1, "dilation": (1, 2)}, (2, 3),
    ),
    "transposed, grouped": (nn.ConvTranspose1d, (4, 6, 3), {"groups": 2, "stride": 2}, (4,)),
    "transposed, cut": (nn.ConvTranspose1d, (2, 2, 2), {"padding": 2}, (6,)),
    "transposed 3d": (nn.ConvTranspose3d, (1, 2, 2), {"stride": 2}, (2, 1, 2)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("reduced", [True, False], ids=["reduce", "expand"])
@pytest.mark.parametrize("case", CASES)
def test_factors_and_step(case: str, reduced: bool, check_factors: Callable[..., KFAC]) -> None:
    kind, sizes, arguments, shape = CASES[case]
    module = kind(*sizes, **arguments)
    check_factors(module, torch.randn(3, sizes[0], *shape), reduced)


def test_random_positions_are_unbiased(make_plain: Callable[..., KFAC]) -> None:
    module, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(4, 2, 9, 7)
    weights = torch.randn(4, 3, 9, 7)

    def factors(positions: int | None, seed: int) -> list[torch.Tensor]:
        optimizer = make_plain(module, approximation="expand", positions=positions, seed=seed)
        (module(x) * weights).sum().backward()
        optimizer.step()
        optimizer.capture.close()
        (layer,) = optimizer.layers.values()
        return [optimizer.curvature.averages.mean(layer, name) for name in "AG"]

    exact = factors(None, 0)
    drawn = [factors(10, seed) for seed in range(150)]
    for n, value in enumerate(exact):
        mean = torch.stack([d[n] for d in drawn]).mean(0)
        error = (mean - value).norm() / value.norm()
        single = torch.stack([(d[n] - value).norm() / value.norm() for d in drawn]).mean()
        assert error < 3 * single / 150**0.5  # the mean of independent draws tends to the truth
        assert single > 0.05  # and they do differ


def test_a_large_field_needs_no_patches(one_step: Callable[..., KFAC]) -> None:
    """The patches of this layer have 64 * 9 * 768 * 1152 numbers, 2 GB in float32."""
    torch.set_default_dtype(torch.float32)
    module = nn.Conv2d(64, 2, 3, padding=1)
    x = torch.zeros(1, 64, 768, 1152)
    module(x).sum().backward()  # what the layer itself needs is counted before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one_step(module, lambda: module(x).mean())
    one_step(module, lambda: module(x).mean(), approximation="expand", positions=256)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 0.6 * 2**20  # in KiB
