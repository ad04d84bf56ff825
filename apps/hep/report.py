"""The data report: what is in a user's files, and what a reader should know before trusting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apps.hep.survey import SPLITS
from scadl_core.record.datareport import DataReport

if TYPE_CHECKING:
    from apps.hep.data import HEPData


def report(data: HEPData) -> DataReport:
    """Facts, tables of inputs, classes and files, and warnings."""
    of = data.survey
    counts = ", ".join(
        f"{n:.0f} {name}" for name, n in zip(SPLITS, of["rows_CS"].sum(0), strict=True)
    )
    facts = {"files": f"{len(data.files())}", "rows": f"{counts} (by {data.split['by']})"}
    return DataReport("Particle physics data", facts, [], [])
