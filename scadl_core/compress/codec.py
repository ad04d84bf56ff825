"""The error-bounded codec: an array and a bound in, tiles out, and back.

    packed = encode(array, Relative(1e-3))
    again = decode(packed)

The format is in ``docs/compress_format.md``.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.arrays import Layout, Run, give, is_cupy, is_on_gpu, is_tensor, place, take
from scadl_core.compress.bounds import L2, Absolute, Bound, PointwiseRelative
from scadl_core.compress.formats import Format
from scadl_core.compress.gpu.tiles import DeviceTiles
from scadl_core.compress.laws import LOGARITHMIC, Law, linear_law, logarithmic_law
from scadl_core.compress.tiling import GROUP, TILE, Tiles, count_tiles
from scadl_core.errors import CodecError

ERROR_UNITS = 2048  # a step, in the units in which squared errors are summed
PREDICTORS = {"none": 0, "1d": 1, "2d": 2}


class Achieved(NamedTuple):
    """What decoding will differ by; relative to the element under PointwiseRelative.

    Attributes:
        max_error: The largest error, exact for the linear laws.
        rms_error: The root of the mean squared error, at most ``step / 4096`` above the true one
            and never below.
    """

    max_error: float
    rms_error: float


@dataclass(frozen=True, eq=False)
class Compressed:
    """An encoded array.

    Attributes:
        tiles: Its words.
        law: How values became codes.
        form: Type of the elements.
        layout: Their shape and order in memory.
        bound: What was asked for.
        achieved: What was reached.
        library: Whose array it was: "numpy", "cupy" or "torch".
    """

    tiles: Tiles | DeviceTiles
    law: Law
    form: Format
    layout: Layout
    bound: Bound
    achieved: Achieved
    library: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.layout.shape

    @property
    def dtype(self) -> str:
        """Name of the elements' type."""
        return self.form.name

    @property
    def nbytes(self) -> int:
        """Bytes of the stream in memory."""
        return self.tiles.nbytes

    @property
    def ratio(self) -> float:
        """Bytes of the stored elements over bytes of the stream; 1 for an empty array."""
        return self.layout.size * self.form.bits / 8 / self.nbytes if self.nbytes else 1.0


def encode(
    array: Any, bound: Bound, *, predictor: str | None = None, dither: int | None = None
) -> Compressed:
    """Codes an array so that every finite element is within the bound when it is decoded.

    NaNs with their payloads, infinities, subnormal numbers under a relative bound, and whatever
    cannot be coded within the bound are kept bit by bit.

    Args:
        array: NumPy or CuPy array or torch tensor of float16, bfloat16, float32 or float64, any
            shape and strides. On a GPU, CuPy arrays and, with CuPy, tensors are coded there, to
            the same bytes (under L2, whose norm is a sum, up to the last bit of the bound), on the
            caller's stream; a tensor on another device is coded on the CPU.
        bound: Absolute, Relative, PointwiseRelative or L2.
        predictor: "none", "1d" or "2d"; by default the one that makes a sample of tiles smallest.
        dither: A seed of 32 bits makes the error independent of the array (subtractive dither,
            Schuchman 1964), zeros remaining zeros. Not for PointwiseRelative; without predictor.

    Raises:
        CodecError: An argument is not one of these.
    """
    if not isinstance(bound, Bound):
        raise CodecError(f"expected a bound such as Relative(1e-3), got {bound!r}")
    if predictor is not None and predictor not in PREDICTORS:
        raise CodecError(f"predictor: expected one of {', '.join(PREDICTORS)}, got {predictor!r}")
    if dither is not None and (
        isinstance(bound, PointwiseRelative) or predictor not in (None, "none")
    ):
        raise CodecError("dither: works with absolute bounds and without a predictor")
    with _placed(array):
        run = take(array)
        if isinstance(bound, L2):
            return _encode_l2(run, bound, predictor, dither)
        return _encode_run(run, bound, _law(run, bound, dither), predictor)


def decode(packed: Compressed, out: Any = None) -> Any:
    """The array, of the library it came from; axes repeated by an expanded view are so again.

    Args:
        packed: What :func:`encode` made.
        out: An array of the same type and shape to write to, of either library.

    Returns:
        ``out``, or a new array whose axes lie in memory as those of the encoded one did.

    Raises:
        CodecError: ``out`` does not fit.
        StreamError: The words are damaged.
    """
    with _placed(packed if out is None else out):
        run = None if out is None else place(out, packed.form, packed.layout)
        values = _room(packed, packed.layout.size, out) if run is None else run
        _stream(values).decode(packed.tiles, packed.form, packed.law, values)
        if out is None:
            return give(values, packed.form, packed.layout, packed.library)
        if run is None:
            library = "torch" if is_tensor(out) else "numpy"
            _copy(out, give(values, packed.form, packed.layout, library))
        return out


def _placed(target: Any) -> AbstractContextManager[Any]:
    """Device and stream of an array, or of an encoded one, on a GPU."""
    if isinstance(target, Compressed):
        if isinstance(target.tiles, Tiles):
            return nullcontext()
        device, is_torch = target.tiles.device_words.device.id, target.library == "torch"
    elif not is_on_gpu(target):
        return nullcontext()
    else:
        is_torch = is_tensor(target)
        device = target.device.index if is_torch else target.device.id
    from scadl_core.compress.gpu import backend

    return backend.placed(device, is_torch)


