"""Scenes: bands on one grid, from one file, from a file a band, or from a mosaic of files.

Suffixes: C band, H row, W column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import ColorInterp
from rasterio.windows import Window

from apps.remote_sensing import radiometry
from apps.remote_sensing.radiometry import Radiometry
from apps.remote_sensing.raster import (
    Grid,
    alpha_of,
    find_files,
    gaps,
    naming,
    open_raster,
    parts_of,
)
from scadl_core.errors import ConfigError, DataError, nearest
from scadl_core.files import Paths

Array = NDArray[np.float32]
# A band's name within that of its file, and the resolution that Sentinel-2 puts behind it.
TOKEN = re.compile(
    r"(?<![A-Za-z0-9])((?:SR_|ST_)?B(?:\d{1,2}|8A)|BQA|QA_PIXEL|SCL|TCI|AOT|WVP|coastal|blue|green|"
    r"yellow|red_?edge\d?|red|nir\d?|swir\d?|pan|thermal\d?|ultra_?blue)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
RESOLUTION = re.compile(r"_(10|20|60)m$")
QUALITY = ("BQA", "QA_PIXEL", "SCL", "TCI", "AOT", "WVP")  # no images of the ground
ALPHA = ("auto", "mask", "band")


class Band(NamedTuple):
    """One band of a raster.

    Attributes:
        path: What GDAL opens.
        index: Which band of it, from 1.
        name: Of the band.
        radiometry: What its numbers mean.
    """

    path: str
    index: int
    name: str
    radiometry: Radiometry


class Clouds(NamedTuple):
    """Where an image is not of the ground.

    Attributes:
        band: The name of the band that says so, such as SCL.
        values: What it says there.
        bits: Or which of its bits are set there, from 0.
    """

    band: str
    values: Sequence[int] = ()
    bits: Sequence[int] = ()


@dataclass(frozen=True)
class Reading:
    """How files are read; the words of ``data`` and of ``predict``.

    Attributes:
        bands: Names of the bands of each file, where files do not say them.
        nodata: The number that stands for nothing, where files do not say it.
        alpha: See :func:`apps.remote_sensing.raster.alpha_of`.
        mosaic: Whether files are parts of one scene, the last on top.
    """

    bands: Sequence[str] = ()
    nodata: float | None = None
    alpha: str = "auto"
    mosaic: bool = False

    def __post_init__(self) -> None:
        if self.alpha not in ALPHA:
            raise ConfigError(f"alpha={self.alpha!r} is unknown{nearest(str(self.alpha), ALPHA)}")


@dataclass(frozen=True)
class Scene:
    """Bands on a grid.

    Attributes:
        name: For messages, and for the name of a prediction.
        grid: Rows, columns and place.
        bands: What it is made of.
        alpha: Path and index of the band that says where there is nothing, or None.
        clouds: See :class:`Clouds`, or None.
        parts: Of a mosaic, scenes with the row and column of their first pixel; else empty.
        notes: What a reader should know.
    """

    name: str
    grid: Grid
    bands: tuple[Band, ...]
    alpha: tuple[str, int] | None = None
    clouds: Clouds | None = None
    parts: tuple[tuple[Scene, int, int], ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def names(self) -> list[str]:
        """Of the bands."""
        return [band.name for band in self.bands]

    @property
    def images(self) -> list[str]:
        """Names of the bands that show the ground on the scene's own grid."""
        if self.parts:
            return self.names
        shown = [it for it in self.bands if it.name.upper() not in QUALITY]
        return [it.name for it in shown if Grid.of(open_raster(it.path)).equals(self.grid)]

    @property
    def files(self) -> list[Path]:
        """All that are read."""
        own = dict.fromkeys(band.path for band in self.bands)
        found = [it for scene, *_ in self.parts for it in scene.files]
        return found or [Path(re.sub(r"^\w+:(.*?)(:\w+)?$", r"\1", path)) for path in own]

    def select(self, names: Sequence[str]) -> Scene:
        """With these bands only.

        Raises:
            DataError: It lacks one.
        """
        by_name = {band.name.casefold(): band for band in self.bands}
        for name in names:
            if name.casefold() not in by_name:
                found = f"{self.name} has no band {name!r}{nearest(name, self.names)}"
                raise DataError(f"{found}; name the bands of the files in order with bands=[...]")
        bands = tuple(by_name[name.casefold()] for name in names)
        if self.parts:
            parts = tuple((part.select(names), row, column) for part, row, column in self.parts)
            return replace(self, bands=bands, parts=parts)
        grids = (Grid.of(open_raster(band.path)) for band in bands)
        return replace(self, bands=bands, grid=max(grids, key=lambda it: it.height * it.width))

    def read(self, rows: slice, columns: slice, clear: bool = False) -> Array:
        """Values in physical units.

        Args:
            rows: Which, within the grid.
            columns: Which, within the grid.
            clear: Whether clouds are left out.

        Returns:
            float32 of shape CHW, NaN where there is nothing.

        Raises:
            DataError: A file is damaged there.
        """
        if self.parts:
            return self._read_parts(rows, columns, clear)
        shape = len(self.bands), rows.stop - rows.start, columns.stop - columns.start
        values_CHW = np.full(shape, np.nan, np.float32)
        window = Window(columns.start, rows.start, shape[2], shape[1])
        for path in dict.fromkeys(band.path for band in self.bands):
            of = [c for c, band in enumerate(self.bands) if band.path == path]
            values_CHW[of] = self._read_file(path, [self.bands[c] for c in of], window)
        if self.alpha is not None:
            values_CHW[:, _raw(self.alpha[0], self.grid, [self.alpha[1]], window)[0] == 0] = np.nan
        if clear and self.clouds is not None:
            values_CHW[:, self._cloudy(self.clouds, window)] = np.nan
        return values_CHW

    def _read_file(self, path: str, bands: Sequence[Band], window: Window) -> Array:
        raw_CHW = _raw(path, self.grid, [band.index for band in bands], window)
        values_CHW = raw_CHW.astype(np.float32)
        for values_HW, raw_HW, band in zip(values_CHW, raw_CHW, bands, strict=True):
            scale, offset, nodata, _ = band.radiometry
            if (scale, offset) != (1, 0):
                values_HW[...] = raw_HW * scale + offset
            values_HW[~np.isfinite(values_HW)] = np.nan
            if nodata is not None:
                values_HW[raw_HW == nodata] = np.nan
        dataset = _reader(path, self.grid)
        with naming(path):
            gap_HW = gaps(dataset, window)
        if gap_HW is not None:
            values_CHW[:, gap_HW] = np.nan
        return values_CHW

    def _read_parts(self, rows: slice, columns: slice, clear: bool) -> Array:
        shape = len(self.bands), rows.stop - rows.start, columns.stop - columns.start
        values_CHW = np.full(shape, np.nan, np.float32)
        for part, row, column in self.parts:
            (from_row, to_row), (from_column, to_column) = (
                (max(wanted.start, start), min(wanted.stop, start + size))
                for wanted, start, size in (
                    (rows, row, part.grid.height), (columns, column, part.grid.width),
                )
            )  # fmt: skip
            if from_row < to_row and from_column < to_column:
                own = (
                    slice(from_row - row, to_row - row),
                    slice(from_column - column, to_column - column),
                )
                more_CHW = part.read(*own, clear)
                below_CHW = values_CHW[
                    :, from_row - rows.start : to_row - rows.start,
                    from_column - columns.start : to_column - columns.start,
                ]  # fmt: skip
                np.copyto(below_CHW, more_CHW, where=np.isfinite(more_CHW))
        return values_CHW

    def _cloudy(self, clouds: Clouds, window: Window) -> NDArray[np.bool_]:
        path, index = clouds.band.rsplit("|", 1)
        said_HW = _raw(path, self.grid, [int(index)], window, smooth=False)[0]
        bits = sum(1 << bit for bit in clouds.bits)
        return np.isin(said_HW, clouds.values) | (said_HW.astype(np.int64) & bits != 0)


