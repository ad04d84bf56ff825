"""How Lightning's Trainer is told to exchange gradients."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from scadl_core.comm import World
from scadl_core.errors import ConfigError
from scadl_core.workflow.gradient import GradientSolver, placement


@pytest.mark.parametrize(("bucket", "given"), [(25.0, None), (5.0, 5.0)])
def test_the_size_of_a_bucket(bucket: float, given: float | None) -> None:
    world = World(0, 2, local_size=2)
    found: dict[str, Any] = placement(world, functools.partial(dict, accelerator="cpu"), bucket)
    assert found["strategy"]._ddp_kwargs == {"bucket_cap_mb": given}
    assert "strategy" not in placement(World(), functools.partial(dict), bucket)


@pytest.mark.parametrize("bucket", [0, -1.0, float("nan")])
def test_no_bucket_at_all(bucket: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"solver\.bucket: expected MiB above 0"):
        GradientSolver(dict, World(), [], [], tmp_path, False, bucket)  # type: ignore[arg-type]
