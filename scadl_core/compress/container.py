"""A compressed array as bytes for files and networks.

A fixed header, the axes, the body (bases, descriptors, words) and a CRC-32 over all before it; see
``docs/compress_format.md``. Whoever reads them may trust nothing: every number is checked before it
is used, and a decoder checks each tile again.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.arrays import Layout
from scadl_core.compress.bounds import L2, Absolute, PointwiseRelative, Relative
from scadl_core.compress.codec import Achieved, Compressed
from scadl_core.compress.formats import FORMATS, Format
from scadl_core.compress.gpu.tiles import DeviceTiles
from scadl_core.compress.laws import KINDS, LOGARITHMIC, Law
from scadl_core.compress.tiling import GROUP, SLACK, TILE, Tiles, count_tiles
from scadl_core.errors import CodecError, NewerStreamError, StreamError

MAGIC = b"\x89SBF\r\n\x1a\n"
VERSION = 1
MOST_AXES = 32
_START = struct.Struct("<8sHH")  # magic, version, bytes of the fixed header
_AXIS = struct.Struct("<QBB")  # length, axis, repeated
_CHECK = struct.Struct("<I")
_BOUNDS = (Absolute, Relative, PointwiseRelative, L2)
_DITHERED, _ZSTD, _TORCH = 1, 2, 4


class _Fixed(NamedTuple):
    format: int
    bound: int
    law: int
    predictor: int
    flags: int
    axes: int
    shift: int
    width: int
    seed: int
    eps: float
    max_error: float
    rms_error: float
    inverse: float
    step: float
    tolerance: float
    base: int
    num_tiles: int
    num_words: int
    body: int


_FIXED = struct.Struct("<7B1xII6dQQQQ")


def to_bytes(packed: Compressed, *, zstd: int | None = None) -> bytes:
    """The stream of an encoded array.

    Args:
        packed: What :func:`scadl_core.compress.encode` made.
        zstd: A level of Zstandard (1 to 22) makes it a second, lossless stage.

    Raises:
        CodecError: No such level, or more axes than a stream can name.
    """
    if len(packed.shape) > MOST_AXES:
        raise CodecError(f"a stream names up to {MOST_AXES} axes, got {len(packed.shape)}")
    body = _body(packed.tiles)
    if zstd is not None:
        body = _squeezed(body, zstd)
    law, layout = packed.law, packed.layout
    flags = (
        _DITHERED * law.dithered | _ZSTD * (zstd is not None) | _TORCH * (packed.library == "torch")
    )
    fixed = _Fixed(
        packed.form.code, _BOUNDS.index(type(packed.bound)), law.kind, law.predictor, flags,
        len(layout.shape), law.shift, law.width, law.seed, packed.bound.eps, *packed.achieved,
        law.inverse, law.step, law.tolerance, law.base,
        packed.tiles.descriptors.size, packed.tiles.num_words, len(body),
    )  # fmt: skip
    axes = [_AXIS.pack(layout.shape[a], a, a in layout.repeated) for a in layout.order]
    parts = [_START.pack(MAGIC, VERSION, _FIXED.size), _FIXED.pack(*fixed), *axes, body]
    stream = b"".join(parts)
    return stream + _CHECK.pack(zlib.crc32(stream))


def from_bytes(data: Any) -> Compressed:
    """The encoded array of a stream.

    Args:
        data: bytes or anything with a buffer.

    Raises:
        StreamError: It is cut off, damaged, or no stream of ours.
        NewerStreamError: It is of a later version.
    """
    view = memoryview(data).cast("B")
    fixed, at = _read_fixed(view)
    form = _known(list(FORMATS.values()), fixed.format, "type")
    layout = _read_axes(view, at, fixed.axes)
    at += fixed.axes * _AXIS.size
    if len(view) != at + fixed.body + _CHECK.size:
        _refuse(f"expected {at + fixed.body + _CHECK.size} bytes, got {len(view)}")
    if zlib.crc32(view[: -_CHECK.size]) != _CHECK.unpack(view[-_CHECK.size :])[0]:
        _refuse("the checksum differs")
    if fixed.num_tiles != count_tiles(layout.size):
        _refuse(f"{fixed.num_tiles} tiles do not hold {layout.size} elements")
    try:
        bound = _known(_BOUNDS, fixed.bound, "bound")(fixed.eps)
    except StreamError:
        raise
    except CodecError as error:
        _refuse(str(error))
    tiles = _read_body(view[at : at + fixed.body], fixed)
    achieved = Achieved(fixed.max_error, fixed.rms_error)
    library = "torch" if fixed.flags & _TORCH else "numpy"
    return Compressed(tiles, _read_law(fixed, form), form, layout, bound, achieved, library)


def _body(tiles: Tiles | DeviceTiles) -> bytes:
    """Bases, descriptors to a multiple of eight bytes, words; all little-endian."""
    descriptors = tiles.descriptors.astype("<u2").tobytes()
    words = tiles.words[: tiles.num_words].astype("<u4", copy=False)
    padding = bytes(-len(descriptors) % 8)
    return b"".join((tiles.bases[:-1].astype("<u8").tobytes(), descriptors, padding, words.data))


def _sizes(num_tiles: int, num_words: int) -> tuple[int, int, int]:
    return 8 * -(-num_tiles // GROUP), -(-2 * num_tiles // 8) * 8, 4 * num_words


def _squeezed(body: bytes, level: int) -> bytes:
    import zstandard

    if isinstance(level, bool) or not isinstance(level, int) or not 1 <= level <= 22:
        raise CodecError(f"zstd: expected a level from 1 to 22, got {level!r}")
    return zstandard.ZstdCompressor(level).compress(body)


def _expanded(body: memoryview, size: int) -> bytes:
    import zstandard

    try:
        if zstandard.frame_content_size(body) != size:
            _refuse("its second stage has another size")
        return zstandard.ZstdDecompressor().decompress(body)
    except zstandard.ZstdError as error:
        raise StreamError(f"compressed stream: its second stage is damaged: {error}") from None


def _read_fixed(view: memoryview) -> tuple[_Fixed, int]:
    if len(view) < _START.size or bytes(view[:8]) != MAGIC:
        _refuse("it does not begin as one does")
    _, version, size = _START.unpack_from(view)
    if version > VERSION:
        raise NewerStreamError(
            f"compressed stream: version {version}, this package reads up to {VERSION}; update it"
        )
    at = _START.size + size
    if version != VERSION or size != _FIXED.size or len(view) < at:
        _refuse("its header is damaged")
    return _Fixed(*_FIXED.unpack_from(view, _START.size)), at


def _read_axes(view: memoryview, at: int, count: int) -> Layout:
    if count > MOST_AXES or len(view) < at + count * _AXIS.size:
        _refuse("its axes are damaged")
    axes = [_AXIS.unpack_from(view, at + i * _AXIS.size) for i in range(count)]
    if sorted(axis for _, axis, _ in axes) != list(range(count)):
        _refuse("its axes are damaged")
    shape = {axis: length for length, axis, _ in axes}
    if math.prod(max(1, n) for n in shape.values()) > 2**62:
        _refuse("its shape is too large")
    return Layout(
        tuple(shape[axis] for axis in range(count)),
        tuple(axis for _, axis, _ in axes),
        tuple(sorted(axis for _, axis, repeated in axes if repeated)),
    )


def _read_law(fixed: _Fixed, form: Format) -> Law:
    dithered, logarithmic = bool(fixed.flags & _DITHERED), fixed.law == LOGARITHMIC
    numbers = (fixed.inverse, fixed.step, fixed.tolerance)
    sound = (
        (logarithmic or fixed.law == KINDS[form.name])
        and fixed.predictor <= 2
        and (fixed.predictor < 2 or 1 < fixed.width < TILE)
        and not (dithered and (logarithmic or fixed.predictor))
        and all(math.isfinite(number) for number in numbers)
        and fixed.shift <= form.mantissa
        and fixed.base < 2**63
    )
    if not sound:
        _refuse("its parameters are damaged")
    return Law(
        fixed.law, fixed.predictor, fixed.width, dithered, fixed.seed, *numbers,
        fixed.shift, fixed.base, np.uint64(form.sign_bit), form.infinity,
    )  # fmt: skip


def _read_body(body: memoryview, fixed: _Fixed) -> Tiles:
    sizes = _sizes(fixed.num_tiles, fixed.num_words)
    plain = _expanded(body, sum(sizes)) if fixed.flags & _ZSTD else body
    if len(plain) != sum(sizes):
        _refuse("its body has another size")
    bases = np.frombuffer(plain, "<u8", sizes[0] // 8)
    descriptors = np.frombuffer(plain, "<u2", fixed.num_tiles, sizes[0]).astype(np.uint16)
    words: NDArray[np.uint32] = np.zeros(fixed.num_words + SLACK, np.uint32)
    words[: fixed.num_words] = np.frombuffer(plain, "<u4", fixed.num_words, sizes[0] + sizes[1])
    tiles = Tiles(descriptors, words)
    if tiles.num_words != fixed.num_words or not np.array_equal(tiles.bases[:-1], bases):
        _refuse("its tiles are damaged")
    return tiles


def _known(choices: Any, index: int, what: str) -> Any:
    if index >= len(choices):
        _refuse(f"unknown {what} {index}")
    return choices[index]


def _refuse(reason: str) -> NoReturn:
    raise StreamError(f"compressed stream: {reason}; it is damaged or no stream of scadl's")
