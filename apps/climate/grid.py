"""Grids of rows and columns, and the way between a file's orientation and the canonical one.

Canonical: latitude ascending; longitude ascending, from the smallest value >= 0 where the grid goes
round the earth, and from behind the widest gap where it does not, so that a region across the date
line or Greenwich stays in one piece. A curvilinear grid (rotated, projected, or of an ocean model)
is turned only: most latitudes ascend along a column, most longitudes along a row.

Shapes: H row, W column, canonical; Y row, X column, as in the file. Unit: degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apps.climate.earth import unit_vector
from scadl_core.errors import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

ROUNDING_DIGITS = 5  # of longitudes: in 32 bits 359.9 is 359.89999; and -1e-7 is Greenwich
SAME_PLACE = 1e-3  # two coordinates closer than this share of the spacing are one place
CLOSING_GAP = 1.5  # so many spacings between last and first longitude still close the circle


@dataclass(frozen=True, eq=False)
class Grid:
    """Where the points of a field are.

    Law: ``from_canonical(to_canonical(x)) == x``, and rolling or flipping a file together with its
    coordinates leaves ``to_canonical`` unchanged. A repeated cyclic column (0 and 360) is dropped
    by the one and filled by the other.
    """

    latitude: Floats  # of each row, or curvilinear of each point
    longitude: Floats  # of each column, or of each point
    periodic: bool  # whether the last column is the first one's neighbour
    row_H: Indices  # the file's row of each canonical row
    column_W: Indices  # the file's column of each canonical column
    column_X: Indices  # the canonical column of each of the file's columns

    @classmethod
    def from_coordinates(cls, latitude_Y: Floats, longitude_X: Floats) -> Grid:
        """The rectilinear grid of latitudes in any order and longitudes from any origin.

        Raises:
            DataError: Coordinates that are no degrees, missing, repeated, or fewer than two.
        """
        for name, values, limit in (("latitude", latitude_Y, 90), ("longitude", longitude_X, 720)):
            if len(values) < 2:
                raise DataError(f"one {name} only; a field of at least 2 x 2 points is needed")
            if not np.isfinite(values).all() or np.abs(values).max() > limit + 0.01:
                found = f"{name} {values.min():.6g}..{values.max():.6g}; degrees within"
                raise DataError(f"{found} -{limit}..{limit}, none missing, are needed")
        if np.diff(np.sort(latitude_Y)).min() <= 0:
            raise DataError("latitudes are repeated; each row of a grid needs its own")
        row_H = np.argsort(latitude_Y)
        longitude_W, periodic, column_W, column_X = _turn(longitude_X)
        return cls(latitude_Y[row_H], longitude_W, periodic, row_H, column_W, column_X)

    def to_canonical(self, field_YX: NDArray) -> NDArray:
        """Turns a field of the file, shape [..., Y, X], to the canonical one, [..., H, W]."""
        return field_YX[..., self.row_H[:, None], self.column_W]

    def from_canonical(self, field_HW: NDArray) -> NDArray:
        """Turns a canonical field, shape [..., H, W], to the file's orientation, [..., Y, X]."""
        return field_HW[..., np.argsort(self.row_H)[:, None], self.column_X]

    @classmethod
    def from_mesh(cls, latitude_YX: Floats, longitude_YX: Floats) -> Grid:
        """The grid of a latitude and a longitude of each point, NaN where there is none.

        Raises:
            DataError: Coordinates that are no degrees, or fewer than 2 x 2 points.
        """
        for name, values, limit in (
            ("latitude", latitude_YX, 90),
            ("longitude", longitude_YX, 720),
        ):
            if min(values.shape) < 2 or not np.nanmax(np.abs(values), initial=0) <= limit + 0.01:
                found = f"{name} of {' x '.join(map(str, values.shape))} points, up to "
                found += f"{np.nanmax(np.abs(values), initial=0):.6g}"
                raise DataError(f"{found}; 2 x 2 or more, within -{limit}..{limit}, are needed")
        rows, columns = latitude_YX.shape
        north_YX = np.diff(latitude_YX, axis=0)
        east_YX = np.mod(np.diff(longitude_YX, axis=1) + 180, 360) - 180
        row_H = np.arange(rows)[:: -1 if np.nanmedian(north_YX) < 0 else 1]
        column_W = np.arange(columns)[:: -1 if np.nanmedian(east_YX) < 0 else 1]
        point_XYZ = unit_vector(latitude_YX, longitude_YX)[row_H][:, column_W]
        step = np.nanmedian(np.linalg.norm(np.diff(point_XYZ, axis=1), axis=-1))
        gap_W = np.nanmedian(np.linalg.norm(point_XYZ - point_XYZ[:, :1], axis=-1), axis=0)
        repeated = gap_W[1:] < SAME_PLACE * step  # of the first column, as ocean models have it
        kept = int(np.argmax(repeated)) + 1 if repeated.any() else columns
        periodic = bool(gap_W[kept - 1] <= CLOSING_GAP * step and kept > 2)
        column_X = np.empty(columns, np.intp)
        column_X[column_W] = np.arange(columns) % kept
        at = np.ix_(row_H, column_W[:kept])
        return cls(latitude_YX[at], longitude_YX[at], periodic, row_H, column_W[:kept], column_X)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.row_H), len(self.column_W)

    @cached_property
    def mesh(self) -> tuple[Floats, Floats]:
        """Latitude and longitude of each point, shape [H, W]."""
        if self.latitude.ndim == 2:
            return self.latitude, self.longitude
        latitude_H1, longitude_W = self.latitude[:, None], self.longitude
        return tuple(np.broadcast_arrays(latitude_H1, longitude_W))  # type: ignore[return-value]

    @cached_property
    def area_HW(self) -> NDArray[np.float32]:
        """Relative area of the cells, 1 for the largest kind: cos(latitude) where steps are equal.

        Of a curvilinear grid the area spanned by the vectors between neighbours on the sphere, the
        median of the row where a neighbour has no coordinates, as on land; 0 without coordinates.
        """
        if self.latitude.ndim == 1:
            step_H = np.gradient(self.latitude)
            area_H = np.cos(np.deg2rad(self.latitude)).clip(0) * np.round(step_H / step_H.max(), 4)
            return np.repeat(area_H.astype(np.float32)[:, None], self.shape[1], 1)
        point_HWV = unit_vector(*self.mesh)
        if self.periodic:
            point_HWV = np.concatenate([point_HWV[:, -1:], point_HWV, point_HWV[:, :1]], 1)
        across_HWV = np.cross(np.gradient(point_HWV, axis=0), np.gradient(point_HWV, axis=1))
        area_HW = np.linalg.norm(across_HWV, axis=-1)
        area_HW = area_HW[:, 1:-1] if self.periodic else area_HW
        usual_HW = np.nan_to_num(np.nanmedian(np.c_[area_HW, np.zeros(len(area_HW))], 1))[:, None]
        area_HW = np.where(np.isnan(area_HW), usual_HW, area_HW) * np.isfinite(self.latitude)
        return (area_HW / area_HW.max()).astype(np.float32)

    def difference(self, other: Grid) -> str | None:
        """Says how two grids differ; None where all points are within 0.001 of the spacing."""
        if self.shape != other.shape or self.latitude.ndim != other.latitude.ndim:
            return f"{self} against {other}"
        for name in ("latitude", "longitude"):
            ours, theirs = getattr(self, name), getattr(other, name)
            apart = np.nanmax(np.abs(np.mod(ours - theirs + 180, 360) - 180), initial=0)
            steps = (np.nanmedian(np.abs(np.diff(ours, axis=axis))) for axis in (0, -1))
            if apart > SAME_PLACE * max(steps):
                ranges = f"{_range(ours)} against {_range(theirs)}"
                return f"{name} {ranges}, up to {apart:.4g} degrees apart"
        return None

    def __str__(self) -> str:
        kind = "global in longitude" if self.periodic else "regional"
        ranges = f"latitude {_range(self.latitude)}, longitude {_range(self.longitude)}"
        axes = "(latitude x longitude)" if self.latitude.ndim == 1 else "(curvilinear)"
        return "{} x {} ".format(*self.shape) + f"{axes}, {kind}, {ranges}"


