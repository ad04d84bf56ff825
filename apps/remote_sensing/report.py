"""The data report: what is in a user's files, and what a reader should know before trusting it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from apps.remote_sensing.raster import open_raster
from apps.remote_sensing.scenes import Scene
from apps.remote_sensing.splits import SPLITS
from scadl_core.record.datareport import DataReport, Table

if TYPE_CHECKING:
    from apps.remote_sensing.data import SceneData

MOST_SCENES = 40  # that are listed one by one


def report(data: SceneData) -> DataReport:
    """Facts, tables of bands and scenes, and warnings."""
    white, origin = data.white
    ground = {
        name: sum(height * width for height, width in (it.shape for it in data.regions[name]))
        for name in SPLITS
    }
    counts = ", ".join(f"{pixels} {name}" for name, pixels in ground.items())
    source = "a file each" if data.target is not None else f"a sensor model, {data.sensor}"
    facts = {
        "files": f"{len(data.files())}, from {data.files()[0]} to {data.files()[-1]}",
        "scale": f"{data.sensor.scale}; low resolution from {source}",
        "white": f"{white:g} ({origin}): the value that counts as 1, the range of PSNR and SSIM",
        "low-resolution pixels": f"{counts} (by {data.split['by']})",
    }
    if data.shifts:
        shifts = [f"{name} {row:+.2f} {column:+.2f}" for name, (row, column) in data.shifts.items()]
        facts["shift of pairs (rows, columns)"] = ", ".join(shifts[:5])
    return DataReport("Georeferenced images", facts, [_bands(data), _scenes(data)], _warnings(data))


def _bands(data: SceneData) -> Table:
    of = data.statistics
    columns = ("mean", "std", "min", "max")
    numbers = [[f"{it:.5g}" for it in of[f"{name}_C"]] for name in columns]
    missing = [f"{it:.2%}" for it in of["missing_C"] / (of["missing_C"] + of["count_C"])]
    scene = _first(data.views[0].scenes[0])
    meant = [
        f"x {band.radiometry.scale:g} + {band.radiometry.offset:g} ({band.radiometry.origin})"
        if band.radiometry.origin else "as stored"
        for band in scene.bands
    ]  # fmt: skip
    rows = list(zip(data.inputs, meant, *numbers, missing, strict=True))
    return Table("Bands (train)", ("name", "radiometry", *columns, "missing"), rows)


def _scenes(data: SceneData) -> Table:
    rows = []
    for view in data.views[:MOST_SCENES]:
        scene, grid = _first(view.scenes[0]), view.scenes[0].grid
        dataset = open_raster(scene.bands[0].path)
        system = dataset.crs or dataset.gcps[1]
        code = f"EPSG:{system.to_epsg()}" if system and system.to_epsg() else "own"
        pixel = " x ".join(f"{it:.6g}" for it in (grid.affine.a, grid.affine.e))
        nodata = (
            ""
            if scene.bands[0].radiometry.nodata is None
            else f"{scene.bands[0].radiometry.nodata:g}"
        )
        rows.append((
            view.name, f"{grid.height} x {grid.width}", dataset.dtypes[0],
            code if system else "none", pixel, nodata,
        ))  # fmt: skip
    columns = ("scene", "pixels", "type", "system", "pixel", "nodata")
    return Table(f"Scenes ({len(data.views)})", columns, rows)


def _first(scene: Scene) -> Scene:
    return scene.parts[0][0] if scene.parts else scene


def _warnings(data: SceneData) -> list[str]:
    return list(dict.fromkeys([*data.notes, *_found(data)]))


def _found(data: SceneData) -> Iterator[str]:
    of, (white, origin) = data.statistics, data.white
    if origin == "measured":
        yield (
            f"files do not say what their numbers mean: white is the value of {white:g} that few "
            "pixels exceed; set data.white if you know better"
        )
    for name, low, high in zip(data.inputs, of["min_C"], of["max_C"], strict=True):
        if high <= low:
            yield f"{name} is {low:g} everywhere: nothing can be learnt from it"
    systems = {scene.grid.crs for view in data.views for scene in view.scenes}
    if len(systems) > 1:
        yield f"{len(systems)} reference systems: scenes are used each on its own grid"
    nowhere = [view.name for view in data.views if not view.scenes[0].grid.is_placed]
    if nowhere:
        yield f"without a reference system or a transform: {', '.join(nowhere[:5])}"
    for name, (row, column) in data.shifts.items():
        if max(abs(row), abs(column)) > 1:
            yield f"{name}: the pair was {row:+.2f} rows, {column:+.2f} columns apart"
