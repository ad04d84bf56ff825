"""Data configurations of weaver."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_weaver(path: Path) -> dict[str, Any]:
    """The settings."""
    raise NotImplementedError
