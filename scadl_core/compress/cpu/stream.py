"""Whole runs of elements to tiles and back, chunk by chunk over the threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress import threads
from scadl_core.compress.cpu import chunks, tiles
from scadl_core.compress.formats import Format, value_of_key
from scadl_core.compress.laws import LOGARITHMIC, Law
from scadl_core.compress.tiling import CHUNK, GROUP, SIZE_MASK, SLACK, TILE, Tiles
from scadl_core.errors import StreamError

_thread = threading.local()
_KEPT = 1 << 24  # words of scratch that a thread keeps at most


def _room() -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    if not hasattr(_thread, "room"):
        _thread.room = np.zeros(tiles.ROOM_WORDS, np.uint32), np.zeros(TILE, np.float32)
    room: tuple[NDArray[np.uint32], NDArray[np.float32]] = _thread.room
    return room


def _scratch(words: int) -> NDArray[np.uint32]:
    """Room for words, kept from call to call; only what is written to takes memory."""
    if words > _KEPT:
        return np.empty(words, np.uint32)
    if getattr(_thread, "scratch", np.empty(0)).size < words:
        _thread.scratch = np.empty(words, np.uint32)
    scratch: NDArray[np.uint32] = _thread.scratch
    return scratch


def scan(values: NDArray[Any], form: Format) -> tuple[float, float, int]:
    """Smallest and largest finite value (0 and 0 where there is none) and the smallest pattern of a
    magnitude above zero.
    """
    patterns = values.view(form.patterns)
    step = CHUNK * TILE
    found = threads.run(
        lambda first: chunks.scan(
            patterns[first : first + step], np.uint64(form.sign_bit), np.uint64(form.infinity)
        ),
        range(0, max(1, patterns.size), step),
    )
    low, high = min(f[0] for f in found), max(f[1] for f in found)
    if low > high:
        return 0.0, 0.0, form.infinity
    return value_of_key(low, form), value_of_key(high, form), min(f[2] for f in found)


def encode(values: NDArray[Any], form: Format, law: Law) -> tuple[Tiles, tuple[float, float]]:
    """Codes a run.

    Args:
        values: 1-D, see :class:`scadl_core.compress.arrays.Run`.
        form: Type of the elements.
        law: How.

    Returns:
        The tiles, and the kernels' largest error and sum of squared errors.
    """
    numbers = chunks.numbers_of(law)
    parts = _parts(_viewed(values, form, law))
    room_of = [part.size // TILE * tiles.most_words(form.bits) + SLACK for _, part in parts]

    def one(start: int, part: NDArray[Any], out: NDArray[np.uint32]) -> tuple[int, Any, Any]:
        room, noises = _room()
        descriptors, stats = np.empty(part.size // TILE, np.uint16), np.zeros(2)
        used = chunks.encode(
            part, part.view(np.uint16), *numbers, room, start, out, descriptors, noises, stats
        )
        return used, descriptors, stats

    def apart(job: int) -> tuple[NDArray[np.uint32], Any, Any]:
        out = _scratch(room_of[job])
        used, *rest = one(*parts[job], out)
        return out[:used].copy(), *rest

    def behind() -> list[tuple[NDArray[np.uint32], Any, Any]]:
        out, at, done = _scratch(sum(room_of)), 0, []
        for part in parts:
            used, *rest = one(*part, out[at:])
            done.append((out[at : at + used], *rest))
            at += used
        return done

    alone = threads.get_num_threads() == 1 or len(parts) <= 1
    done = behind() if alone else threads.run(apart, range(len(parts)))
    # Behind the words lies slack that a decoder may touch.
    words = np.concatenate([*(d[0] for d in done), np.zeros(SLACK, np.uint32)])
    descriptors = np.concatenate([np.empty(0, np.uint16), *(d[1] for d in done)])
    worst = max((float(d[2][0]) for d in done), default=0.0)
    return Tiles(descriptors, words), (worst, float(sum(d[2][1] for d in done)))


def _viewed(values: NDArray[Any], form: Format, law: Law) -> NDArray[Any]:
    return values.view(form.patterns if law.kind == LOGARITHMIC else form.values)


def _parts(values: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
    """Chunks of whole tiles with their first element; the last is filled up with zeros."""
    whole = values.size // TILE * TILE
    parts = [(s, values[s : min(s + CHUNK * TILE, whole)]) for s in range(0, whole, CHUNK * TILE)]
    if whole < values.size:
        rest = np.zeros(TILE, values.dtype)
        rest[: values.size - whole] = values[whole:]
        parts.append((whole, rest))
    return parts


def measure(
    values: NDArray[Any], form: Format, law: Law, widths: list[int], stride: int
) -> list[int]:
    """How many words a sample of tiles takes under predictors 0, 1 and so on.

    Args:
        values: 1-D, a whole tile at least.
        form: Type of the elements.
        law: How, without dither.
        widths: Of each predictor.
        stride: Every which tile.
    """
    room, noises = _room()
    viewed = _viewed(values[: values.size // TILE * TILE], form, law)
    sizes = np.zeros(len(widths), np.int64)
    chunks.measure(
        viewed, viewed.view(np.uint16), *chunks.numbers_of(law), room, stride,
        np.array(widths, np.int64), noises, sizes,
    )  # fmt: skip
    return [int(size) for size in sizes]


def decode(found: Tiles, form: Format, law: Law, values: NDArray[Any], first: int = 0) -> None:
    """Writes the values of a run.

    Args:
        found: What :func:`encode` made, or a stranger did.
        form: Type of the elements.
        law: How they were coded.
        values: 1-D, receives them.
        first: The tile at which ``values`` begins, a multiple of 32.

    Raises:
        StreamError: A tile is not what its descriptor says.
    """
    threads.run(
        lambda job: _decode_chunk(found, law, *job), _targets(_viewed(values, form, law), first)
    )


def _targets(values: NDArray[Any], first: int) -> list[tuple[int, NDArray[Any]]]:
    """The first tile of each chunk and where its values go."""
    step = CHUNK * TILE
    return [(first + s // TILE, values[s : s + step]) for s in range(0, values.size, step)]


def _decode_chunk(found: Tiles, law: Law, tile: int, target: NDArray[Any]) -> None:
    whole = target.size // TILE
    offset = int(found.bases[tile // GROUP])
    offset = _decode_tiles(found, law, tile, target[: whole * TILE], offset)
    if whole * TILE < target.size:
        rest = np.empty(TILE, target.dtype)
        _decode_tiles(found, law, tile + whole, rest, offset)
        target[whole * TILE :] = rest[: target.size - whole * TILE]


def _decode_tiles(found: Tiles, law: Law, tile: int, target: NDArray[Any], offset: int) -> int:
    count = target.size // TILE
    if count == 0:
        return offset
    room, noises = _room()
    descriptors = found.descriptors[tile : tile + count]
    limit = found.words.size - SLACK
    wrong = chunks.decode(
        found.words, offset, limit, descriptors, *chunks.numbers_of(law), room, tile * TILE, noises,
        target, target.view(np.uint16), 0,
    )  # fmt: skip
    if wrong >= 0:
        raise StreamError(f"tile {tile + wrong} is damaged: its parts do not fit its size")
    return offset + int((descriptors & SIZE_MASK).sum(dtype=np.int64))
