"""The kernels' source, compiled for the host, against the CPU's bytes, at both lane widths."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from scadl_core.compress import (
    Absolute,
    Bound,
    PointwiseRelative,
    Relative,
    decode,
    decode_tiles,
    encode,
    from_bytes,
    to_bytes,
)
from scadl_core.compress.arrays import Run, take
from scadl_core.compress.codec import Compressed
from scadl_core.compress.cpu import stream
from scadl_core.compress.laws import Law, linear_law, logarithmic_law
from scadl_core.compress.tiling import Tiles
from scadl_core.errors import CodecError, StreamError
from tests.compress import cupy_on_host
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
    sys.modules.pop("scadl_core.compress.gpu.backend", None)


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
    """Both directions: encoded to the CPU's bytes, and the CPU's bytes decoded to the CPU's bits."""
    modes = set()
    for seed, size in enumerate((20_000, 5, 1024, 3 * 1024 + 31)):
        run = run_of(hard(size, seed), dtype)
        device = cupy.asarray(run.values)
        for law in laws(run):
            reference, achieved = stream.encode(run.values, run.form, law)
            tiles, found = backend.encode(device, run.form, law)
            same(tiles, reference)
            assert found == achieved
            expected = np.empty_like(run.values)
            stream.decode(reference, run.form, law, expected)
            for source in (tiles, reference):
                values = cupy.empty(run.values.size, run.values.dtype)
                backend.decode(source, run.form, law, values)
                assert values.tobytes() == expected.tobytes()
            modes |= set((reference.descriptors >> 12).tolist())
    assert {m & 1 for m in modes} == {m >> 1 & 1 for m in modes} == {0, 1}
    assert {m >> 2 for m in modes} == {0, 1, 2, 3}
