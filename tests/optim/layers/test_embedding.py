"""A table against a linear layer of one-hot rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from scadl_core.optim import KFAC


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("shape", [(7,), (4, 5)], ids=str)
def test_factors_and_step(
    shape: tuple[int, ...], padding: int | None, check_factors: Callable[..., KFAC]
) -> None:
    module = nn.Embedding(6, 3, padding_idx=padding)
    entries = torch.randint(6, shape)
    if padding is None:
        check_factors(module, entries, reduced=False, channels_last=True)
    else:  # the oracle does not know that gradients of padding go nowhere
        optimizer = check_padding(module, entries)
        assert optimizer.counters["skipped"] == 0


def check_padding(module: nn.Embedding, entries: torch.Tensor) -> KFAC:
    one_hot = nn.Linear(6, 3, bias=False)
    one_hot.weight.data.copy_(module.weight.data.T)
    rows = torch.nn.functional.one_hot(entries, 6).double()
    rows[entries == module.padding_idx] = 0
    weights = torch.randn(*entries.shape, 3) * (entries != module.padding_idx)[..., None]
    for model, inputs in ((module, entries), (one_hot, rows)):
        optimizer = KFAC(model, torch.optim.SGD(model.parameters(), 1.0), damping=0.2, kl_clip=None,
                         approximation="expand", max_size=5)  # fmt: skip
        (model(inputs) * weights).sum().backward()
        optimizer.step()
    torch.testing.assert_close(module.weight.T, one_hot.weight)
    return optimizer
