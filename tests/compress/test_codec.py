"""The guarantee: every pattern of the 16-bit types, a sweep of float32, and generated arrays."""

from __future__ import annotations

import math
import threading
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scadl_core.compress import (
    L2,
    Absolute,
    Bound,
    PointwiseRelative,
    Relative,
    decode,
    decode_tiles,
    encode,
    to_bytes,
)
from scadl_core.errors import CodecError
from tests.compress.exact import assert_bound, decode_stream

PREDICTORS = ("none", "1d", "2d")
FLOATS = (np.float16, np.float32, np.float64)


def rough(size: int, dtype: Any = np.float32, seed: int = 0) -> NDArray[Any]:
    """Values of a smooth walk, half of them cut to zero."""
    rng = np.random.default_rng(seed)
    return np.maximum(np.cumsum(rng.standard_normal(size)), 0).astype(dtype)


def absolute(bound: Bound, x: NDArray[Any]) -> float:
    finite = x[np.isfinite(x)].astype(np.float64)
    spread = float(finite.max() - finite.min()) if finite.size else 0.0
    return bound.eps * spread if isinstance(bound, Relative) else bound.eps


@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("dither", [None, 7])
@pytest.mark.parametrize("eps", [0.0, 2.0**-24, 1e-4, 0.01, 3.0, 1e5])
def test_every_half(eps: float, dither: int | None, predictor: str) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    packed = encode(x, Absolute(eps), predictor=None if dither else predictor, dither=dither)
    assert_bound(x, decode(packed), eps)


@pytest.mark.parametrize("dither", [None, 7])
@pytest.mark.parametrize("eps", [0.0, 1e-30, 1e-4, 0.01, 3.0, 1e30])
def test_every_bfloat(eps: float, dither: int | None) -> None:
    patterns = np.arange(2**16, dtype=np.uint16)
    x = torch.from_numpy(patterns.view(np.int16)).view(torch.bfloat16)
    y = decode(encode(x, Absolute(eps), dither=dither))
    assert y.dtype == torch.bfloat16
    kept = y.view(torch.int16).numpy().view(np.uint16)
    wide = [(p.astype(np.uint32) << 16).view(np.float32) for p in (patterns, kept)]
    assert_bound(wide[0], wide[1], eps)


@pytest.mark.parametrize("eps", [0.0, 1e-9, 1e-3, 0.3])
def test_every_half_and_bfloat_relative_to_itself(eps: float) -> None:
    patterns = np.arange(2**16, dtype=np.uint16)
    x = patterns.view(np.float16)
    assert_bound(x, decode(encode(x, PointwiseRelative(eps))), eps, relative=True)
    tensor = torch.from_numpy(patterns.view(np.int16)).view(torch.bfloat16)
    kept = decode(encode(tensor, PointwiseRelative(eps))).view(torch.int16).numpy().view(np.uint16)
    wide = [(p.astype(np.uint32) << 16).view(np.float32) for p in (patterns, kept)]
    assert_bound(wide[0], wide[1], eps, relative=True)


def sweep(patterns: NDArray[np.uint32]) -> None:
    x = patterns.view(np.float32)
    for eps in (1e-20, 1e-3, 1e10):
        packed = encode(x, Absolute(eps))
        assert_bound(x, decode(packed), eps)
    assert_bound(x, decode(encode(x, Absolute(1e-3), dither=1)), 1e-3)
    assert_bound(x, decode(encode(x, PointwiseRelative(1e-3))), 1e-3, relative=True)
    assert (decode(encode(x, Absolute(0.0))).view(np.uint32) == patterns).all()


def test_float_patterns() -> None:
    """Every 4099th of all patterns: each sign and exponent, 2,000 fractions of each."""
    sweep(np.arange(0, 2**32, 4099, dtype=np.uint32))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(64))
def test_all_float_patterns(part: int) -> None:
    block = 1 << 22
    for first in range(part << 26, (part + 1) << 26, block):
        sweep(np.arange(first, first + block, dtype=np.uint32))


