"""What is free, of the machine and of a control group, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scadl_core.memory import limits


def test_the_machine_has_something_free() -> None:
    assert 0.0 < limits.free_share() <= 1.0


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"memory.max": "1000\n", "memory.stat": "anon 250\nfile 700\n"}, 0.75),
        ({"memory.max": "max\n", "memory.stat": "anon 250\n"}, 1.0),
        ({"memory.limit_in_bytes": "400\n", "memory.stat": "cache 9\ntotal_rss 300\n"}, 0.25),
        ({}, 1.0),
    ],
)
def test_a_group(tmp_path: Path, files: dict[str, str], free: float) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert limits._group(tmp_path) == free
