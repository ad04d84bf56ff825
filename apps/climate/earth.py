"""Where the pixels of a map lie on the earth: areas, distances, neighbourhoods.

All of it comes from unit vectors, so that the poles, the date line and grids with two-dimensional
coordinates need no case of their own. Suffixes: H, W the map's rows and columns, P its pixels row
by row, N some of them, 3 a vector from the earth's centre toward (0N 0E, 0N 90E, 90N).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from apps.climate.weather import EARTH_RADIUS_KM

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Earth:
    """The places of a map's pixels."""

    latitude_HW: Floats  # degrees north
    longitude_HW: Floats  # degrees east
    periodic: bool  # whether the last column is the first one's neighbour

    @classmethod
    def of(cls, latitude: ArrayLike, longitude: ArrayLike, periodic: bool) -> Earth:
        """From latitudes H and longitudes W, or both HW; in degrees. Equal ones share an object."""
        lat, lon = np.asarray(latitude, np.float64), np.asarray(longitude, np.float64)
        if lat.ndim == 1:
            lat, lon = np.broadcast_arrays(lat[:, None], lon[None])
        return _shared(lat.tobytes(), lon.tobytes(), lat.shape, periodic)

    @cached_property
    def unit_HW3(self) -> Floats:
        """The pixels' unit vectors."""
        return unit_vector(self.latitude_HW, self.longitude_HW)

    @cached_property
    def area_km2_HW(self) -> Floats:
        """The area of each pixel, from the distances of its neighbours; never quite 0."""
        wide = np.pad(self.unit_HW3, ((0, 0), (1, 1), (0, 0)), "wrap" if self.periodic else "edge")
        along, across = np.gradient(wide, axis=1)[:, 1:-1], np.gradient(self.unit_HW3, axis=0)
        if not self.periodic:  # half a step beside the repeated column
            along[:, [0, -1]] *= 2
        area_HW = np.linalg.norm(np.cross(along, across), axis=-1)
        return np.fmax(EARTH_RADIUS_KM**2 * area_HW, 1e-6)  # also without coordinates

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(np.nan_to_num(self.unit_HW3.reshape(-1, 3), nan=9.0))  # far from the earth

    def near(self, index: int, radius_km: float) -> tuple[NDArray[np.intp], Floats]:
        """Flat indices N of the pixels within a distance of one, and their distances in km."""
        unit_P3 = self.unit_HW3.reshape(-1, 3)
        chord = 2 * np.sin(radius_km / EARTH_RADIUS_KM / 2)  # of the arc
        found_N = np.sort(np.asarray(self._tree.query_ball_point(unit_P3[index], chord), np.intp))
        return found_N, arc_km(unit_P3[index], unit_P3[found_N])

    def around(self, index: int, others_N: NDArray[np.intp]) -> Floats:
        """The direction (east, north) at other pixels that turns anticlockwise about one, 2N."""
        unit_P3 = self.unit_HW3.reshape(-1, 3)
        turn_N3 = np.cross(unit_P3[index], unit_P3[others_N])
        turn_N3 /= np.maximum(np.linalg.norm(turn_N3, axis=1, keepdims=True), 1e-12)
        lat, lon = (np.deg2rad(it.flat[others_N]) for it in (self.latitude_HW, self.longitude_HW))
        east_N3 = np.stack([-np.sin(lon), np.cos(lon), 0 * lon], -1)
        north_N3 = unit_vector(np.rad2deg(lat) + 90, np.rad2deg(lon))
        return np.stack([(turn_N3 * it).sum(1) for it in (east_N3, north_N3)])


@lru_cache(maxsize=4)
def _shared(lat: bytes, lon: bytes, shape: tuple[int, int], periodic: bool) -> Earth:
    """One object, with its areas and its tree, for all maps on a grid."""
    return Earth(np.frombuffer(lat).reshape(shape), np.frombuffer(lon).reshape(shape), periodic)


def unit_vector(latitude: ArrayLike, longitude: ArrayLike) -> Floats:
    """Unit vectors, last axis 3, of places in degrees."""
    lat, lon = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


def place(vector_N3: Floats) -> tuple[Floats, Floats]:
    """Latitude and longitude (0..360), degrees, of vectors of any length."""
    x, y, z = np.moveaxis(vector_N3, -1, 0)
    return np.rad2deg(np.arctan2(z, np.hypot(x, y))), np.rad2deg(np.arctan2(y, x)) % 360


def arc_km(unit_N3: Floats, others_N3: Floats) -> Floats:
    """Great-circle distance of unit vectors, which broadcast; exact also where they are close."""
    chord = np.linalg.norm(unit_N3 - others_N3, axis=-1)
    return 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / 2, 1))