def _range(values: Floats) -> str:
    return f"{np.nanmin(values):.6g}..{np.nanmax(values):.6g}"


def _turn(longitude_X: Floats) -> tuple[Floats, bool, Indices, Indices]:
    """Canonical longitudes, whether they are periodic, ``column_W`` and ``column_X``."""
    if np.diff(np.sort(longitude_X)).min() <= 0:
        raise DataError("longitudes are repeated; each column of a grid needs its own")
    wrapped_X = np.mod(np.round(np.mod(longitude_X, 360), ROUNDING_DIGITS), 360)
    steps = np.diff(np.sort(wrapped_X))
    spacing = float(np.median(steps[steps > 0])) if (steps > 0).any() else 360.0
    tolerance = max(SAME_PLACE * spacing, 10.0**-ROUNDING_DIGITS)
    wrapped_X[wrapped_X > 360 - tolerance] -= 360  # 359.99997 is Greenwich, too
    order = np.argsort(wrapped_X, kind="stable")
    is_new = np.diff(wrapped_X[order], prepend=-np.inf) > tolerance
    column_W, longitude_W = order[is_new], wrapped_X[order[is_new]]
    column_X = np.empty_like(order)
    column_X[order] = np.cumsum(is_new) - 1
    gaps = np.diff(longitude_W, append=longitude_W[0] + 360)
    if gaps.max() <= CLOSING_GAP * np.median(gaps):
        return longitude_W, True, column_W, column_X
    start = (int(np.argmax(gaps)) + 1) % len(gaps)
    longitude_W[:start] += 360
    column_X = (column_X - start) % len(gaps)
    return np.roll(longitude_W, -start), False, np.roll(column_W, -start), column_X
