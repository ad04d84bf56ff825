"""Sizes that no network can have are refused by their keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from apps.graphs.model import SIGN, GraphAugmentedMLP, Hedge, HopAttention, MessagePassing
from apps.graphs.task import NodeTask
from scadl_core.comm import World
from scadl_core.errors import ConfigError

OF_HOPS = (GraphAugmentedMLP, SIGN, Hedge, HopAttention)


@pytest.mark.parametrize("kind", OF_HOPS)
@pytest.mark.parametrize(
    ("name", "size"),
    [("hops", -1), ("hops", 65), ("hops", 1.5), ("width", 0), ("depth", 0), ("depth", 10**9)],
)
def test_sizes_of_networks_on_hops(kind: Any, name: str, size: Any) -> None:
    with pytest.raises(ConfigError, match=rf"model.{name}: expected a whole number from \d.*got"):
        kind(8, 3, **{name: size})


@pytest.mark.parametrize(("name", "size"), [("width", -1), ("depth", 0), ("heads", True)])
def test_sizes_of_message_passing(name: str, size: Any) -> None:
    with pytest.raises(ConfigError, match=f"model.{name}: expected a whole number from 1"):
        MessagePassing(8, 3, **{name: size})


@pytest.mark.parametrize("kind", OF_HOPS)
def test_other_hops_than_the_data_have(kind: Any) -> None:
    network = kind(8, 3, hops=4, width=4)
    assert network(torch.zeros(5, 5, 8)).shape[0] == 5
    with pytest.raises(ConfigError, match=r"data.hops=2: the network takes model.hops=4"):
        network(torch.zeros(5, 3, 8))


@pytest.mark.parametrize("how", ["invers", [1, 2], None])
def test_no_such_weights_of_classes(how: Any) -> None:
    facts = {"kind": "classes", "classes": ["a"], "rms_K": [1.0], "count_C": [1.0]}
    network = GraphAugmentedMLP(2, 1, 0)
    with pytest.raises(ConfigError, match=r"task.class_weights: got .*; (there is|did you mean)"):
        NodeTask("auto", how, {}, None, network=network, facts=facts, world=World(), seed=0)
