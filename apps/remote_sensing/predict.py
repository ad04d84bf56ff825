"""Predictions: finer images of whole scenes, window by window.

Every window that is done lies in a folder beside the output until all are, so that an interrupted
prediction goes on where it was, and ranks share a scene. Suffixes: C band, H row, W column.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
import torch
from numpy.typing import NDArray
from torch import Tensor

from apps.remote_sensing.cog import Form, write_cog
from apps.remote_sensing.data import EIGHT_BIT, white_of
from apps.remote_sensing.raster import GDAL_CACHE_BYTES
from apps.remote_sensing.samples import FILL_REACH, fill
from apps.remote_sensing.scenes import Reading, Scene, find_scenes
from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError
from scadl_core.files import Paths, written_aside
from scadl_core.record.provenance import fingerprints
from scadl_core.workflow.tiles import Tiles

if TYPE_CHECKING:
    from apps.remote_sensing.task import SuperResolution

EVERY_SECONDS = 10.0  # between two lines of progress
WORDS = ("8-bit", "declared")  # what files themselves say about white


def predict_files(
    task: SuperResolution, inputs: Paths, output: Path, provenance: Mapping[str, Any],
    tile: int | None = None, memory_GiB: float = 0.25, white: float | None = None,
    bands: Sequence[str] = (), nodata: float | None = None, alpha: str = "auto",
    mosaic: bool = False, world: World | None = None,
) -> Path:  # fmt: skip
    """Applies a trained task to every scene in some files.

    A pixel of the output is nodata where the pixel of the input that contains it is, and nowhere
    else.

    Args:
        task: What predicts; it knows its bands, and what counts as white.
        inputs: A file, a folder, a pattern, or several.
        output: The file to write, whole or not at all; of several scenes, or of a folder that is
            there, the folder in which to name them after the inputs.
        provenance: Of the run; a short form goes into the file's tags.
        tile: Pixels of the windows, or None; and
        memory_GiB: for None, as in :class:`scadl_core.workflow.tiles.Tiles`.
        white: The physical value that counts as 1, where files do not say what their numbers mean.
        bands: Names of the bands; this,
        nodata: the number that stands for nothing,
        alpha: what a band tagged so is, and
        mosaic: whether files are one scene, as in :class:`apps.remote_sensing.scenes.Reading`.
        world: Processes that share the work, on one file system.

    Returns:
        The file written, or the folder of several.

    Raises:
        ConfigError: A tile of less than a pixel, or the network allows none.
        DataError: An input is missing or broken, lacks a band, or would be overwritten.
    """
    world = world or World()
    tiles = Tiles(task.network, len(task.facts["inputs"]), tile, memory_GiB)
    with rasterio.Env(GDAL_CACHEMAX=GDAL_CACHE_BYTES):
        reading = Reading(bands, nodata, alpha, mosaic)
        scenes = world.together(
            lambda: [_select(it, task.facts) for it in find_scenes(inputs, reading, "input")]
        )
        outputs = _name_outputs(Path(output).expanduser(), scenes, task.sensor.scale)
        for scene, path in zip(scenes, outputs, strict=True):
            of_white = world.together(lambda scene=scene: _white(scene, task.facts, white))
            _Prediction(task, scene, tiles, of_white, path, provenance, world).run()
    return outputs[0] if len(outputs) == 1 else outputs[0].parent


def _select(scene: Scene, facts: Mapping[str, Any]) -> Scene:
    """The bands that the model was trained on: by name, or in order if they are nameless."""
    names = facts["inputs"]
    nameless = all(name.startswith("band_") for name in scene.names)
    nameless |= all(name.startswith("band_") for name in names)
    if nameless and len(scene.images) == len(names):
        return scene.select(scene.images)
    return scene.select(names)


def _white(scene: Scene, facts: Mapping[str, Any], given: float | None) -> float:
    kind, origin = white_of(scene), facts["white_origin"]
    if given is not None:
        if not given > 0:
            raise ConfigError(f"predict.white: expected more than 0, got {given!r}")
        return float(given)
    if origin == "given" or (origin == kind == "measured"):
        return float(facts["white"])
    if kind in WORDS:
        return EIGHT_BIT if kind == "8-bit" else 1.0
    found = f"{scene.files[0]}: does not say what its numbers mean, and the model was trained on"
    raise DataError(f"{found} {origin} values; set predict.white=<the number of reflectance 1>")


def _name_outputs(output: Path, scenes: Sequence[Scene], scale: int) -> list[Path]:
    if len(scenes) > 1 and output.suffix.lower() in (".tif", ".tiff"):
        found = f"output={output} is one file, there are {len(scenes)} scenes"
        raise DataError(f"{found}; give a folder, or predict.mosaic=true for parts of one scene")
    if len(scenes) > 1 or output.is_dir():
        outputs = [output / f"{scene.name}_x{scale}.tif" for scene in scenes]
    else:
        is_named = output.suffix.lower() in (".tif", ".tiff")
        outputs = [output if is_named else output.with_name(f"{output.name}.tif")]
    files = {file.resolve() for scene in scenes for file in scene.files}
    for number, path in enumerate(outputs):
        if path.resolve() in files:
            raise DataError(f"output={path} is an input as well; choose another name")
        if path in outputs[:number]:
            raise DataError(f"input: two scenes are called {scenes[number].name}; rename one")
        path.parent.mkdir(parents=True, exist_ok=True)
    return outputs


@dataclass
class _Prediction:
    """One scene."""

    task: SuperResolution
    scene: Scene
    tiles: Tiles
    white: float
    output: Path
    provenance: Mapping[str, Any]
    world: World

    def run(self) -> None:
        """Computes what is not there yet, then puts it together."""
        self.form, self.scale = Form.of(self.scene), self.task.sensor.scale
        self.weights = _digest(self.task.network.state_dict())
        self.folder = self.output.with_name(f".{self.output.stem}.{self._key()}.windows")
        self.world.first(self._begin)
        self.world.together(self._compute)
        self.world.first(self._finish)

    def _key(self) -> str:
        """What the windows depend on."""
        grid = self.scene.grid
        about = [
            self.weights,
            str(self.scene),
            self.white,
            self.tiles.tile,
            self.tiles.memory_bytes,
        ]
        about += [grid.height, grid.width, fingerprints(self.scene.files)]
        return hashlib.blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()

    def _begin(self) -> None:
        for older in self.output.parent.glob(f".{self.output.stem}.*.windows"):
            if older != self.folder:
                shutil.rmtree(older)
        self.folder.mkdir(exist_ok=True)

    def _compute(self) -> None:
        grid, level_C = self.scene.grid, np.array(self.task.facts["mean_C"])
        ahead = _Ahead(grid.height * grid.width, self.scene.name, self.world)
        turn = 0

        def wanted(rows: slice, columns: slice) -> bool:
            nonlocal turn
            ahead.pixels += (rows.stop - rows.start) * (columns.stop - columns.start)
            if not np.isfinite(self.scene.read(rows, columns)).any():
                return False
            turn += 1
            mine = (turn - 1) % self.world.size == self.world.rank
            return mine and not self._file(rows, columns).exists()

        def read(rows: slice, columns: slice) -> Tensor:
            values_CHW = self._filled(rows, columns, level_C)
            return torch.from_numpy(values_CHW).to(self.task.device)

        with torch.no_grad():
            found = self.tiles(read, grid.height, grid.width, wanted)
            for rows, columns, fine_CHW in found:
                rows, columns = (_coarse(it, self.scale) for it in (rows, columns))
                self._save(rows, columns, fine_CHW.double().cpu().numpy())
                ahead.tell()

    def _filled(self, rows: slice, columns: slice, level_C: NDArray[np.float64]) -> NDArray:
        """Values in units of white; gaps are filled from around them, beyond the window too."""
        grid = self.scene.grid
        wide = [
            slice(max(it.start - FILL_REACH, 0), min(it.stop + FILL_REACH, size))
            for it, size in ((rows, grid.height), (columns, grid.width))
        ]
        values_CHW = self.scene.read(*wide) / np.float32(self.white)
        inner = [
            slice(it.start - around.start, it.stop - around.start)
            for it, around in zip((rows, columns), wide, strict=True)
        ]
        return np.ascontiguousarray(fill(values_CHW, level_C)[:, *inner])

    def _save(self, rows: slice, columns: slice, fine_CHW: NDArray[np.float64]) -> None:
        gap_CHW = np.isnan(self.scene.read(rows, columns))
        gap_CHW = gap_CHW.repeat(self.scale, 1).repeat(self.scale, 2)
        numbers_CHW = self.form.encode(fine_CHW * self.white, gap_CHW)
        extras = self.form.extras(self.scene.grid, rows, columns, self.scale)
        with written_aside(self._file(rows, columns)) as aside:
            np.save(aside, np.concatenate([numbers_CHW, *(it[None] for it in extras)]))

    def _file(self, rows: slice, columns: slice) -> Path:
        name = f"{rows.start}-{rows.stop}_{columns.start}-{columns.stop}.npy"
        return self.folder / name

    def _finish(self) -> None:
        def parts() -> Any:
            for file in sorted(self.folder.glob("[0-9]*.npy")):
                rows, columns = (
                    slice(*(int(it) * self.scale for it in axis.split("-")))
                    for axis in file.stem.split("_")
                )
                yield rows, columns, np.load(file, allow_pickle=False)

        write_cog(
            self.output, self.scene, self.form, self.scale, parts(), self._tags(), self.folder
        )  # fmt: skip
        shutil.rmtree(self.folder)

    def _tags(self) -> dict[str, str]:
        """Where the image comes from: nothing of when, where, or by how many ranks."""
        return {
            "SCADL_VERSION": str(self.provenance["versions"]["scadl"]),
            "SCADL_GIT_COMMIT": str(self.provenance["git"].get("sha", "unknown")),
            "SCADL_MODEL": type(self.task.network).__name__,
            "SCADL_WEIGHTS": self.weights,
            "SCADL_SEED": str(self.task.seed),
            "SCADL_SCALE": str(self.scale),
            "SCADL_INPUTS": ", ".join(self.scene.names),
        }


@dataclass
class _Ahead:
    """Says now and then how much is done, and how long the rest will take."""

    total: int
    name: str
    world: World
    pixels: int = 0

    def __post_init__(self) -> None:
        self.began = self.told = time.monotonic()

    def tell(self) -> None:
        """Says so, on the first rank, if it has not for a while."""
        now = time.monotonic()
        if not self.world.is_first or now - self.told < EVERY_SECONDS:
            return
        self.told, share = now, self.pixels / self.total
        left = (now - self.began) * (1 / share - 1)
        print(f"{self.name}: {share:.0%}, about {left:.0f} s left", file=sys.stdout, flush=True)


def _digest(state: Mapping[str, Tensor]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for name, tensor in state.items():
        found.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def _coarse(fine: slice, scale: int) -> slice:
    return slice(fine.start // scale, fine.stop // scale)
