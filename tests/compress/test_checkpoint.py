"""Checkpoints: exact by default, within the bound where one is given, and nothing executed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from scadl_core.compress import Absolute, PointwiseRelative, Relative
from scadl_core.compress.checkpoint import load, save
from scadl_core.errors import CodecError, NewerStreamError, StreamError


def trained(steps: int, state: Any = None) -> tuple[nn.Module, torch.optim.Optimizer, float]:
    """A network after some steps of a fixed regression, begun anew or from a state."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    done = 0
    if state is not None:
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["done"]
    loss = torch.zeros(())
    for step in range(done, steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(64, 16, generator=generator)
        loss = (net(x)[:, 0] - (x[:, 0] * x[:, 1]).sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net, optimizer, float(loss.detach())


def state_of(steps: int) -> dict[str, Any]:
    net, optimizer, _ = trained(steps)
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "done": steps}


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [x for key in tree for x in [key, *leaves(tree[key])]]
    if isinstance(tree, list | tuple):
        return [type(tree), *(x for item in tree for x in leaves(item))]
    return [tree]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(type(one) is type(other) and one == other)


def test_exact_by_default(tmp_path: Path) -> None:
    state = state_of(30)
    state["more"] = [None, True, 1.5, float("inf"), (1, "x"), torch.arange(5), {"a": {}}]
    state["half"] = torch.randn(3, 4).bfloat16().t()
    save(state, tmp_path / "c")
    again = load(tmp_path / "c")
    pairs = list(zip(leaves(state), leaves(again), strict=True))
    assert len(pairs) > 60
    assert all(same(one, other) for one, other in pairs)


def test_tensors_that_are_one_stay_one(tmp_path: Path) -> None:
    weight = torch.randn(100, 30)
    save({"a": weight, "b": weight, "c": weight[:50], "d": weight.t()}, tmp_path / "c")
    again = load(tmp_path / "c")
    assert again["a"] is again["b"]
    assert torch.equal(again["c"], weight[:50])
    assert torch.equal(again["d"], weight.t())
    assert (tmp_path / "c").stat().st_size < 2.6 * weight.nbytes + 2000


def test_bounds_by_key(tmp_path: Path) -> None:
    state = state_of(30)
    bounds = {"optimizer.state.*.exp_avg": Relative(1e-3), "*.exp_avg_sq": PointwiseRelative(1e-3)}
    save(state, tmp_path / "packed", bounds)
    save(state, tmp_path / "exact")
    again = load(tmp_path / "packed")
    assert (tmp_path / "packed").stat().st_size < 0.7 * (tmp_path / "exact").stat().st_size
    for index, kept in state["optimizer"]["state"].items():
        found = again["optimizer"]["state"][index]
        spread = kept["exp_avg"].max() - kept["exp_avg"].min()
        assert (found["exp_avg"] - kept["exp_avg"]).abs().max() <= 1e-3 * spread
        ratio = found["exp_avg_sq"] / kept["exp_avg_sq"]
        assert ((ratio - 1).abs()[kept["exp_avg_sq"] > 0] <= 1.001e-3).all()
        assert torch.equal(found["step"], kept["step"])
    weights = zip(state["net"].values(), again["net"].values(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


def test_a_resumed_training_ends_where_the_other_does(tmp_path: Path) -> None:
    bounds = {"*.exp_avg": Relative(1e-3), "*.exp_avg_sq": PointwiseRelative(1e-3)}
    save(state_of(150), tmp_path / "exact")
    save(state_of(150), tmp_path / "packed", bounds)
    _, _, through = trained(300)
    assert trained(300, load(tmp_path / "exact"))[2] == through
    assert trained(300, load(tmp_path / "packed"))[2] == pytest.approx(through, rel=0.02)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(CodecError, match=r"a\.1: .*got set"):
        save({"a": [1, {2}]}, tmp_path / "c")
    with pytest.raises(CodecError, match=r"\*\.momentum matches none of a\.b"):
        save({"a": {"b": torch.zeros(3)}}, tmp_path / "c", {"*.momentum": Absolute(0.1)})
    with pytest.raises(CodecError, match="keys that are texts"):
        save({(1, 2): 3}, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_files_of_strangers(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(StreamError, match="no checkpoint"):
        load(path)
    for tree, message in (
        ({"tensor": "7"}, "tree is damaged"),
        ({"dict": 3}, "tree is damaged"),
        ({}, "tree is damaged"),
        ({"compressed": "0"}, "does not begin"),
    ):
        text = json.dumps({"version": 1, "tree": tree})
        save_file({"0": torch.zeros(9, dtype=torch.uint8)}, path, {"scadl": text})
        with pytest.raises(StreamError, match=message):
            load(path)
    save_file({"0": torch.zeros(3)}, path, {"scadl": json.dumps({"version": 2, "tree": {}})})
    with pytest.raises(NewerStreamError, match="version 2"):
        load(path)
    save_file({"0": torch.zeros(3)}, path)
    with pytest.raises(StreamError, match="tree is damaged"):
        load(path)