def _reader(path: str, grid: Grid, smooth: bool = True) -> Any:
    dataset = open_raster(path)
    return dataset if Grid.of(dataset).equals(grid) else open_raster(path, grid, smooth)


def _raw(
    path: str, grid: Grid, indexes: Sequence[int], window: Window, smooth: bool = True
) -> NDArray[Any]:
    dataset = _reader(path, grid, smooth)
    with naming(path):
        return dataset.read(list(indexes), window=window)


def find_scenes(
    paths: Paths, reading: Reading, key: str = "data.path", clouds: Mapping[str, Any] | None = None
) -> list[Scene]:
    """The scenes of files, in natural order.

    Args:
        paths: A file, a folder, a pattern, or several.
        reading: How.
        key: What the user wrote ``paths`` for, to name in messages.
        clouds: Arguments of :class:`Clouds`.

    Raises:
        DataError: A file cannot be opened or used, or does not fit into a mosaic.
    """
    groups: dict[Any, dict[str, Path]] = {}
    for file in find_files(paths, key=key):
        token = TOKEN.search(RESOLUTION.sub("", file.stem))
        group, name = (_scene_key(file), token[1]) if token else (file, "")
        resolution = RESOLUTION.search(file.stem)
        known = groups.setdefault(group, {})
        if name not in known or (resolution and resolution[0] < known[name].stem[-4:]):
            known[name] = file  # the finest of a band's resolutions comes first in the alphabet
    scenes = []
    for files in groups.values():
        named = len(files) > 1 or _is_single(next(iter(files.values())))
        opened = files.items() if named else [("", it) for it in files.values()]
        scenes += _with_clouds(_open_scenes(dict(opened), reading), clouds)
    return [_mosaic(scenes)] if reading.mosaic and len(scenes) > 1 else scenes


def _is_single(file: Path) -> bool:
    parts = parts_of(file)
    return len(parts) == 1 and open_raster(parts[0]).count == 1


