"""What the numbers of a band mean: declared by the file, by Sentinel-2's or by Landsat's metadata.

Nothing is guessed: without a declaration a number stands for itself, and what counts as white is
measured and said.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

SENTINEL_BANDS = (
    "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12",
)  # fmt: skip


class Radiometry(NamedTuple):
    """Physical value = number * scale + offset.

    Attributes:
        scale: See above.
        offset: See above.
        nodata: The number that stands for nothing, or None.
        origin: Who says so: "file", "Sentinel-2", "Landsat"; "" if nobody does.
    """

    scale: float = 1.0
    offset: float = 0.0
    nodata: float | None = None
    origin: str = ""


def find(dataset: Any, index: int, name: str) -> Radiometry:
    """The radiometry of a band of an open raster.

    Args:
        dataset: The raster.
        index: Of the band, from 1.
        name: Of the band, such as ``B04``.
    """
    scale, offset = dataset.scales[index - 1], dataset.offsets[index - 1]
    nodata = dataset.nodatavals[index - 1]
    if (scale, offset) != (1, 0):
        return Radiometry(scale, offset, nodata, "file")
    path = Path(dataset.name)
    for folder in list(path.parents)[:5]:  # .SAFE/GRANULE/L2A_.../IMG_DATA/R10m
        if found := _of_folder(folder, name, path.name):
            return found if nodata is None else found._replace(nodata=nodata)
    return Radiometry(nodata=nodata)


@cache
def _of_folder(folder: Path, band: str, file: str) -> Radiometry | None:
    if not folder.is_dir():
        return None
    for page in (*folder.glob("MTD_MSIL2A.xml"), *folder.glob("MTD_MSIL1C.xml")):
        return _sentinel(page.read_text(encoding="utf-8"), band)
    for page in folder.glob("*_MTL.txt"):
        if file.startswith(page.name.removesuffix("_MTL.txt")):
            return _landsat(page.read_text(encoding="utf-8"), band)
    return None


def _sentinel(text: str, band: str) -> Radiometry | None:
    """Offsets are those of the metadata, since processing baseline 04.00; never of the date."""
    if band not in SENTINEL_BANDS:
        return None
    quantum = re.search(r"<(?:BOA_)?QUANTIFICATION_VALUE\b[^>]*>\s*([\d.]+)", text)
    number = SENTINEL_BANDS.index(band)
    found = re.search(rf'<(?:BOA|RADIO)_ADD_OFFSET band_id="{number}"\s*>\s*(-?[\d.]+)', text)
    if quantum is None:
        return None
    scale = 1 / float(quantum[1])
    return Radiometry(scale, scale * float(found[1] if found else 0), 0.0, "Sentinel-2")


def _landsat(text: str, band: str) -> Radiometry | None:
    """Collection 2: the surface's reflectance of files named SR_B4, the top's of B4."""
    surface = band.startswith("SR_")
    group = "LEVEL2_SURFACE_REFLECTANCE_PARAMETERS" if surface else "LEVEL1_RADIOMETRIC_RESCALING"
    part = re.search(rf"GROUP = {group}\n(.*?)END_GROUP", text, re.DOTALL)
    number = band.removeprefix("SR_").removeprefix("B")
    keys = (rf"REFLECTANCE_{kind}_BAND_{number} = (\S+)" for kind in ("MULT", "ADD"))
    found = [re.search(key, part[1]) for key in keys] if part else [None]
    if None in found:
        return None
    scale, offset = (float(it[1]) for it in found if it)
    return Radiometry(scale, offset, 0.0, "Landsat")