def _stream(values: Any) -> Any:
    """What codes a run where it lies."""
    if is_cupy(values):
        from scadl_core.compress.gpu import backend

        return backend
    from scadl_core.compress.cpu import stream

    return stream


def _room(packed: Compressed, size: int, out: Any = None) -> Any:
    """Memory for a run, where the tiles or the caller's array are."""
    if not (is_on_gpu(out) if out is not None else isinstance(packed.tiles, DeviceTiles)):
        return np.empty(size, packed.form.values)
    import cupy

    return cupy.empty(size, packed.form.values)


def decode_tiles(packed: Compressed, first: int, count: int) -> Any:
    """Some elements alone: tiles of 1024 elements in memory order.

    Args:
        packed: What :func:`encode` made.
        first: The first tile.
        count: How many.

    Returns:
        1-D array, of the library the array came from.

    Raises:
        CodecError: There are no such tiles.
    """
    total = count_tiles(packed.layout.size)
    if not 0 <= first <= first + count <= total:
        raise CodecError(f"expected tiles within 0 to {total}, got {count} from {first}")
    begin = first // GROUP * GROUP
    end = min((first + count) * TILE, packed.layout.size)
    with _placed(packed):
        values = _room(packed, end - begin * TILE)
        _stream(values).decode(packed.tiles, packed.form, packed.law, values, begin)
        part = values[(first - begin) * TILE :]
        return give(part, packed.form, Layout((part.size,), (0,)), packed.library)


def _copy(out: Any, array: Any) -> None:
    if is_tensor(out):
        out.detach().copy_(array)
    else:
        out[...] = array


def _law(run: Run, bound: Bound, dither: int | None) -> Law:
    needs_scan = not isinstance(bound, Absolute) or bound.eps == 0
    low, high, least = (
        _stream(run.values).scan(run.values, run.form) if needs_scan else (0.0, 0.0, 0)
    )
    if isinstance(bound, PointwiseRelative):
        return logarithmic_law(run.form, bound.eps, least)
    width = bound.eps if isinstance(bound, Absolute) else _down(_down(bound.eps * (high - low)))
    return linear_law(run.form, width, dither, least)


def _down(value: float) -> float:
    """The float below; the largest finite one for infinity, 0 for 0."""
    return math.nextafter(value, 0.0)


def _encode_run(run: Run, bound: Bound, law: Law, predictor: str | None) -> Compressed:
    law = _with_predictor(run, law, predictor)
    tiles, (worst, squares) = _stream(run.values).encode(run.values, run.form, law)
    achieved = _achieved(run, law, worst, squares)
    return Compressed(tiles, law, run.form, run.layout, bound, achieved, run.library)


def _achieved(run: Run, law: Law, worst: float, squares: float) -> Achieved:
    step = law.step if law.kind != LOGARITHMIC else math.ldexp(1, law.shift - run.form.mantissa)
    if law.kind == LOGARITHMIC:
        worst = math.ldexp(worst, -run.form.mantissa)
    if worst == 0:
        return Achieved(0.0, 0.0)
    # Each error was rounded to a unit; by the triangle inequality half a unit covers that.
    rms = (math.sqrt(squares / run.values.size) + 0.5 + 2**-8) * step / ERROR_UNITS
    return Achieved(worst, min(worst, rms))


def _with_predictor(run: Run, law: Law, predictor: str | None) -> Law:
    width = run.layout.width
    if predictor == "2d" and not 1 < width < TILE:
        predictor = "1d"
    if law.dithered:
        predictor = "none"
    if predictor is not None:
        return law._replace(
            predictor=PREDICTORS[predictor], width=width if predictor == "2d" else 1
        )
    tiles = run.values.size // TILE
    if tiles == 0:
        return law
    stride = max(1, tiles // min(64, max(4, tiles // 64)))
    widths = [1, 1, width] if 1 < width < TILE else [1, 1]
    sizes = _stream(run.values).measure(run.values, run.form, law, widths, stride)
    best = sizes.index(min(sizes))
    return law._replace(predictor=best, width=widths[best])


def _encode_l2(run: Run, bound: L2, predictor: str | None, dither: int | None) -> Compressed:
    """A uniform error on [-e, e] has the rms e / sqrt(3), so that is the first guess; what is
    measured corrects it. An error of at most the rms asked for is always enough.
    """
    target = _down(bound.eps * rms(run))
    guesses, width = 6, target * math.sqrt(3)
    while guesses:
        packed = _encode_run(run, bound, _law(run, Absolute(width), dither), predictor)
        if packed.achieved.rms_error <= target:
            return packed
        guesses -= 1
        width = max(target, 0.99 * width * target / packed.achieved.rms_error)
    return _encode_run(run, bound, _law(run, Absolute(target), dither), predictor)


def rms(run: Run) -> float:
    """Root of the mean square over all elements, those not finite counted as zeros."""
    total, step = 0.0, 1 << 20
    plain = Layout((run.values.size,), (0,))
    for first in range(0, run.values.size, step):
        part = run.values[first : first + step]
        if run.form.name == "bfloat16":
            part = (part.astype(np.uint32) << 16).view(np.float32)
        else:
            part = give(part, run.form, Layout((part.size,), (0,)), "numpy")
        double: NDArray[Any] = part.astype(np.float64)
        double[~np.isfinite(double)] = 0
        total += float(np.dot(double, double))
    return math.sqrt(total / max(1, plain.size))