def _scene_key(file: Path) -> tuple[Path, str]:
    folder = file.parent.parent if re.fullmatch(r"R\d+m", file.parent.name) else file.parent
    return folder, TOKEN.sub("*", RESOLUTION.sub("", file.stem), 1)


def _open_scenes(files: Mapping[str, Path], reading: Reading) -> list[Scene]:
    """One scene, or one a step where a file's variables have several."""
    bands: list[list[Band]] = []
    notes: list[str] = []
    alpha = None
    first = next(iter(files.values()))
    for name, file in files.items():
        for part in parts_of(file):
            dataset = open_raster(part)
            _refuse_palette(dataset)
            names = _names(dataset, name or (part.rsplit(":", 1)[-1] if part != str(file) else ""))
            transparent = alpha_of(dataset, reading.alpha)
            if transparent is not None:
                alpha = part, transparent
            elif ColorInterp.alpha in dataset.colorinterp and reading.alpha == "auto":
                notes.append(f"{file}: a band tagged as alpha has grey levels, it is an image")
            bands.append([
                Band(part, n, text, radiometry.find(dataset, n, text))
                for n, text in enumerate(names, 1)
                if n != transparent
            ])  # fmt: skip
    steps = len(bands[0]) if first.suffix.lower() == ".nc" and len(bands) > 1 else 0
    chosen = list(map(list, zip(*bands, strict=True))) if steps else [list(chain(*bands))]
    title = first.stem if len(files) == 1 else TOKEN.sub("bands", first.stem, 1)
    return [
        _scene(f"{title}-{n}" if steps > 1 else title, it, alpha, reading, notes)
        for n, it in enumerate(chosen)
    ]


def _scene(
    name: str, bands: list[Band], alpha: Any, reading: Reading, notes: Iterable[str]
) -> Scene:
    if reading.bands:
        if len(reading.bands) != len(bands):
            found = f"{bands[0].path} has {len(bands)} ({', '.join(it.name for it in bands)})"
            raise DataError(f"bands: {len(reading.bands)} names were given, {found}")
        bands = [it._replace(name=str(n)) for it, n in zip(bands, reading.bands, strict=True)]
    if reading.nodata is not None:
        bands = [
            it._replace(radiometry=it.radiometry._replace(nodata=reading.nodata)) for it in bands
        ]
    grids = [Grid.of(open_raster(band.path)) for band in bands]
    # Panchromatic and thermal bands have grids of their own: most bands decide.
    grid = max(grids, key=lambda it: (sum(it.equals(other) for other in grids), it.height))
    return Scene(name, grid, tuple(bands), alpha, notes=tuple(notes))


def _with_clouds(scenes: list[Scene], clouds: Mapping[str, Any] | None) -> list[Scene]:
    """Puts the place of the band that knows of clouds where its name was."""
    if not clouds or not clouds.get("band"):
        return scenes
    found = []
    for scene in scenes:
        band = scene.select([str(clouds["band"])]).bands[0]
        known = Clouds(**{**clouds, "band": f"{band.path}|{band.index}"})
        others = tuple(it for it in scene.bands if it != band)
        found.append(replace(scene, bands=others, clouds=known))
    return found


def _refuse_palette(dataset: Any) -> None:
    if ColorInterp.palette in dataset.colorinterp:
        raise DataError(
            f"{dataset.name}: its numbers are entries of a colour table, between which there is "
            "nothing; leave it out, or convert it to colours (gdal_translate -expand rgb)"
        )


def _names(dataset: Any, name: str) -> list[str]:
    """Of the bands: described, or by colour, or counted."""
    if name:
        return [name] * dataset.count
    colours = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
    found = [
        text or (colour.name if colour in colours else f"band_{n}")
        for n, (text, colour) in enumerate(
            zip(dataset.descriptions, dataset.colorinterp, strict=True), 1
        )
    ]
    return found if len(set(found)) == len(found) else [f"band_{n + 1}" for n in range(len(found))]


def _mosaic(scenes: list[Scene]) -> Scene:
    """One scene on the grid of the first, whose pixels go on over all of them."""
    first = scenes[0].grid
    parts, corners = [], []
    for scene in scenes:
        scene = scene.select(scenes[0].names)
        if not first.fits(scene.grid):
            found = f"{scene.name} has another grid or system than {scenes[0].name}"
            raise DataError(f"mosaic: {found}; warp it there first, or leave mosaic out")
        row, column = map(round, first.position_of(scene.grid))
        parts.append((scene, row, column))
        corners.append((row, column, row + scene.grid.height, column + scene.grid.width))
    tops, lefts, bottoms, rights = zip(*corners, strict=True)
    top, left, bottom, right = min(tops), min(lefts), max(bottoms), max(rights)
    grid = replace(first.moved(top, left), height=bottom - top, width=right - left)
    placed = tuple((scene, row - top, column - left) for scene, row, column in parts)
    return Scene(f"{scenes[0].name}-mosaic", grid, scenes[0].bands, parts=placed)
