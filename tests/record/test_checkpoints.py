"""Exact and compressed checkpoints: what is exact, what is within the bound, what is smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from scadl_core.errors import ConfigError, StreamError
from scadl_core.record.checkpoints import check_bound, read_checkpoint, write_checkpoint

BOUND = 1e-3


def checkpoint(optimizer: str = "AdamW") -> dict[str, Any]:
    torch.manual_seed(0)
    network = torch.nn.Linear(200, 50)
    chosen = {"lr": 0.1, "momentum": 0.9} if optimizer == "SGD" else {"lr": 0.1}
    steps = getattr(torch.optim, optimizer)(network.parameters(), **chosen)
    for _ in range(3):
        network(torch.randn(8, 200)).square().sum().backward()
        steps.step()
    return {
        "state_dict": network.state_dict(),
        "optimizer_states": [steps.state_dict()],
        "scadl": {"app": "x", "facts": {"mean_C": [0.1, float("inf")], "none": None}, "step": 3},
    }


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_weights_are_exact_and_moments_within_the_bound(tmp_path: Path, optimizer: str) -> None:
    stored, sizes = checkpoint(optimizer), []
    for bound in (None, BOUND):
        write_checkpoint(stored, tmp_path / "a.ckpt", bound)
        found = read_checkpoint(tmp_path / "a.ckpt")
        sizes.append((tmp_path / "a.ckpt").stat().st_size)
        assert found["scadl"] == stored["scadl"]
        for name, weight in stored["state_dict"].items():
            torch.testing.assert_close(found["state_dict"][name], weight, rtol=0, atol=0)
        states = [it["optimizer_states"][0]["state"] for it in (stored, found)]
        assert states[0].keys() == states[1].keys()
        for key, state in states[0].items():
            for name, value in state.items():
                other = states[1][key][name]
                if value.dim() == 0 or bound is None:
                    torch.testing.assert_close(other, value, rtol=0, atol=0)
                elif name.endswith("_sq"):
                    assert bool(((other - value).abs() <= BOUND * value.abs()).all())
                else:
                    assert float((other - value).abs().max()) <= BOUND * float(
                        value.max() - value.min()
                    )
    assert sizes[1] < (0.7 if optimizer == "AdamW" else 0.8) * sizes[0]


def test_a_broken_file_is_a_typed_error(tmp_path: Path) -> None:
    write_checkpoint(checkpoint(), tmp_path / "a.ckpt", BOUND)
    whole = (tmp_path / "a.ckpt").read_bytes()
    for cut in (0, 5, len(whole) // 2):
        (tmp_path / "b.ckpt").write_bytes(whole[:cut])
        with pytest.raises(StreamError):
            read_checkpoint(tmp_path / "b.ckpt")


@pytest.mark.parametrize("bound", [0, 1, -1e-3, float("nan"), True, "1e-3"])
def test_what_is_no_bound_is_refused(bound: Any) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.checkpoint_bound: expected null, or a relat"):
        check_bound(bound)
