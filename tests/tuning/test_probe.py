"""What is measured is what a law says, and the cache gives the same back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scadl_core.admm.steptime import Link
from scadl_core.comm import World
from scadl_core.tuning import Machine
from scadl_core.tuning.probe import cache_folder, fit_link, measure, probe

CPU = torch.device("cpu")


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_link_is_found_from_two_all_reduces(ranks: int) -> None:
    truth = Machine(ranks=ranks, link=Link(3e-4, 2e7))
    points = [(size, truth.all_reduce(size)) for size in (1024.0, 4e6)]
    found = fit_link(points[0], points[1], ranks)
    assert found.latency == pytest.approx(3e-4)
    assert found.bandwidth == pytest.approx(2e7)


def test_two_ranks_measure_the_same_machine(run_ranks: Callable[..., list[Any]]) -> None:
    first, second = run_ranks(2, lambda: measure(World.start(), CPU).to_json())
    assert first == second
    machine = Machine.from_json(first)
    assert (machine.ranks, machine.ranks_per_node, machine.nodes) == (2, 2, 1)
    # Loopback on any machine: between a modem and memory.
    for link in (machine.local, machine.pair):
        assert 1e5 < link.bandwidth < 1e12
        assert 1e-9 <= link.latency < 1
    assert machine.link == Link()  # there is one node


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = probe(World(), CPU)
    assert first.matmul > 1e8 and first.invert(768) > first.invert(64) > 0
    assert probe(World(), CPU) == first
    (path,) = cache_folder().glob("*.json")
    stored = json.loads(path.read_text())
    assert stored["version"] == 1
    # Another version, or a file that is none, is measured again.
    for text in (json.dumps({**stored, "version": 0}), "{", '{"version": 1, "machine": {}}'):
        path.write_text(text)
        assert probe(World(), CPU).ranks == 1
        assert json.loads(path.read_text())["version"] == 1


def test_a_cache_that_cannot_be_written_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert probe(World(), CPU).ranks == 1


def test_hosts_of_one_name_are_told_apart(run_ranks: Callable[..., list[Any]]) -> None:
    """As network namespaces are: each rank says that its host has one."""

    def run() -> dict[str, Any]:
        os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}
        return measure(World.start(), CPU).to_json()

    machine = Machine.from_json(run_ranks(2, run)[0])
    assert (machine.ranks_per_node, machine.nodes) == (1, 2)
    assert machine.local == Link()  # nobody else is on the node, whose link is the rank's own
    assert 1e5 < machine.link.bandwidth < 1e12
