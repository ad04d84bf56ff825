"""The learning rate, against its formula."""

from __future__ import annotations

import math

import pytest
import torch

from scadl_core.errors import ConfigError
from scadl_core.workflow.schedules import warmup_cosine


def rates(total_steps: int, warmup: float, floor: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    schedule = warmup_cosine(optimizer, total_steps, warmup, floor)
    found = []
    for _ in range(total_steps + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_rises_in_equal_steps_then_follows_half_a_cosine() -> None:
    found = rates(total_steps=20, warmup=0.2, floor=0.1)
    assert found[:4] == pytest.approx([2.0 * n / 5 for n in (1, 2, 3, 4)])
    cosine = [2.0 * (0.1 + 0.9 * (1 + math.cos(math.pi * n / 16)) / 2) for n in range(17)]
    assert found[4:] == pytest.approx(cosine)
    assert found[-1] == pytest.approx(0.2)


def test_without_warmup_it_is_torchs_cosine_annealing() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
    expected = []
    for _ in range(10):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()
    assert rates(total_steps=9, warmup=0.0, floor=0.0) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"warmup": 1.0}, "schedule.warmup: expected a share of the steps in [0, 1), got 1.0"),
        ({"warmup": -0.1}, "schedule.warmup: expected a share of the steps in [0, 1), got -0.1"),
        ({"floor": 1.5}, "schedule.floor: expected a share of the rate in [0, 1], got 1.5"),
    ],
)
def test_other_shares_are_refused(shares: dict[str, float], message: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    with pytest.raises(ConfigError) as caught:
        warmup_cosine(optimizer, 10, **shares)
    assert str(caught.value) == message
