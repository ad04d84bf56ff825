"""Tensors on the host: the same again, with what is fetched ahead in the account.

Streams and pinned memory need a GPU; the plain copies of a CPU take the same way through the code.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from scadl_core.memory import CompressedActivations
from scadl_core.memory.offload import Mover

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no NVIDIA GPU on this machine")]),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_moved_comes_back_and_the_one_before_is_fetched(device: str) -> None:
    live: list[int] = []
    mover = Mover(torch.device(device), live.append)
    tensors = [torch.randn(8, 3, 5, n + 1, device=device).transpose(1, 3) for n in range(4)]
    moved = [mover.away(tensor) for tensor in tensors]
    assert sum(live) == 0
    for number in reversed(range(4)):
        back = moved[number].restore()
        assert torch.equal(back, tensors[number])
        assert back.stride() == tensors[number].stride()
        assert sum(live) == (tensors[number - 1].nbytes if number else 0)
    assert torch.equal(moved[2].restore(), tensors[2]), "any number of times"


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_whose_tensors_are_moved_is_exact_and_leaks_nothing(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a link so fast that everything is moved."""
    monkeypatch.setattr(Mover, "seconds", lambda self, nbytes: 1e-15 * nbytes)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 4, 3)
    ).to(device)
    image = torch.randn(4, 3, 24, 24, device=device)
    net(image).square().mean().backward()
    exact = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    raw = 4 * 16 * 22 * 22 * 4
    compressed = CompressedActivations(net, budget=raw / 2, smallest=256, every=1)
    for _ in range(4):
        net.zero_grad()
        with compressed:
            loss = net(image).square().mean()
        assert compressed.ledger.peak <= raw / 2
        loss.backward()
        del loss
    assert compressed.control is not None
    assert compressed.control.plan.offload
    assert compressed.ledger.live == 0
    ours = [p.grad for p in net.parameters() if p.grad is not None]
    if not set(compressed.control.leaders.values()) - compressed.control.plan.offload:
        assert all(torch.equal(a, b) for a, b in zip(ours, exact, strict=True))
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02 * float(b.abs().max()))


def test_a_cpu_has_no_other_memory() -> None:
    assert Mover(torch.device("cpu"), print).seconds(1) == math.inf
