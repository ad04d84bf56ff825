"""The kernels' source, compiled for the host, against the CPU's bytes, at both lane widths."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from scadl_core.compress import (
    L2,
    Absolute,
    PointwiseRelative,
    Relative,
    arrays,
    codec,
    decode,
    decode_tiles,
    encode,
    from_bytes,
    gpu,
    to_bytes,
)
from scadl_core.compress.arrays import Run, is_cupy, take
from scadl_core.compress.cpu import stream
from scadl_core.compress.gpu.tiles import Arena
from scadl_core.compress.laws import Law, linear_law, logarithmic_law
from scadl_core.compress.tiling import SLACK, Tiles
from scadl_core.errors import CodecError, StreamError
from tests.compress import cupy_on_host, test_container
from tests.compress.test_container import CASES, GOLDEN

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile them with")
DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    cupy_on_host.module.folder = tmp_path_factory.mktemp("kernels")
    return cupy_on_host.module


@pytest.fixture(params=[32, 64], ids=["32 lanes", "64 lanes"])
def cupy(request: Any, built: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "cupy", built)
    built.lanes = request.param
    built.launches.clear()
    yield built
    if sys.modules.pop("scadl_core.compress.gpu.backend", None):
        del gpu.backend


@pytest.fixture
def backend(cupy: Any) -> Any:
    from scadl_core.compress.gpu import backend

    return backend


def run_of(array: NDArray[Any], dtype: str) -> Run:
    """The array in one of the four types."""
    if dtype == "bfloat16":
        return take(torch.from_numpy(array.astype(np.float32)).bfloat16())
    with np.errstate(over="ignore"):
        return take(array.astype(dtype))


def hard(size: int, seed: int) -> NDArray[np.float64]:
    """Tiles of every kind: smooth, with zeros, empty, constant, noisy, of NaNs, with exceptions."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.standard_normal(size))
    for start in range(0, size, 512):
        part, kind = x[start : start + 512], rng.integers(9)
        if kind == 0:
            part[:] = 0
        elif kind == 1:
            part[rng.random(part.size) < 0.9] = 0
        elif kind == 2:
            part[rng.random(part.size) < 0.5] = -0.0
        elif kind == 3:
            part[32 : 32 * rng.integers(1, 16)] = np.nan
        elif kind == 4:
            part[rng.random(part.size) < 0.02] *= 1e12
        elif kind == 5:
            part[:] = part[0]
        elif kind == 6:
            part[rng.integers(part.size)] = rng.choice([np.inf, -np.inf, 1e30, 1e-40])
        elif kind == 7:
            part *= 1e-3
    return x


def same(ours: Any, reference: Tiles) -> None:
    assert np.array_equal(ours.descriptors, reference.descriptors)
    assert np.array_equal(ours.words[: ours.num_words], reference.words[: reference.num_words])
    assert np.array_equal(ours.bases, reference.bases)
    assert ours.nbytes == reference.nbytes


def laws(run: Run) -> Iterator[Law]:
    least = stream.scan(run.values, run.form)[2]
    for eps in (1e-9, 0.01, 3.0):
        linear = linear_law(run.form, eps, None, least)
        yield linear
        yield linear._replace(predictor=1)
        for width in (2, 5, 31, 32, 100, 1023):
            yield linear._replace(predictor=2, width=width)
        yield linear_law(run.form, eps, 77, least)
    for eps in (0.0, 1e-6, 0.01, 0.5):
        relative = logarithmic_law(run.form, eps, least)
        yield relative._replace(predictor=1)
        yield relative._replace(predictor=2, width=48)
        yield relative


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_every_law(backend: Any, cupy: Any, dtype: str) -> None:
    """To the CPU's bytes, and back to the CPU's bits; tiles of every mode are among them."""
    modes = set()
    for seed, size in enumerate((5, 12_000, 1024, 3 * 1024 + 31)):
        run = run_of(hard(size, seed), dtype)
        device = cupy.asarray(run.values)
        for law in list(laws(run))[seed % 2 :: 2] if size < 12_000 else laws(run):
            reference, achieved = stream.encode(run.values, run.form, law)
            tiles, found = backend.encode(device, run.form, law)
            same(tiles, reference)
            assert found == achieved
            expected = np.empty_like(run.values)
            stream.decode(reference, run.form, law, expected)
            values = cupy.empty(run.values.size, run.values.dtype)
            backend.decode(tiles, run.form, law, values)
            assert values.tobytes() == expected.tobytes()
            modes |= set((reference.descriptors >> 12).tolist())
    assert {m & 1 for m in modes} == {m >> 1 & 1 for m in modes} == {0, 1}
    assert {m >> 2 for m in modes} == {0, 1, 2, 3}