def test_values_at_the_edge_of_a_step() -> None:
    """Halfway between two values the check decides, in every binade around the step."""
    step = np.float32(2 * 1e-3)
    middle = (np.arange(-4000, 4000, dtype=np.float32) + np.float32(0.5)) * step
    x = np.concatenate([np.nextafter(middle, np.float32(s)) for s in (-np.inf, 0, np.inf)])
    packed = encode(x, Absolute(1e-3))
    assert_bound(x, decode(packed), 1e-3)
    assert packed.ratio > 2.0


bounds = st.one_of(
    st.builds(Absolute, st.sampled_from([0.0, 1e-12, 1e-3, 0.5, 1e6, 1e38])),
    st.builds(Relative, st.sampled_from([0.0, 1e-7, 1e-3, 0.1, 2.0])),
    st.builds(PointwiseRelative, st.sampled_from([0.0, 1e-7, 1e-3, 0.5])),
)


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Raw patterns, or a smooth walk with some raw patterns in it."""
    dtype = np.dtype(draw(st.sampled_from(FLOATS)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=9))
    size, seed = math.prod(shape), draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    values = rng.bytes(size * dtype.itemsize)
    array = np.frombuffer(values, dtype).copy()
    if draw(st.booleans()):
        smooth = np.cumsum(rng.standard_normal(size)).astype(dtype)
        array = np.where(rng.random(size) < draw(st.sampled_from([0, 0.01])), array, smooth)
    return array.reshape(shape)


@settings(max_examples=150, deadline=None)
@given(arrays(), bounds, st.sampled_from([None, *PREDICTORS]))
def test_any_array(x: NDArray[Any], bound: Bound, predictor: str | None) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        packed = encode(x, bound, predictor=predictor)
        y = decode(packed)
        relative = isinstance(bound, PointwiseRelative)
        assert_bound(x, y, bound.eps if relative else absolute(bound, x), relative)
        again = encode(y, Absolute(0.0))
        kind = f"u{x.itemsize}"
        assert (decode(again).view(kind) == y.view(kind)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_achieved_errors_are_those_of_the_decoded_array(dtype: Any) -> None:
    x = rough(50_000, dtype)
    x[7_000:7_100] = np.nan
    packed = encode(x, Relative(1e-3))
    error = np.abs(x.astype(np.float64) - decode(packed))
    error = error[~np.isnan(error)]
    rms = float(np.sqrt(np.sum(error**2) / x.size))
    assert packed.achieved.max_error == pytest.approx(error.max(), rel=1e-6)
    assert rms <= packed.achieved.rms_error <= rms + packed.law.step / 2048
    relative = encode(x, PointwiseRelative(1e-2))
    kept = (x != 0) & np.isfinite(x)
    loss = np.abs(x - decode(relative).astype(np.float64))[kept] / np.abs(x[kept])
    assert loss.max() <= relative.achieved.max_error <= 1e-2


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.05, 3.0])
def test_l2(dtype: Any, eps: float) -> None:
    x = rough(60_000, dtype)
    packed = encode(x, L2(eps))
    error = np.linalg.norm(x.astype(np.float64) - decode(packed).astype(np.float64))
    norm = np.linalg.norm(x.astype(np.float64))
    assert error <= eps * norm
    if dtype != np.float16 and eps:
        assert error > min(eps, 1.0) * norm / 2  # it is used, not undercut


def test_two_dimensional_prediction_of_a_plane_costs_the_first_row_alone() -> None:
    """A sum of a function of the row and one of the column is predicted exactly."""
    step = encode(np.ones(1, np.float32), Absolute(0.5), predictor="none").law.step
    codes = 37 * np.arange(512)[:, None] + np.arange(128) ** 2
    packed = encode((codes * step).astype(np.float32), Absolute(0.5))
    assert packed.law.predictor == 2
    assert packed.law.width == 128
    # Of the 32 rows of a tile four hold the first line, and one element of the fifth its end.
    one = encode((codes * step).astype(np.float32), Absolute(0.5), predictor="1d")
    assert packed.ratio > 4 * one.ratio


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dither_makes_errors_independent_and_keeps_zeros(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(200_000) * (rng.random(200_000) < 0.4)).astype(dtype)
    y = decode(encode(x, Absolute(0.5), dither=3))
    error = (y.astype(np.float64) - x)[x != 0]
    assert (y[x == 0] == 0).all()
    assert error.std() == pytest.approx(0.5 / math.sqrt(3), rel=0.02)
    assert abs(error.mean()) < 0.01
    assert abs(np.corrcoef(error, x[x != 0].astype(np.float64))[0, 1]) < 0.01
    other = decode(encode(x, Absolute(0.5), dither=4))
    assert (other != y).any()


def test_every_bit_of_a_stream_is_as_the_format_says() -> None:
    rng = np.random.default_rng(1)
    x = rough(40_000).reshape(200, 200)
    x[50:60] = np.nan
    x[70, ::3] = rng.standard_normal(67) * 1e30
    for kind in (np.float32, np.float64, np.float16):
        with np.errstate(over="ignore"):
            array = x.astype(kind)
        for predictor in PREDICTORS:
            packed = encode(array, Absolute(0.01), predictor=predictor)
            codes = decode_stream(to_bytes(packed))[: x.size]
            step = kind(packed.law.step) if kind != np.float16 else np.float32(packed.law.step)
            y = decode(packed).reshape(-1)
            values = (codes.astype(step.dtype) * step).astype(kind)
            raw = values != y
            rows = raw.reshape(-1, 32).any(1)
            assert (y.reshape(-1, 32)[rows].view(f"u{y.itemsize}")
                    == array.reshape(-1, 32)[rows].view(f"u{y.itemsize}")).all()  # fmt: skip
            assert 10 <= rows.sum() <= 130


def test_any_tile_alone() -> None:
    x = rough(100_500)
    packed = encode(x, Relative(1e-3))
    y = decode(packed)
    for first, count in ((0, 1), (31, 3), (64, 0), (97, 2), (0, 99)):
        part = decode_tiles(packed, first, count)
        assert np.array_equal(part, y[first * 1024 : (first + count) * 1024])
    with pytest.raises(CodecError, match="tiles within 0 to 99"):
        decode_tiles(packed, 98, 2)


def test_constant_and_zero_arrays_cost_next_to_nothing() -> None:
    assert encode(np.zeros(2**20, np.float32), Absolute(1e-3)).ratio > 1500
    assert encode(np.full(2**20, np.nan, np.float32), Absolute(1e-3)).ratio > 25
    assert encode(np.full(2**20, 3.0, np.float32), Relative(1e-3)).ratio > 25


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Absolute(-1.0), "at least 0, got -1.0"),
        (lambda: Relative(float("nan")), "finite number"),
        (lambda: Relative(float("inf")), "finite number"),
        (lambda: Absolute(True), "expected a number"),
        (lambda: L2("x"), "expected a number"),  # type: ignore[arg-type]
        (lambda: PointwiseRelative(1.0), "less than 1"),
        (lambda: encode(np.zeros(3, complex), Absolute(1.0)), "complex128"),
        (lambda: encode(np.zeros(3, int), Absolute(1.0)), "packers"),
        (lambda: encode(torch.zeros(3, dtype=torch.int8), Absolute(1.0)), "int8"),
        (lambda: encode([1.0], Absolute(1.0)), "list"),
        (lambda: encode(np.zeros(3), 1e-3), "a bound such as"),  # type: ignore[arg-type]
        (lambda: encode(np.zeros(3), Absolute(1.0), predictor="3d"), "none, 1d, 2d"),
        (lambda: encode(np.zeros(3), Absolute(1.0), predictor="1d", dither=1), "without a pred"),
        (lambda: encode(np.zeros(3), PointwiseRelative(0.1), dither=1), "absolute bounds"),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        call()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dither", [None, 7])
def test_a_tile_does_not_depend_on_the_one_before(dtype: str, dither: int | None) -> None:
    """Working memory is a thread's: what doubles leave there is not to be seen."""
    x = np.random.default_rng(0).normal(size=4096).astype(dtype)
    fresh = []
    thread = threading.Thread(target=lambda: fresh.append(encode(x, Absolute(1e5), dither=dither)))
    thread.start()
    thread.join()
    # Each is its own error, and would be read as the float32 1.0 and -32768.0.
    doubles = np.full(4096, 0x3F800000C7000000, np.uint64).view(np.float64)
    encode(doubles, Absolute(1.0))
    after = encode(x, Absolute(1e5), dither=dither)
    assert to_bytes(after) == to_bytes(fresh[0])
    assert after.achieved == fresh[0].achieved
