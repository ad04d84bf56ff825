"""What people give to KFAC is used as they meant it, or refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD

from scadl_core.errors import ConfigError
from scadl_core.optim import KFAC


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def step(model: nn.Module, optimizer: KFAC) -> None:
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("damping", it) for it in (-1.0, 0.0, math.nan, math.inf, "0.1", True, None)),
        *(("decay", it) for it in (1.0, 1.5, -0.1, "x")),
        *(("factor_period", it) for it in (0, -3, 2.5, True, None)),
        *(("inverse_period", it) for it in (0, "10")),
        *(("refresh_above", it) for it in (-1, math.nan)),
        *(("burn_in", it) for it in (-1, 1.5)),
        *(("kl_clip", it) for it in (0.0, -1.0, math.nan)),
        *(("positions", it) for it in (0, -2, 1.5)),
        *(("max_size", it) for it in (0, -1, None)),
        *(("lr", it) for it in (-1.0, math.nan, "x")),
        *(("seed", it) for it in ("a", 1.5)),
        *(("approximation", it) for it in ("foo", None)),
        ("fisher", "foo"),
        ("inverse", "foo"),
        ("loss_reduction", "foo"),
        ("fraction", 0.3),
        ("compression", 1.0),
        ("skip", "0"),
        ("skip", ["nosuch"]),
        ("inner", "adam"),
        ("inner", lambda parameters, lr: LBFGS(parameters, lr=lr)),
        ("inner", SGD(nn.Linear(2, 2).parameters(), 0.1)),
    ],
)
def test_what_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        KFAC(perceptron(), **{name: value})
    assert "expected" in str(refused.value) or name in ("skip", "inner")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (perceptron().parameters(), "expected the torch.nn.Module"),
        (perceptron().requires_grad_(False), "no parameter that is trained"),
        (nn.ReLU(), "no parameter that is trained"),
        (nn.LazyLinear(3), "run one batch"),
        (nn.Linear(3, 3, device="meta"), "run one batch"),
    ],
)
def test_what_is_no_model(model: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        KFAC(model)


@pytest.mark.parametrize("name", ["damping", "kl_clip", "factor_period", "inverse_period"])
def test_a_schedule_is_checked_where_it_is_asked(name: str) -> None:
    model = perceptron()
    optimizer = KFAC(model, **{name: lambda at: 3 - at})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"{name} at step 3: expected"):
        for _ in range(12):
            step(model, optimizer)


def test_who_trains_in_evaluation_mode_is_told() -> None:
    model = perceptron().eval()
    optimizer = KFAC(model)
    with pytest.warns(UserWarning, match=r"no layer was seen .* call model.train()"):
        step(model, optimizer)
    sampled = KFAC(model.train(), fisher="sampled")
    with pytest.warns(UserWarning, match=r"call sample_fisher"):
        step(model, sampled)


def test_complex_weights_are_left_to_the_inner_optimizer() -> None:
    optimizer = KFAC(nn.Sequential(nn.Linear(4, 4, dtype=torch.complex64), nn.Linear(4, 2)))
    assert optimizer.coverage.uncovered["0.weight"] == "its weights are complex"
    assert list(optimizer.layers) == ["1"]