@pytest.mark.parametrize("case", CASES)
def test_golden_streams(
    backend: Any, cupy: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrays give the committed words, and these decode to the CPU's bits."""
    arrays_: list[Any] = []
    monkeypatch.setattr(test_container, "encode", lambda array, *_, **__: arrays_.append(array))
    CASES[case]()
    run = take(arrays_[0])
    expected = from_bytes((GOLDEN / f"{case}.sbf").read_bytes())
    tiles, _ = backend.encode(cupy.asarray(run.values), run.form, expected.law)
    same(tiles, expected.tiles)
    values = cupy.empty(run.values.size, run.form.values)
    backend.decode(expected.tiles, run.form, expected.law, values)
    decoded = np.empty_like(run.values)
    stream.decode(expected.tiles, run.form, expected.law, decoded)
    assert values.tobytes() == decoded.tobytes()


def test_the_codec_takes_cupy_arrays(cupy: Any) -> None:
    """Choice of the law, layout, statistics and bytes are those of NumPy arrays."""
    x = hard(40_000, 3).astype(np.float32).reshape(100, 20, 20)
    for array in (x, x.transpose(2, 0, 1), np.broadcast_to(x[:5], (3, 5, 20, 20)), x[:0], x[::2]):
        for bound in (Relative(1e-3), PointwiseRelative(1e-2), Absolute(0.0)):
            device = encode(array.view(cupy.ndarray), bound)
            host = encode(array, bound)
            assert to_bytes(device) == to_bytes(host)
            assert device.achieved == host.achieved
            assert device.nbytes == host.nbytes
            y = decode(device)
            assert isinstance(y, cupy.ndarray)
            assert y.strides == decode(host).strides
            assert np.array_equal(y, decode(host), equal_nan=True)
            back = np.empty(array.shape, np.float32)
            assert np.array_equal(decode(device, back), y, equal_nan=True)
            into = cupy.zeros(array.shape[::-1], np.float32).T
            assert np.array_equal(decode(from_bytes(to_bytes(host)), into), y, equal_nan=True)
    assert {name for name, _ in cupy.launches} >= {"scan_float32", "encode_float32"}


def test_l2_and_dither(cupy: Any) -> None:
    x = np.cumsum(np.random.default_rng(0).standard_normal(9_000)).astype(np.float16)
    packed = encode(x.view(cupy.ndarray), L2(1e-2))
    y = decode(packed)
    norm = np.linalg.norm(x.astype(np.float64))
    assert np.linalg.norm(y.astype(np.float64) - x.astype(np.float64)) <= 1e-2 * norm
    dithered = encode(x.view(cupy.ndarray), Absolute(0.5), dither=9)
    assert to_bytes(dithered) == to_bytes(encode(x, Absolute(0.5), dither=9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_tensors_pass_without_a_copy_on_torchs_stream(
    cupy: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor of the CPU plays one of a GPU."""
    monkeypatch.setattr(arrays, "is_on_gpu", lambda a: isinstance(a, torch.Tensor) or is_cupy(a))
    monkeypatch.setattr(codec, "is_on_gpu", arrays.is_on_gpu)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=77))
    x = torch.from_numpy(hard(6_000, 1).reshape(10, 20, 30)).to(dtype).permute(2, 0, 1)
    assert take(x).values.ctypes.data == x.data_ptr()
    device = encode(x, Absolute(0.1))
    y = decode(device)
    out = torch.empty_like(x)
    assert decode(device, out) is out
    part = decode_tiles(device, 1, 2)
    assert {stream for _, stream in cupy.launches} == {77}
    monkeypatch.undo()
    host = encode(x, Absolute(0.1))
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    assert y.stride() == x.stride()
    assert torch.equal(y.view(kind), decode(host).view(kind))
    assert torch.equal(out.view(kind), y.view(kind))
    assert torch.equal(part.view(kind), decode_tiles(host, 1, 2).view(kind))


def test_any_tile_alone(backend: Any, cupy: Any) -> None:
    run = run_of(hard(70_500, 2), "float32")
    law = linear_law(run.form, 0.01, 5, 1)
    tiles, _ = backend.encode(cupy.asarray(run.values), run.form, law)
    expected = np.empty_like(run.values)
    stream.decode(tiles.host, run.form, law, expected)
    for first, size in ((1, 10), (31, 2048), (33, 5000), (68, 868)):
        values = cupy.empty(size, np.float32)
        backend.decode(tiles, run.form, law, values, first)
        assert values.tobytes() == expected[1024 * first : 1024 * first + size].tobytes()


def test_an_arena_holds_many_arrays_without_waiting(backend: Any, cupy: Any) -> None:
    arena = Arena(cupy.empty(40_000, np.uint32), cupy.zeros(1, np.uint64))
    kept = []
    for seed in range(3):
        run = run_of(hard(20_000, seed), "float32")
        law = linear_law(run.form, 0.01, None, 1)
        tiles, _ = backend.encode_into(arena, cupy.asarray(run.values), run.form, law)
        kept.append((run, law, tiles))
    for run, law, tiles in kept:
        reference = stream.encode(run.values, run.form, law)[0]
        same(tiles, reference)
        values = cupy.empty(run.values.size, np.float32)
        backend.decode(tiles, run.form, law, values)
        expected = np.empty_like(run.values)
        stream.decode(reference, run.form, law, expected)
        assert values.tobytes() == expected.tobytes()
    full, _ = backend.encode_into(
        Arena(cupy.empty(2000, np.uint32), cupy.zeros(1, np.uint64)), run.values.view(cupy.ndarray),
        run.form, law,
    )  # fmt: skip
    with pytest.raises(CodecError, match="8000 bytes had no room"):
        _ = full.words
    with pytest.raises(StreamError, match="damaged"):
        backend.decode(full, run.form, law, values)


def test_hostile_words_never_lead_out_of_range(backend: Any, cupy: Any) -> None:
    """Damaged tiles are refused where the CPU refuses them, and else decode to the CPU's bits."""
    rng = np.random.default_rng(0)
    refused = 0
    for dtype in DTYPES:
        run = run_of(hard(3_000, 1), dtype)
        for law in list(laws(run))[::3]:
            tiles = stream.encode(run.values, run.form, law)[0]
            for _ in range(4):
                words, descriptors = tiles.words.copy(), tiles.descriptors.copy()
                if rng.random() < 0.5:
                    descriptors[rng.integers(3)] ^= 1 << rng.integers(16)
                for at in rng.integers(0, max(1, tiles.num_words), 2):
                    words[at] = rng.integers(2**32)
                hostile = Tiles(descriptors, words)
                if hostile.num_words > words.size - SLACK:
                    hostile = Tiles(tiles.descriptors, words)
                expected, values = np.zeros_like(run.values), cupy.zeros(3000, run.values.dtype)
                try:
                    stream.decode(hostile, run.form, law, expected)
                except StreamError as error:
                    with pytest.raises(StreamError, match=str(error).split(":")[0]):
                        backend.decode(hostile, run.form, law, values)
                    refused += 1
                else:
                    backend.decode(hostile, run.form, law, values)
                    assert values.tobytes() == expected.tobytes()
    assert refused > 10
