"""A configuration for files never seen before."""

from __future__ import annotations

from typing import Any

from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport


def propose(path: Paths) -> tuple[DataReport, dict[str, Any]]:
    """Looks into the files of a ``data.path``, and proposes what to set."""
    raise NotImplementedError
