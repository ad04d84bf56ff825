"""Writing a finer image of a scene as cloud-optimised GeoTIFF, with all that the scene's files say.

Suffixes: C band (then alpha and mask, where the scene has them), H row, W column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from rasterio.control import GroundControlPoint
from rasterio.enums import ColorInterp
from rasterio.rpc import RPC
from rasterio.windows import Window

from apps.remote_sensing.raster import Grid, close_all, has_mask, naming, open_raster, quiet
from apps.remote_sensing.scenes import Scene
from scadl_core.files import written_aside

STALE = re.compile(r"STATISTICS_|OVR_RESAMPLING|_FillValue|scale_factor|add_offset|NETCDF_DIM_")
BLOCK = 512


@dataclass(frozen=True)
class Form:
    """How pixels are stored: as in the scene's files.

    Attributes:
        dtype: Of all bands.
        nodata: What stands for nothing, or None.
        scale_C: Physical value = number * scale + offset.
        offset_C: See above.
        alpha: Path and index of the alpha band, or None.
        masked: Path of the file whose mask is kept, or None.
    """

    dtype: np.dtype
    nodata: float | None
    scale_C: NDArray[np.float64]
    offset_C: NDArray[np.float64]
    alpha: tuple[str, int] | None
    masked: str | None

    @classmethod
    def of(cls, scene: Scene) -> Form:
        """That of a scene; of a mosaic, that of its first part, without alpha or mask."""
        lead = scene.parts[0][0] if scene.parts else scene
        datasets = [open_raster(band.path) for band in lead.bands]
        kinds = [it.dtypes[band.index - 1] for it, band in zip(datasets, lead.bands, strict=True)]
        dtype = np.result_type(*kinds)
        nodata = lead.bands[0].radiometry.nodata
        if nodata is not None and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            holds = float(nodata).is_integer() and limits.min <= nodata <= limits.max
            nodata = nodata if holds else None
        if nodata is None and dtype.kind == "f":
            nodata = np.nan
        masked = next((it.name for it in datasets if has_mask(it)), None)
        return cls(
            dtype, nodata,
            np.array([band.radiometry.scale for band in lead.bands]),
            np.array([band.radiometry.offset for band in lead.bands]),
            None if scene.parts else scene.alpha, None if scene.parts else masked,
        )  # fmt: skip

    def encode(self, values_CHW: NDArray[np.floating], gap_CHW: NDArray[np.bool_]) -> NDArray:
        """Numbers of physical values: the nearest of the type that does not stand for nothing; and
        what stands for nothing in the gaps, 0 where nothing does.
        """
        offset_C11, scale_C11 = (it[:, None, None] for it in (self.offset_C, self.scale_C))
        numbers_CHW = (values_CHW - offset_C11) / scale_C11
        if self.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            numbers_CHW = np.rint(numbers_CHW).clip(limits.min, limits.max)
        numbers_CHW = numbers_CHW.astype(self.dtype)
        if self.nodata is None:
            return np.where(gap_CHW, 0, numbers_CHW).astype(self.dtype)
        nodata = self.dtype.type(self.nodata)
        numbers_CHW[numbers_CHW == nodata] = self._beside(nodata)
        return np.where(gap_CHW, nodata, numbers_CHW)

    def _beside(self, nodata: Any) -> Any:
        if self.dtype.kind == "f":
            return np.nextafter(nodata, self.dtype.type(0 if nodata else 1))
        return nodata - 1 if nodata == np.iinfo(self.dtype).max else nodata + 1

    def extras(self, grid: Grid, rows: slice, columns: slice, scale: int) -> list[NDArray]:
        """The alpha band and the mask, every pixel repeated."""
        window, found = _window(rows, columns), []
        if self.alpha is not None:
            with naming(self.alpha[0]):
                found.append(open_raster(self.alpha[0]).read(self.alpha[1], window=window))
        if self.masked is not None:
            with naming(self.masked):
                found.append(open_raster(self.masked).read_masks(1, window=window))
        return [it.repeat(scale, 0).repeat(scale, 1).astype(self.dtype) for it in found]


def write_cog(
    output: Path, scene: Scene, form: Form, scale: int,
    parts: Iterable[tuple[slice, slice, NDArray]], tags: Mapping[str, str], scratch: Path,
) -> None:  # fmt: skip
    """Writes a finer image of a scene, whole or not at all.

    Args:
        output: The file.
        scene: What it is of.
        form: How numbers are stored.
        scale: How many times finer.
        parts: Rows, columns and numbers of windows, shape CHW with alpha and mask last; elsewhere
            there is nothing.
        tags: Of the file, beside those that it has from the scene's.
        scratch: A folder for the image before it is put in order.
    """
    grid = scene.grid.finer(scale)
    lead = scene.parts[0][0] if scene.parts else scene
    source = open_raster(lead.bands[0].path)
    count, plain = len(scene.bands) + (form.alpha is not None), scratch / "image.tif"
    profile: dict[str, Any] = {
        "driver": "GTiff", "dtype": form.dtype, "count": count, "height": grid.height,
        "width": grid.width, "tiled": True, "blockxsize": BLOCK, "blockysize": BLOCK,
        "sparse_ok": True, "bigtiff": "IF_SAFER", "compress": "deflate", "zlevel": 1,
        "photometric": "minisblack", "nodata": form.nodata,
    }  # fmt: skip
    if grid.crs:
        profile["crs"] = rasterio.CRS.from_wkt(grid.crs)
    if scene.grid.affine != scene.grid.affine.identity():
        profile["transform"] = grid.affine
    with naming(output), quiet(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        with rasterio.open(plain, "w", **profile) as image:
            _describe(image, source, lead, form, scale, tags)
            for rows, columns, numbers_CHW in parts:
                window = _window(rows, columns)
                image.write(numbers_CHW[:count], window=window)
                if form.masked is not None:
                    image.write_mask(numbers_CHW[count].astype(np.uint8), window=window)
        close_all()  # an older output may be among what is open
        with written_aside(output) as aside:
            rasterio.shutil.copy(
                plain, aside, driver="COG", BLOCKSIZE=BLOCK, COMPRESS="DEFLATE", PREDICTOR="YES",
                BIGTIFF="IF_SAFER", OVERVIEWS="IGNORE_EXISTING", RESAMPLING="AVERAGE",
                SPARSE_OK=True,
            )  # fmt: skip


def _describe(
    image: Any, source: Any, lead: Scene, form: Form, scale: int, tags: Mapping[str, str]
) -> None:
    """Names, units, colours, tags, and where the image lies by points or polynomials."""
    image.update_tags(**_kept(source.tags()), **tags)
    colours = [_colour(open_raster(band.path), band.index) for band in lead.bands]
    alpha = [ColorInterp.alpha] * (form.alpha is not None)
    several = len({band.path for band in lead.bands}) > 1
    image.colorinterp = [*_plausible(colours, several), *alpha]
    for number, band in enumerate(lead.bands, 1):
        dataset = open_raster(band.path)
        image.update_tags(number, **_kept(dataset.tags(band.index)))
        described = dataset.descriptions[band.index - 1] or (band.name if several else None)
        if described:
            image.set_band_description(number, described)
        if dataset.units[band.index - 1]:
            image.set_band_unit(number, dataset.units[band.index - 1])
    extra = image.count - len(lead.bands)
    places = [(open_raster(band.path), band.index - 1) for band in lead.bands]
    declared = ((it.scales[n], it.offsets[n]) for it, n in places)
    if any(it != (1, 0) for it in declared):
        image.scales = (*form.scale_C, *[1.0] * extra)
        image.offsets = (*form.offset_C, *[0.0] * extra)
    points, system = source.gcps
    if points:
        image.gcps = [_finer(point, scale) for point in points], system
    if source.rpcs:
        image.rpcs = _finer_rpcs(source.rpcs, scale)


def _colour(dataset: Any, index: int) -> ColorInterp:
    colour: ColorInterp = dataset.colorinterp[index - 1]
    return ColorInterp.undefined if colour == ColorInterp.alpha else colour


def _plausible(colours: Sequence[ColorInterp], several: bool) -> list[ColorInterp]:
    """Of files a band, each is grey by itself; together only the first can be."""
    if not several:
        return list(colours)
    return [colours[0], *[ColorInterp.undefined] * (len(colours) - 1)]


def _kept(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags that hold for a finer image too."""
    return {name: value for name, value in tags.items() if not STALE.search(name)}


def _finer(point: GroundControlPoint, scale: int) -> GroundControlPoint:
    return GroundControlPoint(
        point.row * scale, point.col * scale, point.x, point.y, point.z, point.id, point.info
    )


def _finer_rpcs(rpcs: RPC, scale: int) -> RPC:
    """Rational polynomials count from the centre of the first pixel."""
    found = RPC(**rpcs.to_dict())
    for axis in ("line", "samp"):
        offset = getattr(rpcs, f"{axis}_off") * scale + (scale - 1) / 2
        setattr(found, f"{axis}_off", offset)
        setattr(found, f"{axis}_scale", getattr(rpcs, f"{axis}_scale") * scale)
    return found


def _window(rows: slice, columns: slice) -> Window:
    return Window(columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start)
