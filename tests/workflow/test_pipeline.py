"""From a configuration to what a run is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scadl_core.workflow.pipeline import _same_place


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("maps", "maps", True), ("maps", "./maps", True), ("maps", "../maps", False),
     (None, "maps", False), ("maps", ["maps"], False)],
)  # fmt: skip
def test_places(one: Any, other: Any, same: bool, workplace: Path) -> None:
    assert _same_place(one, other) == same
    if isinstance(other, str):
        assert _same_place(one, str(Path(other).absolute())) == same


def test_the_example_is_written_where_a_relative_path_says(
    scadl: Callable[..., Any], tiny: tuple[str, ...], workplace: Path
) -> None:
    done = scadl("train", "climate", *tiny, "data.sample.path=maps", "run.dir=run")
    assert done.status == 0, done.err
    assert list((workplace / "maps").rglob("*.nc"))
