"""Latitude/longitude grids, and the way between a file's orientation and the canonical one.

Canonical: latitude ascending; longitude ascending, from the smallest value >= 0 where the grid goes
round the earth, and from behind the widest gap where it does not, so that a region across the date
line or Greenwich stays in one piece.

Shapes: H latitude, W longitude, canonical; Y latitude, X longitude, as in the file. Unit: degrees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scadl_core.errors import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

ROUNDING_DIGITS = 5  # of longitudes: in 32 bits 359.9 is 359.89999; and -1e-7 is Greenwich
SAME_PLACE = 1e-3  # two coordinates closer than this share of the spacing are one place
CLOSING_GAP = 1.5  # so many spacings between last and first longitude still close the circle


@dataclass(frozen=True, eq=False)
class Grid:
    """A regular latitude/longitude grid.

    Law: ``from_canonical(to_canonical(x)) == x``, and rolling or flipping a file together with its
    coordinates leaves ``to_canonical`` unchanged. A repeated cyclic column (0 and 360) is dropped
    by the one and filled by the other.
    """

    latitude_H: Floats
    longitude_W: Floats
    periodic: bool  # whether the last longitude is the first one's neighbour
    row_H: Indices  # the file's row of each canonical row
    column_W: Indices  # the file's column of each canonical column
    column_X: Indices  # the canonical column of each of the file's columns

    @classmethod
    def from_coordinates(cls, latitude_Y: Floats, longitude_X: Floats) -> Grid:
        """The grid of latitudes in any order and longitudes from any origin.

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

    @property
    def shape(self) -> tuple[int, int]:
        """Number of latitudes and of longitudes."""
        return len(self.latitude_H), len(self.longitude_W)

    @property
    def area_H(self) -> NDArray[np.float32]:
        """Relative area of the grid cells at each latitude: cos(latitude)."""
        return np.cos(np.deg2rad(self.latitude_H)).clip(0).astype(np.float32)

    def difference(self, other: Grid) -> str | None:
        """Says how two grids differ; None where all points are within 0.001 of the spacing."""
        if self.shape != other.shape:
            sizes = "{} x {} against {} x {}".format(*self.shape, *other.shape)
            return f"{sizes} points (latitude x longitude)"
        for name in ("latitude_H", "longitude_W"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if (apart := np.abs(ours - theirs).max()) > SAME_PLACE * np.diff(ours).min():
                ranges = f"{_range(ours)} against {_range(theirs)}"
                return f"{name[:-2]} {ranges}, up to {apart:.4g} degrees apart"
        return None

    def __str__(self) -> str:
        kind = "global in longitude" if self.periodic else "regional"
        ranges = f"latitude {_range(self.latitude_H)}, longitude {_range(self.longitude_W)}"
        return "{} x {} (latitude x longitude)".format(*self.shape) + f", {kind}, {ranges}"


def _range(values: Floats) -> str:
    return f"{values[0]:.6g}..{values[-1]:.6g}"


def _turn(longitude_X: Floats) -> tuple[Floats, bool, Indices, Indices]:
    """Canonical longitudes, whether they are periodic, ``column_W`` and ``column_X``."""
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
