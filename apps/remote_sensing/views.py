"""A scene at two resolutions: the coarse one made by a sensor model, or taken by another sensor.

Rows and columns are those of the coarse grid. Suffixes: C band, H row, W column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from rasterio.errors import RasterioError
from rasterio.warp import transform_bounds

from apps.remote_sensing.phase import shift_between
from apps.remote_sensing.raster import Grid
from apps.remote_sensing.scenes import Scene
from apps.remote_sensing.sensor import Sensor
from scadl_core.errors import DataError

Array = NDArray[np.float32]
LARGEST = 512  # coarse rows and columns on which images are registered
FARTHEST = 8.0  # coarse pixels by which they may be off


class View(Protocol):
    """One scene twice.

    Attributes:
        name: Of the scene.
        shape: Coarse rows and columns.
        scenes: Those that are read.
    """

    name: str
    shape: tuple[int, int]
    scenes: Sequence[Scene]

    def read(self, rows: slice, columns: slice) -> tuple[Array, Array]:
        """Coarse and fine values, CHW, in physical units, NaN where there is nothing."""


@dataclass(frozen=True)
class Degraded:
    """A high-resolution scene, and what a coarser sensor would see of it, without noise.

    Rows and columns that do not fill a coarse pixel are left out.
    """

    scene: Scene
    sensor: Sensor

    @property
    def name(self) -> str:
        """Of the scene."""
        return self.scene.name

    @property
    def shape(self) -> tuple[int, int]:
        """Coarse rows and columns."""
        grid, scale = self.scene.grid, self.sensor.scale
        return grid.height // scale, grid.width // scale

    @property
    def scenes(self) -> Sequence[Scene]:
        """The one."""
        return (self.scene,)

    def read(self, rows: slice, columns: slice) -> tuple[Array, Array]:
        """See :class:`View`."""
        margin, scale, pairs = self.sensor.margin, self.sensor.scale, []
        for wanted, size in zip((rows, columns), self.shape, strict=True):
            read = slice(max(wanted.start - margin, 0), min(wanted.stop + margin, size))
            pairs.append((read, slice(wanted.start - read.start, wanted.stop - read.start)))
        reads, inner = zip(*pairs, strict=True)
        fine_CHW = self.scene.read(*(_times(it, scale) for it in reads), clear=True)
        coarse_CHW = self.sensor.observe(fine_CHW)
        return coarse_CHW[:, *inner], fine_CHW[:, *(_times(it, scale) for it in inner)]


@dataclass(frozen=True)
class Pair:
    """A low-resolution scene, and a high-resolution one on the finer pixels of its grid."""

    coarse: Scene
    fine: Scene
    scale: int

    @property
    def name(self) -> str:
        """Of the low-resolution scene."""
        return self.coarse.name

    @property
    def shape(self) -> tuple[int, int]:
        """Coarse rows and columns."""
        return self.coarse.grid.height, self.coarse.grid.width

    @property
    def scenes(self) -> Sequence[Scene]:
        """Both."""
        return self.coarse, self.fine

    def read(self, rows: slice, columns: slice) -> tuple[Array, Array]:
        """See :class:`View`."""
        fine = _times(rows, self.scale), _times(columns, self.scale)
        return self.coarse.read(rows, columns, clear=True), self.fine.read(*fine, clear=True)

    def registered(self) -> tuple[Pair, tuple[float, float]]:
        """The pair with the fine image moved to where the coarse one shows the same; and by how
        many coarse rows and columns it had to be.

        Raises:
            DataError: They do not show the same ground.
        """
        rows, columns = (
            slice(size // 2 - min(size, LARGEST) // 2, size // 2 + (min(size, LARGEST) + 1) // 2)
            for size in self.shape
        )
        coarse_CHW, fine_CHW = self.read(rows, columns)
        squares = fine_CHW.reshape(
            len(fine_CHW), coarse_CHW.shape[1], self.scale, coarse_CHW.shape[2], self.scale
        )
        rows_off, columns_off = shift_between(coarse_CHW.mean(0), squares.mean((0, 2, 4)))
        if max(abs(rows_off), abs(columns_off)) > FARTHEST:
            found = f"are {rows_off:.1f} rows and {columns_off:.1f} columns apart"
            advice = "they show different ground, or their georeferencing is wrong"
            raise DataError(f"{self.coarse.name} and {self.fine.name} {found}; {advice}")
        moved = self.fine.grid.moved(-rows_off * self.scale, -columns_off * self.scale)
        return replace(self, fine=replace(self.fine, grid=moved)), (rows_off, columns_off)


def pair_up(coarse: Sequence[Scene], fine: Sequence[Scene], scale: int) -> list[Pair]:
    """Finds for every low-resolution scene the high-resolution one of the same ground; where there
    is no reference system, that of the same name.

    Raises:
        DataError: There is none.
    """
    pairs = []
    for scene in coarse:
        shares = [_overlap(scene.grid, other.grid) for other in fine]
        named = [Path(other.name).stem == Path(scene.name).stem for other in fine]
        best = max(range(len(fine)), key=lambda n: (shares[n], named[n]))
        if shares[best] <= 0 and not named[best]:
            names = ", ".join(other.name for other in fine[:5])
            found = f"none of data.target shows the ground of {scene.name} ({names})"
            raise DataError(f"{found}; without a reference system, name both files alike")
        grid = scene.grid.finer(scale)
        if not shares[best]:  # by name alone: taken to have the same bounds
            own = fine[best].grid
            if (own.height, own.width) != (grid.height, grid.width):
                found = f"{own.height} x {own.width} for {scene.grid.height} x {scene.grid.width}"
                raise DataError(f"{fine[best].name}: {found} is not {scale} times as many pixels")
            pairs.append(Pair(scene, fine[best], scale))
        else:
            pairs.append(Pair(scene, replace(fine[best], grid=grid), scale))
    return pairs


def _overlap(grid: Grid, other: Grid) -> float:
    """The share of a grid's bounds that another covers; 0 where either is nowhere."""
    if not (grid.is_placed and other.is_placed):
        return 0.0
    try:
        left, bottom, right, top = _bounds(grid)
        west, south, east, north = transform_bounds(other.crs, grid.crs, *_bounds(other))
    except RasterioError:
        return 0.0
    width = max(min(right, east) - max(left, west), 0)
    height = max(min(top, north) - max(bottom, south), 0)
    return width * height / ((right - left) * (top - bottom))


def _bounds(grid: Grid) -> tuple[float, float, float, float]:
    corners = [
        grid.affine * (column, row) for row in (0, grid.height) for column in (0, grid.width)
    ]
    (x, y) = zip(*corners, strict=True)
    return min(x), min(y), max(x), max(y)


def _times(pixels: slice, scale: int) -> slice:
    return slice(pixels.start * scale, pixels.stop * scale)
