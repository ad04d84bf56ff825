"""Predicted beside measured errors of a network's gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.memory import CompressedActivations, gradient_errors


def test_each_layer_of_a_network_and_nothing_else_changes() -> None:
    """In a network other layers' errors come on top, which is why the limits are wider above."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Dropout(0.1),
        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 12 * 12, 10),
    )  # fmt: skip
    image_BCHW, label_B = torch.randn(32, 3, 12, 12), torch.randint(0, 10, (32,))

    def forward() -> Tensor:
        return functional.cross_entropy(net(image_BCHW), label_B)

    forward().backward()
    gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    buffers = [b.clone() for b in net.buffers()]
    state = torch.random.get_rng_state()
    compressed = CompressedActivations(net, 0.05, smallest=64)
    for _ in range(3):
        found = gradient_errors(compressed, forward)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(map(torch.equal, [p.grad for p in net.parameters()], gradients))
    assert all(map(torch.equal, net.buffers(), buffers))
    predicted = {e.name: e for e in found if e.predicted == e.predicted}
    assert set(predicted) == {f"{layer}.weight" for layer in (0, 1, 4, 5, 8)}
    for error in predicted.values():
        assert 0.03 < error.predicted < 0.08  # set to a twentieth
        assert 0.7 < error.measured / error.predicted < 1.4


def test_no_error_where_nothing_is_lost() -> None:
    net = nn.Linear(64, 64)
    compressed = CompressedActivations(net, 0, smallest=64)
    leaf = torch.randn(64, 64)
    found = gradient_errors(compressed, lambda: net(leaf).square().sum())
    assert [error.measured for error in found] == [0.0, 0.0]
