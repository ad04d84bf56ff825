"""What one looks at first: the image beside interpolation, truth and errors; spectra of kinds of
ground; detail by its size; seams of windows; and where the scenes lie.

Suffixes: B batch, C band, H row, W column, K kind of ground, N pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon
from numpy.typing import NDArray
from rasterio.warp import transform
from scipy.cluster.vq import kmeans2

from apps.remote_sensing.model import bicubic
from apps.remote_sensing.splits import SPLITS
from scadl_core.errors import ConfigError
from scadl_core.workflow.tiles import Tiles

if TYPE_CHECKING:
    from apps.remote_sensing.data import SceneData
    from apps.remote_sensing.task import SuperResolution

KINDS = 5
COLOURS = {"truth": "#222222", "interpolation": "#d9822b", "prediction": "#2b6ca3"}
SPLIT_COLOURS = {"train": "#7a9e7e", "val": "#d9822b", "test": "#2b6ca3"}
MOST_PIXELS = 20_000
SEAM_TILE = 24


def draw(
    task: SuperResolution, source: SceneData, folder: Path, num_samples: int
) -> dict[str, str]:
    """Draws PNG files of a trained task's test samples, and gives their captions.

    Raises:
        ConfigError: A number of samples below 0.
    """
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 0:
        raise ConfigError(
            f"figures.num_samples: expected a whole number from 0, got {num_samples!r}"
        )
    samples, captions = source.samples("test"), dict[str, str]()
    best = sorted(range(len(samples)), key=lambda n: -_share(samples.read(n, None)))[:num_samples]
    drawn = [_images(task, samples.read(number, None)) for number in best]
    for number, images in enumerate(drawn):
        name = f"sample_{number}.png"
        _save(lambda axes, it=images: _panels(axes, it, source.inputs), folder / name, (2, 3), 10.5)
        captions[name] = (
            "A part of a test scene: what the sensor saw, interpolated, predicted, and the truth; "
            "errors are means over bands, in units of white."
        )
    if drawn:
        pictures: dict[str, tuple[Callable[[Any], None], str]] = {
            "spectra.png": (
                lambda axes: _spectra(axes[0, 0], drawn, source.inputs),
                "Mean spectra of kinds of ground, found in the truth by k-means.",
            ),
            "detail.png": (
                lambda axes: _detail(axes[0, 0], drawn, task.sensor.scale),
                "Power of detail by its size, of all bands; the line is where the sensor's "
                "pixels end.",
            ),
            "seams.png": (
                lambda axes: _seams(axes, task, samples.read(best[0], None)),
                "The prediction in small windows and as a whole, and how they differ.",
            ),
        }
        for name, (paint, caption) in pictures.items():
            _save(paint, folder / name, (1, 2 if name == "seams.png" else 1), 7)
            captions[name] = caption
    _save(lambda axes: _footprints(axes[0, 0], source), folder / "map.png", (1, 1), 6)
    captions["map.png"] = "Where scenes and their splits lie."
    return captions


def _save(paint: Any, path: Path, panels: tuple[int, int], width: float) -> None:
    height = width * panels[0] / panels[1] * (1.02 if panels[0] > 1 else 0.72)
    figure = Figure(figsize=(width, height), layout="constrained")
    paint(figure.subplots(*panels, squeeze=False))
    figure.savefig(path, dpi=110)


def _share(sample: dict[str, NDArray]) -> float:
    return float(sample["valid_CHW"].mean())


def _images(task: SuperResolution, sample: dict[str, NDArray]) -> dict[str, NDArray]:
    lr_BCHW = torch.from_numpy(sample["lr_CHW"])[None].to(task.device)
    with torch.no_grad():
        fine = {"interpolation": bicubic(lr_BCHW, task.sensor.scale), "prediction": task(lr_BCHW)}
    gap_CHW = ~sample["valid_CHW"]
    images = {name: it[0].float().cpu().numpy() for name, it in fine.items()}
    images["truth"] = sample["hr_CHW"]
    images = {name: np.where(gap_CHW, np.nan, it) for name, it in images.items()}
    return {"input": np.where(sample["lr_valid_CHW"], sample["lr_CHW"], np.nan), **images}


def _panels(axes: Any, images: dict[str, NDArray], bands: Sequence[str]) -> None:
    side = min(images["truth"].shape[1:]) // 2
    scale = images["truth"].shape[1] // images["input"].shape[1]
    start = (images["truth"].shape[1] - side) // 2 // scale * scale
    low, high = np.nanquantile(_colours(images["truth"], bands), (0.01, 0.99), axis=(0, 1))
    for place, name in zip(
        axes.flat, ("input", "interpolation", "prediction", "truth"), strict=False
    ):
        factor = 1 if name == "input" else scale
        at = slice(start // scale * factor, (start + side) // scale * factor)
        shown = (_colours(images[name][:, at, at], bands) - low) / np.maximum(high - low, 1e-9)
        place.imshow(np.nan_to_num(shown, nan=1.0).clip(0, 1), interpolation="nearest")
        place.set_title(name)
    errors = {
        name: np.abs(images[name] - images["truth"]).mean(0)[
            start : start + side, start : start + side
        ]
        for name in ("interpolation", "prediction")
    }
    top = float(np.nanquantile(errors["interpolation"], 0.99))
    for place, (name, error_HW) in zip(axes[1, 1:], errors.items(), strict=True):
        shown = place.imshow(error_HW, vmin=0, vmax=top, cmap="magma")
        place.set_title(f"error of {name}, mean {np.nanmean(error_HW):.4f}")
    place.figure.colorbar(shown, ax=list(axes[1, 1:]), shrink=0.8)
    for place in axes.flat:
        place.set(xticks=[], yticks=[])


def _colours(image_CHW: NDArray, bands: Sequence[str]) -> NDArray:
    """Red, green, blue where bands are called so; else the last three of the first, or grey."""
    names = [name.casefold() for name in bands]
    known = [names.index(it) for it in ("red", "green", "blue") if it in names]
    chosen = known if len(known) == 3 else [min(n, len(bands) - 1) for n in (2, 1, 0)]
    return image_CHW[chosen if len(bands) >= 3 else [0, 0, 0]].transpose(1, 2, 0)


def _spectra(axes: Axes, drawn: list[dict[str, NDArray]], bands: Sequence[str]) -> None:
    pixels = {
        name: np.concatenate([it[name].reshape(len(bands), -1) for it in drawn], 1).T
        for name in COLOURS
    }
    there_N = np.isfinite(pixels["truth"]).all(1)
    step = max(int(there_N.sum()) // MOST_PIXELS, 1)
    pixels = {name: it[there_N][::step] for name, it in pixels.items()}
    if len(pixels["truth"]) < KINDS:
        return
    _, kind_N = kmeans2(pixels["truth"], KINDS, minit="++", seed=0)
    for kind in np.unique(kind_N):
        for name, style in zip(COLOURS, ("-", ":", "--"), strict=True):
            mean_C = pixels[name][kind_N == kind].mean(0)
            label = name if kind == kind_N[0] else None
            axes.plot(range(len(bands)), mean_C, style, marker="o", markersize=3,
                      color=COLOURS[name], label=label)  # fmt: skip
    axes.set_xticks(range(len(bands)), list(bands))
    axes.set(ylabel="units of white")
    axes.legend(frameon=False)


def _detail(axes: Axes, drawn: list[dict[str, NDArray]], scale: int) -> None:
    for name, colour in COLOURS.items():
        spectra = [_power(it[name], it["truth"]) for it in drawn]
        frequency, power = np.mean(spectra, 0)
        axes.loglog(frequency, power, color=colour, label=name)
    axes.axvline(0.5 / scale, color="#999999", linewidth=0.8)
    axes.set(xlabel="cycles a fine pixel", ylabel="power")
    axes.legend(frameon=False)


def _power(image_CHW: NDArray, truth_CHW: NDArray) -> tuple[NDArray, NDArray]:
    """Frequencies, and the mean power at each over bands and directions."""
    mean_C = np.nanmean(truth_CHW, (1, 2))[:, None, None]
    plain_CHW = np.where(np.isfinite(image_CHW), image_CHW - mean_C, 0)
    height, width = plain_CHW.shape[1:]
    fade_HW = np.outer(np.hanning(height), np.hanning(width))
    power_HW = np.square(np.abs(np.fft.fft2(plain_CHW * fade_HW))).mean(0)
    radius_HW = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    edges = np.geomspace(2 / min(height, width), 0.5, 24)
    which = np.digitize(radius_HW.ravel(), edges)
    count = np.bincount(which, minlength=len(edges) + 1)[1:-1]
    total = np.bincount(which, power_HW.ravel(), minlength=len(edges) + 1)[1:-1]
    middle = np.sqrt(edges[1:] * edges[:-1])
    there = count > 0
    return middle, np.where(there, total / np.maximum(count, 1), np.nan)


def _seams(axes: Any, task: SuperResolution, sample: dict[str, NDArray]) -> None:
    lr_CHW = torch.from_numpy(sample["lr_CHW"]).to(task.device)
    with torch.no_grad():
        whole_CHW = task(lr_CHW[None])[0].cpu().numpy()
    tiled_CHW = np.empty_like(whole_CHW)
    tiles = Tiles(task.network, len(lr_CHW), SEAM_TILE)
    for rows, columns, part_CHW in tiles(lambda r, c: lr_CHW[:, r, c], *lr_CHW.shape[1:]):
        tiled_CHW[:, rows, columns] = part_CHW.cpu().numpy()
    difference_HW = np.abs(tiled_CHW - whole_CHW).max(0)
    axes[0, 0].imshow(tiled_CHW.mean(0), cmap="gray")
    axes[0, 0].set_title(f"in windows of {SEAM_TILE} pixels")
    shown = axes[0, 1].imshow(difference_HW, cmap="magma")
    axes[0, 1].set_title(f"difference, at most {difference_HW.max():.1e}")
    axes[0, 1].figure.colorbar(shown, ax=axes[0, 1], shrink=0.8)
    for place in axes.flat:
        place.set(xticks=[], yticks=[])


def _footprints(axes: Axes, source: SceneData) -> None:
    """In degrees where every scene has a system, else in pixels of each."""
    grids = [view.scenes[0].grid for view in source.views]
    placed = all(grid.is_placed for grid in grids)
    ratio = 1.0
    for name in SPLITS:
        for region in source.regions[name]:
            grid, view = grids[region.view], source.views[region.view]
            rows, columns = (
                [it.start / size * full, it.stop / size * full]
                for it, size, full in zip(
                    (region.rows, region.columns),
                    view.shape,
                    (grid.height, grid.width),
                    strict=True,
                )
            )
            corners = [(columns[i], rows[j]) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))]
            if placed:
                x, y = zip(*(grid.affine * corner for corner in corners), strict=True)
                corners = list(zip(*transform(grid.crs, "OGC:CRS84", x, y), strict=True))
                ratio = 1 / max(np.cos(np.deg2rad(corners[0][1])), 0.05)
            axes.add_patch(Polygon(corners, facecolor=SPLIT_COLOURS[name], edgecolor="white"))
            middle = np.mean(corners, 0)  # seen from far away, a scene is a dot
            axes.plot(*middle, ".", color=SPLIT_COLOURS[name], markersize=3)
    axes.autoscale()
    left, right, bottom, top = axes.axis()
    if 0.1 < ratio * (top - bottom) / (right - left) < 10:
        axes.set_aspect(ratio)
    if not placed:
        axes.invert_yaxis()
    labels = ("degrees east", "degrees north") if placed else ("column", "row")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.ticklabel_format(useOffset=False)
    axes.tick_params(axis="x", rotation=30)
    patches = [Patch(color=colour, label=name) for name, colour in SPLIT_COLOURS.items()]
    axes.legend(handles=patches, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
