"""A configuration for images never seen before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.remote_sensing.scenes import Reading, find_scenes
from scadl_core.files import Paths
from scadl_core.record.datareport import DataReport, Table


def propose(
    path: Paths, bands: Sequence[str] = (), nodata: float | None = None, alpha: str = "auto",
    **_: Any,
) -> tuple[DataReport, dict[str, Any]]:  # fmt: skip
    """Looks into the files of a ``data.path``, and proposes what to set.

    Returns:
        What was found, and values by their name below ``data``.

    Raises:
        DataError: A file cannot be read or is no image.
    """
    scenes = find_scenes(path, Reading(bands, nodata, alpha))
    rows = [(it.name, f"{it.grid.height} x {it.grid.width}", ", ".join(it.names)) for it in scenes]
    table = Table("Scenes", ("scene", "pixels", "bands"), rows)
    common = [name for name in scenes[0].images if all(name in scene.names for scene in scenes)]
    values = {"inputs": common or scenes[0].images, "target": None}
    notes = [note for scene in scenes for note in scene.notes]
    return DataReport("Images", {"scenes": str(len(scenes))}, [table], notes), values
