"""The kernels on a device: the CPU's bytes, and the speed; `make gpu-check` prints the table."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from scadl_core.compress import Absolute, PointwiseRelative, Relative, decode, encode, to_bytes
from scadl_core.compress.arrays import take
from scadl_core.compress.codec import Compressed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or importlib.util.find_spec("cupy") is None,
        reason="needs an NVIDIA GPU and CuPy",
    ),
]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def activations(size: int, device: str = "cpu") -> torch.Tensor:
    """Smooth on a scale of 16 elements, half of them cut to zero, with some NaNs."""
    rng = torch.Generator(device).manual_seed(0)
    coarse = torch.randn(1, 1, size // 16 + 2, generator=rng, device=device)
    fine = torch.nn.functional.interpolate(coarse, scale_factor=16.0, mode="linear")[0, 0, :size]
    x = torch.relu(fine + 0.05 * torch.randn(size, generator=rng, device=device))
    x[1000:1100] = torch.nan
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("predictor", ["none", "1d", "2d", None])
def test_bytes_equal(dtype: torch.dtype, predictor: str | None) -> None:
    x = activations(3_000_000).to(dtype).reshape(3000, 1000)
    for bound in (Relative(1e-3), Absolute(0.05), PointwiseRelative(1e-2), Absolute(0.0)):
        host = encode(x, bound, predictor=predictor)
        device = encode(x.cuda(), bound, predictor=predictor)
        assert to_bytes(device) == to_bytes(host)
        assert device.achieved == host.achieved
        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        y = decode(device)
        assert y.is_cuda
        assert torch.equal(y.cpu().view(kind), decode(host).view(kind))
    dithered = encode(x.cuda(), Absolute(0.1), dither=5)
    assert to_bytes(dithered) == to_bytes(encode(x, Absolute(0.1), dither=5))


def test_the_callers_stream(dtype: torch.dtype = torch.float32) -> None:
    """The values are only there once the caller's stream has come to them."""
    stream = torch.cuda.Stream()
    x = activations(5_000_000, "cuda").to(dtype)
    late = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        packed: Compressed = encode(late, Absolute(0.01))
    assert to_bytes(packed) == to_bytes(encode(x, Absolute(0.01)))


def seconds(function: Callable[[], Any]) -> float:
    """Of the fastest of 20 calls, on the device."""
    import cupy

    times = []
    for _ in range(20):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return min(times)


@pytest.mark.parametrize("dtype", DTYPES)
def test_speed(dtype: torch.dtype, capsys: pytest.CaptureFixture[str]) -> None:
    import cupy

    from scadl_core.compress.gpu import backend
    from scadl_core.compress.gpu.tiles import Arena

    x = activations(2**31 // dtype.itemsize, "cuda").to(dtype)
    x[1000:1100] = 0
    run, packed = take(x), encode(x, Relative(1e-3))
    values = cupy.empty_like(run.values)
    arena = Arena(cupy.empty(2**31 // 4, np.uint32), cupy.zeros(1, np.uint64))

    def into_arena() -> None:
        arena.cursor.fill(0)
        backend.encode_into(arena, run.values, run.form, packed.law)

    took = {
        "copy": seconds(lambda: cupy.copyto(values, run.values)),
        "encode": seconds(into_arena),
        "decode": seconds(lambda: backend.decode(packed.tiles, run.form, packed.law, values)),
    }
    with capsys.disabled():
        gigabytes = run.values.nbytes / 1e9
        speeds = ", ".join(f"{name} {gigabytes / s:.0f} GB/s" for name, s in took.items())
        print(f"\n{torch.cuda.get_device_name(0)} {dtype}, ratio {packed.ratio:.1f}: {speeds}")
    assert took["encode"] < 20 * took["copy"]
    assert took["decode"] < 20 * took["copy"]
