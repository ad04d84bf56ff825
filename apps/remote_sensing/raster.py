"""Opening rasters with GDAL: where their pixels lie, and errors that name the file.

A file that is read again and again stays open, in the process that opened it.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.enums import ColorInterp, MaskFlags, Resampling
from rasterio.errors import NotGeoreferencedWarning
from rasterio.vrt import WarpedVRT

from scadl_core import files
from scadl_core.errors import DataError

SUFFIXES = (".tif", ".tiff", ".jp2", ".vrt", ".nc", ".img", ".png", ".jpg", ".jpeg")
ARRAYS = (".npy", ".npz", ".mat", ".pt")
find_files = partial(files.find_files, suffixes=SUFFIXES)
MOST_OPEN = 48
GDAL_CACHE_BYTES = 32 * 2**20  # of decoded blocks; GDAL's own default is 5 % of the machine
PLANE = "EPSG:3857"  # stands for any system, where there is none
SAME_PIXELS = 0.01  # grids that differ by less are one
_opening = threading.RLock()
_open: dict[tuple[int, str, Any, bool], Any] = {}  # oldest use first


@dataclass(frozen=True)
class Grid:
    """Rows and columns, and where they lie.

    Attributes:
        height: Rows.
        width: Columns.
        transform: The six numbers of an affine transform from (column, row) to (x, y); those of
            the identity where there is none.
        crs: Coordinate reference system as WKT; "" where there is none.
    """

    height: int
    width: int
    transform: tuple[float, ...]
    crs: str

    @classmethod
    def of(cls, dataset: Any) -> Grid:
        """That of an open raster."""
        crs = dataset.crs.to_wkt() if dataset.crs else ""
        return cls(dataset.height, dataset.width, tuple(dataset.transform)[:6], crs)

    @property
    def affine(self) -> Affine:
        """The transform."""
        return Affine(*self.transform)

    @property
    def is_placed(self) -> bool:
        """Whether it says where on the ground it lies."""
        return bool(self.crs) and self.affine != Affine.identity()

    def finer(self, scale: int) -> Grid:
        """The grid of pixels that many times smaller, on the same ground, turned or not."""
        transform = tuple(self.affine * Affine.scale(1 / scale))[:6]
        return Grid(self.height * scale, self.width * scale, transform, self.crs)

    def moved(self, rows: float, columns: float) -> Grid:
        """As many pixels, from another one on."""
        transform = tuple(self.affine * Affine.translation(columns, rows))[:6]
        return Grid(self.height, self.width, transform, self.crs)

    def position_of(self, other: Grid) -> tuple[float, float]:
        """Row and column here of the first pixel of another grid of the same system."""
        column, row = ~self.affine * (other.affine * (0, 0))
        return row, column

    def fits(self, other: Grid) -> bool:
        """Whether pixels are the same, wherever both have some."""
        if self.crs != other.crs:
            return False
        step = ~self.affine * other.affine
        turned = max(abs(step.a - 1), abs(step.b), abs(step.d), abs(step.e - 1))
        row, column = self.position_of(other)
        off = max(abs(row - round(row)), abs(column - round(column)))
        return turned * max(other.height, other.width) < SAME_PIXELS and off < SAME_PIXELS

    def equals(self, other: Grid) -> bool:
        """Whether it is the same, but for rounding."""
        there = (self.height, self.width) == (other.height, other.width) and self.fits(other)
        return there and max(map(abs, self.position_of(other))) < SAME_PIXELS


def open_raster(path: str, grid: Grid | None = None, smooth: bool = True) -> Any:
    """A raster opened for reading, kept open.

    Args:
        path: A file, or what GDAL calls a part of one.
        grid: Resampled to this one; None: as it is.
        smooth: Whether by cubic interpolation, not by the nearest pixel.

    Raises:
        DataError: It is damaged, of no known format, or its numbers are complex.
    """
    key = os.getpid(), path, grid, smooth
    if key in _open:
        _open[key] = _open.pop(key)  # to the end, as the last that was used
        return _open[key]
    while len(_open) >= MOST_OPEN:
        process, *_ = oldest = next(iter(_open))
        dataset = _open.pop(oldest)
        if process == os.getpid():  # else it was inherited
            dataset.close()
    with naming(path), quiet(), unsaid():
        dataset = rasterio.open(path)
        if any(it.startswith("complex") for it in dataset.dtypes):
            raise DataError(
                f"{path}: holds complex numbers; give its intensity as a file of its own"
            )
        if grid is not None:
            dataset = _warped(dataset, grid, smooth)
    _open[key] = dataset
    return dataset


def _warped(dataset: Any, grid: Grid, smooth: bool) -> Any:
    """Resampled; where the raster says nothing of gaps, an alpha band tells what lies beyond it."""
    placed: dict[str, Any] = {"crs": grid.crs}
    if not grid.crs:  # nowhere on the ground, but on one plane
        placed = {"crs": PLANE, "src_crs": PLANE, "src_transform": dataset.transform}
    elif dataset.gcps[0] and not dataset.crs:
        placed["src_crs"] = dataset.gcps[1]
    alpha = alpha_of(dataset, "auto")
    return WarpedVRT(
        dataset,
        transform=grid.affine,
        height=grid.height,
        width=grid.width,
        resampling=Resampling.cubic if smooth else Resampling.nearest,
        src_alpha=alpha or 0,
        add_alpha=alpha is None and dataset.nodata is None,
        **placed,
    )


def close_all() -> None:
    """Closes what this process keeps open, before files are replaced."""
    for key in [key for key in _open if key[0] == os.getpid()]:
        _open.pop(key).close()


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Turns what GDAL raises for a damaged file into an error that names it."""
    advice = "it is cut short, damaged or of a format that GDAL does not read here"
    if Path(path).suffix.lower() in ARRAYS:
        advice = "an array does not say where its pixels lie: write it as a GeoTIFF with rasterio"
    with files.reading(path, advice=advice):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Without rasterio's warning that an image is nowhere on the ground, which we say ourselves,
    and without those that GDAL prints: what it cannot read is raised besides.
    """
    os.environ.setdefault("CPL_LOG", os.devnull)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


@contextmanager
def unsaid() -> Iterator[None]:
    """Without what libgeotiff writes to standard error by itself over damaged keys, and rasterio
    where such a text is no UTF-8. For the moment of opening only: it holds for all threads.
    """
    sys.stderr.flush()
    with open(os.devnull, "wb") as nowhere, _opening:  # noqa: PTH123  # a device
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def parts_of(file: Path) -> list[str]:
    """What GDAL opens of a file: itself, or its variables where it has several."""
    with naming(file), quiet(), unsaid(), rasterio.open(file) as dataset:
        return list(dataset.subdatasets) if dataset.count == 0 else [str(file)]


def has_mask(dataset: Any) -> bool:
    """Whether the file carries a mask apart from its bands."""
    flags = dataset.mask_flag_enums[0]
    return MaskFlags.per_dataset in flags and MaskFlags.alpha not in flags


def gaps(dataset: Any, window: Any) -> NDArray[np.bool_] | None:
    """Where a mask says there is nothing, HW, or what was resampled ends; None: nothing does."""
    if isinstance(dataset, WarpedVRT) and dataset.count > dataset.src_dataset.count:
        gap_HW: NDArray[np.bool_] = dataset.read(dataset.count, window=window) == 0
        return gap_HW
    return dataset.read_masks(1, window=window) == 0 if has_mask(dataset) else None


def alpha_of(dataset: Any, policy: str) -> int | None:
    """The band that says where the image is transparent, or None.

    Near infrared is often tagged as alpha (NAIP): by ``auto``, only a band that is nowhere half
    transparent is taken for a mask; ``mask`` and ``band`` decide.
    """
    marked = [n for n, it in enumerate(dataset.colorinterp, 1) if it == ColorInterp.alpha]
    if not marked or policy == "band":
        return None
    if policy == "mask":
        return int(marked[0])
    rows, columns = min(dataset.height, 512), min(dataset.width, 512)
    with naming(dataset.name):
        values = dataset.read(marked[0], out_shape=(rows, columns))
    return (
        int(marked[0]) if len({0, int(values.max())} | set(values.ravel().tolist())) <= 2 else None
    )
