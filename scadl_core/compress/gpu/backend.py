"""Runs on a GPU to tiles and back: :mod:`scadl_core.compress.cpu.stream` for CuPy arrays.

Everything goes to CuPy's current stream. The words are those of the CPU, to the byte.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from scadl_core.compress.formats import Format, value_of_key
from scadl_core.compress.gpu.tiles import BLOCK, Arena, DeviceTiles
from scadl_core.compress.laws import LOGARITHMIC, Law
from scadl_core.compress.tiling import GROUP, TILE, Tiles, count_tiles
from scadl_core.errors import StreamError

THREADS = 32 * BLOCK
U32, U64 = np.uint32, np.uint64
_NOTHING = U64(0)  # a null pointer
_UNHARMED = U64(2**64 - 1)


@contextmanager
def placed(device: int, is_torch: bool) -> Iterator[None]:
    """Makes a device and the caller's stream current.

    Args:
        device: Its number.
        is_torch: Whether the stream is torch's current one; else it is CuPy's.
    """
    with cupy.cuda.Device(device):
        if not is_torch:
            yield
            return
        import torch

        with cupy.cuda.Stream.from_external(torch.cuda.current_stream(device)):
            yield


@functools.cache
def _module(device: int) -> Any:
    folder = Path(__file__).parent
    # CuPy keeps what it compiled by the text of source and options, not of what is included.
    headers = b"".join(path.read_bytes() for path in sorted(folder.glob("*.cuh")))
    lanes = cupy.cuda.Device(device).attributes["WarpSize"]
    contract = "--fmad=false" if lanes == 32 else "-ffp-contract=off"
    defines = (f"-DSCADL_LANES={lanes}", f"-DSCADL_HEADERS={zlib.crc32(headers)}")
    return cupy.RawModule(
        code=(folder / "kernels.cu").read_text(),
        options=("-std=c++17", *defines, contract, f"-I{folder}"),
    )


def _launch(name: str, blocks: int, *args: Any) -> None:
    module = _module(cupy.cuda.runtime.getDevice())
    module.get_function(name)((blocks,), (THREADS,), args)


def _numbers(law: Law) -> tuple[Any, ...]:
    whole = (law.kind, law.predictor, law.width, law.dithered, law.seed, law.shift)
    real = (law.inverse, law.step, law.tolerance)
    return *map(U32, whole), U64(law.base), *map(np.float64, real)


def scan(values: Any, form: Format) -> tuple[float, float, int]:
    """As :func:`scadl_core.compress.cpu.stream.scan`; waits for the device."""
    found = cupy.asarray(np.array([form.infinity, -form.infinity, form.infinity], np.int64))
    if values.size:
        blocks = min(-(-values.size // (16 * THREADS)), 4096)
        _launch(f"scan_{form.name}", blocks, values, U64(values.size), found)
    low, high, least = (int(key) for key in cupy.asnumpy(found))
    if low > high:
        return 0.0, 0.0, form.infinity
    return value_of_key(low, form), value_of_key(high, form), least


def _encode(values: Any, form: Format, law: Law, tiles: DeviceTiles, stride: int = 1) -> Any:
    """Launches the encoder; returns the statistics, on the device."""
    count = tiles.device_descriptors.size
    blocks = -(-count // BLOCK)
    states, stats = cupy.zeros(blocks + 1, U64), cupy.zeros(2, U64)
    if count:
        cursor = _NOTHING if tiles.cursor is None else tiles.cursor
        _launch(
            f"encode_{form.name}", blocks, values, U64(values.size), U32(count), U32(stride),
            *_numbers(law), states, cursor, U32(tiles.per_base), tiles.device_words,
            U64(tiles.device_words.size), tiles.device_descriptors, tiles.device_bases, stats,
        )  # fmt: skip
    return stats


def encode(values: Any, form: Format, law: Law) -> tuple[DeviceTiles, tuple[float, float]]:
    """As :func:`scadl_core.compress.cpu.stream.encode`; waits for the device to learn the size."""
    count = count_tiles(values.size)
    room = cupy.empty(count * 32 * max(form.bits, 32) + 8 * count, U32)
    tiles = DeviceTiles.empty(cupy, count, room, GROUP)
    stats = _encode(values, form, law, tiles)
    return tiles.trimmed(), _statistics(stats, law, form)


def encode_into(arena: Arena, values: Any, form: Format, law: Law) -> tuple[DeviceTiles, Any]:
    """Codes a run into an arena without waiting for the device.

    Args:
        arena: Where the words go. What does not fit is not written, and decoding it is an error.
        values: 1-D CuPy array, see :class:`scadl_core.compress.arrays.Run`.
        form: Type of the elements.
        law: How.

    Returns:
        The tiles, and on the device, uint64, the pattern of the largest error and the sum of
        squared errors in units of step / 2048.
    """
    tiles = DeviceTiles.empty(cupy, count_tiles(values.size), arena.words, BLOCK, arena.cursor)
    return tiles, _encode(values, form, law, tiles)


def _statistics(stats: Any, law: Law, form: Format) -> tuple[float, float]:
    worst, squares = cupy.asnumpy(stats)
    if law.kind == LOGARITHMIC:
        return float(worst), float(squares)
    if form.bits == 64:
        return float(worst.view(np.float64)), float(squares)
    return float(worst.astype(U32).view(np.float32)), float(squares)


def measure(values: Any, form: Format, law: Law, widths: list[int], stride: int) -> list[int]:
    """As :func:`scadl_core.compress.cpu.stream.measure`; waits for the device."""
    whole = values[: values.size // TILE * TILE]
    count = -(-whole.size // TILE // stride)
    sizes = []
    for predictor, width in enumerate(widths):
        tiles = DeviceTiles.empty(cupy, count, cupy.empty(0, U32), GROUP)
        _encode(whole, form, law._replace(predictor=predictor, width=width), tiles, stride)
        sizes.append(tiles.num_words)
    return sizes


def decode(found: Tiles | DeviceTiles, form: Format, law: Law, values: Any, first: int = 0) -> None:
    """As :func:`scadl_core.compress.cpu.stream.decode`; waits for the device only where the tiles
    came from elsewhere, or from an arena that they may not have found room in.

    Args:
        found: Tiles, on the device or not.
        form: Type of the elements.
        law: How they were coded.
        values: 1-D CuPy array, receives them.
        first: The tile at which ``values`` begins.

    Raises:
        StreamError: A tile is not what its descriptor says.
    """
    tiles = found if isinstance(found, DeviceTiles) else DeviceTiles.of(cupy, found)
    damaged = cupy.full(1, _UNHARMED, U64)
    blocks = -(-values.size // (BLOCK * TILE))
    if blocks:
        _launch(
            f"decode_{form.name}", blocks, tiles.device_words, U64(tiles.device_words.size),
            tiles.device_descriptors, tiles.device_bases, U32(tiles.per_base),
            U32(tiles.device_descriptors.size), *_numbers(law), values, U64(values.size),
            U32(first), damaged,
        )  # fmt: skip
    if not tiles.trusted and (wrong := int(damaged[0])) != _UNHARMED:
        raise StreamError(f"tile {wrong} is damaged: its parts do not fit its size")
