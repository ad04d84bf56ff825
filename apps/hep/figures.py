"""What a particle physicist looks at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scadl_core.workflow.contracts import Source


def draw(task: Any, source: Source, folder: Path) -> dict[str, str]:
    """Draws."""
    return {}
