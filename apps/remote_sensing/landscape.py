"""Synthetic land, as reflectance: parcels with crop rows, forest, water, relief, roads, buildings.

It is drawn on a grid twice as fine as the image and averaged, as a detector integrates over its
pixel. Rows of crops and roofs reach beyond what a coarser sensor resolves: there a model can only
omit or invent, which is what scores of correctness are about.

Suffixes: C band (blue, green, red, near infrared), H row, W column, P parcel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

Array = NDArray[np.float32]
Rng = np.random.Generator

BANDS = ("blue", "green", "red", "nir")
FINER = 2  # times the pixels of the image
CROP, SOIL, FOREST, WATER, ROOF, ROAD = range(6)
# Typical surface reflectance of each class, a row, in each band; and its share among parcels.
REFLECTANCE = np.array(
    [
        [0.04, 0.07, 0.05, 0.38],
        [0.08, 0.12, 0.17, 0.25],
        [0.02, 0.04, 0.03, 0.28],
        [0.05, 0.05, 0.03, 0.02],
        [0.15, 0.17, 0.19, 0.24],
        [0.10, 0.11, 0.12, 0.15],
    ],
    np.float32,
)
PARCELS = (CROP, CROP, CROP, SOIL, SOIL, FOREST)
DARKEST = 0.001


def draw(rng: Rng, pixels: int) -> Array:
    """Reflectance of a square of land, CHW, in DARKEST..1."""
    size = pixels * FINER
    relief = fractal(rng, size, 3.0)
    parcel_HW, class_P = _parcels(rng, size)
    class_HW = class_P[parcel_HW]
    class_HW[ndimage.gaussian_filter(relief, 4 * FINER) > 1.1] = FOREST
    class_HW[ndimage.gaussian_filter(fractal(rng, size, 3.2), 6 * FINER) > 1.7] = WATER
    land_CHW = REFLECTANCE[class_HW].transpose(2, 0, 1).copy()
    gain_PC = 1 + 0.12 * rng.standard_normal((len(class_P), len(BANDS)), np.float32)
    land_CHW *= gain_PC[parcel_HW].transpose(2, 0, 1)
    land_CHW *= _crop_rows(rng, parcel_HW, class_HW)
    land_CHW *= _texture(rng, class_HW, relief)
    _build(rng, land_CHW, class_HW)
    fine = land_CHW.reshape(len(BANDS), pixels, FINER, pixels, FINER)
    return fine.mean((2, 4)).clip(DARKEST, 1)


def fractal(rng: Rng, size: int, slope: float) -> Array:
    """A random field, HW, whose power falls with that power of the frequency; variance 1."""
    power = np.fft.fftfreq(size)[:, None] ** 2 + np.fft.rfftfreq(size)[None] ** 2
    power[0, 0] = 1
    waves = np.fft.rfft2(rng.standard_normal((size, size))) * power ** (-slope / 4)
    waves[0, 0] = 0
    field = np.fft.irfft2(waves, s=(size, size))
    return (field / field.std()).astype(np.float32)


def _parcels(rng: Rng, size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The parcel of every pixel, and the class of every parcel: the cells around points, longer in
    one direction than across it.
    """
    count = int(rng.integers(60, 120) * (size / 768) ** 2) + 8
    angle, stretch = rng.random() * np.pi, rng.uniform(1, 2.5)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn *= [[1], [stretch]]
    place = np.indices((size, size), np.float32).reshape(2, -1).T
    tree = cKDTree(rng.random((count, 2)) * size @ turn.T)
    parcel_HW = tree.query(place @ turn.T)[1].reshape(size, size)
    return parcel_HW, rng.choice(PARCELS, count)


def _crop_rows(rng: Rng, parcel_HW: NDArray[np.intp], class_HW: NDArray[np.intp]) -> Array:
    """Rows of each parcel's own direction, 4 to 14 pixels apart."""
    count = parcel_HW.max() + 1
    angle_P, period_P = rng.random(count) * np.pi, rng.uniform(4, 14, count) * FINER
    row_HW, column_HW = np.indices(parcel_HW.shape)
    across_HW = np.sin(angle_P)[parcel_HW] * row_HW + np.cos(angle_P)[parcel_HW] * column_HW
    wave_HW = np.sin(2 * np.pi * across_HW / period_P[parcel_HW])
    return (1 + (class_HW <= SOIL) * 0.10 * wave_HW).astype(np.float32)


def _texture(rng: Rng, class_HW: NDArray[np.intp], relief_HW: Array) -> Array:
    """Fertility at all scales, crowns of trees, and slopes that face the sun or do not."""
    size = len(class_HW)
    crowns_HW = ndimage.gaussian_filter(rng.standard_normal((size, size), np.float32), 1.5 * FINER)
    slope_HW = np.gradient(ndimage.gaussian_filter(relief_HW, 2 * FINER), axis=1) * FINER
    texture_HW = np.exp(0.05 * fractal(rng, size, 2.2))
    texture_HW *= 1 + (class_HW == FOREST) * 0.75 * crowns_HW
    return np.maximum(texture_HW * (1 + 0.30 * slope_HW), 0).astype(np.float32)


def _build(rng: Rng, land_CHW: Array, class_HW: NDArray[np.intp]) -> None:
    """Roads, and buildings near them with shadows to the south-east; in place."""
    size = len(class_HW)
    road_HW = np.zeros((size, size), bool)
    for _ in range(rng.integers(3, 7)):
        turns, start = rng.normal(0, 0.006, int(2.5 * size)), rng.random(2) * size
        heading = rng.random() * 2 * np.pi + np.cumsum(turns)
        path = start + np.cumsum(np.stack([np.sin(heading), np.cos(heading)], 1), 0)
        row, column = path[((path >= 0) & (path < size)).all(1)].astype(int).T
        road_HW[row, column] = True
    away_HW = ndimage.distance_transform_edt(~road_HW)
    road_HW = away_HW < 2 * FINER
    grain = 1 + 0.05 * rng.standard_normal(int(road_HW.sum()), np.float32)
    land_CHW[:, road_HW] = REFLECTANCE[ROAD][:, None] * grain
    buildings = int(rng.integers(80, 200) * (size / 768) ** 2) + 1
    for row, column in rng.integers(0, max(size - 20 * FINER, 1), (buildings, 2)):
        near = 4 * FINER < away_HW[row, column] < 30 * FINER
        if not near or class_HW[row, column] == WATER:
            continue
        height, width = rng.integers(4 * FINER, 12 * FINER, 2)
        below, right = row + height, column + width
        roof_C11 = (REFLECTANCE[ROOF] * rng.uniform(0.6, 1.6))[:, None, None]
        land_CHW[:, row:below, column:right] = roof_C11
        shadow = slice(below, below + 2 * FINER), slice(column + FINER, right + 2 * FINER)
        land_CHW[:, *shadow] *= 0.45
