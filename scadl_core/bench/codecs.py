"""The codec and its peers, each behind the same two calls."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress import Absolute, decode, encode, from_bytes, set_num_threads, to_bytes

Array = NDArray[Any]
OURS, OURS_ZSTD, MEMCPY = "scadl", "scadl + zstd", "memcpy"


class Codec(NamedTuple):
    """A compressor set to an array and a bound.

    Attributes:
        compress: Makes what is kept.
        decompress: Makes the array of what was kept.
        size: Bytes of what was kept.
    """

    compress: Callable[[], Any]
    decompress: Callable[[Any], Array]
    size: Callable[[Any], int]


class Method(NamedTuple):
    """A compressor.

    Attributes:
        name: In the table.
        package: What has to be installed; None for ours.
        make: Sets it to (array, absolute bound, threads); the array is C-contiguous float32.
        threaded: Whether it can use several threads.
    """

    name: str
    package: str | None
    make: Callable[[Array, float, int], Codec]
    threaded: bool


def _ours(x: Array, bound: float, threads: int) -> Codec:
    set_num_threads(threads)
    out = np.zeros_like(x)
    return Codec(
        lambda: encode(x, Absolute(bound)), lambda kept: decode(kept, out), lambda kept: kept.nbytes
    )


def _ours_zstd(x: Array, bound: float, threads: int) -> Codec:
    set_num_threads(threads)
    out = np.zeros_like(x)
    return Codec(
        lambda: to_bytes(encode(x, Absolute(bound)), zstd=3),
        lambda kept: decode(from_bytes(kept), out),
        len,
    )


def _memcpy(x: Array, bound: float, threads: int) -> Codec:
    kept, out = np.zeros_like(x), np.zeros_like(x)

    def copy(source: Array, target: Array) -> Array:
        np.copyto(target, source)
        return target

    return Codec(lambda: copy(x, kept), lambda source: copy(source, out), lambda k: k.nbytes)


def _sz3(algorithm: str) -> Callable[[Array, float, int], Codec]:
    def make(x: Array, bound: float, threads: int) -> Codec:
        from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

        shape = x.shape if x.ndim <= 4 else (-1, *x.shape[-3:])
        x = x.reshape(shape)
        config = szConfig(*x.shape)
        config.errorBoundMode, config.absErrorBound = szErrorBoundMode.ABS, bound
        config.cmprAlgo, config.openmp = getattr(szAlgorithm, algorithm), threads > 1
        return Codec(
            lambda: sz.compress(x, config)[0],
            lambda kept: sz.decompress(kept, np.float32, x.shape)[0],
            lambda kept: int(kept.nbytes),
        )

    return make


def _zfp(x: Array, bound: float, threads: int) -> Codec:
    import zfpy

    x = x.reshape(x.shape if x.ndim <= 4 else (-1, *x.shape[-3:]))
    return Codec(lambda: zfpy.compress_numpy(x, tolerance=bound), zfpy.decompress_numpy, len)


def _quantised(
    x: Array, bound: float, pack: Callable[[Array], Any], unpack: Callable[[Any], Array]
) -> Codec:
    """Rounding to multiples of the bound, unchecked, before a lossless compressor."""
    step = np.float32(2 * bound * (1 - 2.0**-9))
    inverse = np.float32(1) / step
    return Codec(
        lambda: pack(np.rint(x.ravel() * inverse).astype(np.int32)),
        lambda kept: (unpack(kept).astype(np.float32) * step).reshape(x.shape),
        len,
    )


def _blosc(codec: str, level: int) -> Callable[[Array, float, int], Codec]:
    def make(x: Array, bound: float, threads: int) -> Codec:
        import blosc2

        blosc2.set_nthreads(threads)
        options = {
            "codec": getattr(blosc2.Codec, codec),
            "clevel": level,
            "typesize": 4,
            "filters": [blosc2.Filter.BITSHUFFLE],
            "nthreads": threads,
        }
        return _quantised(
            x, bound, lambda codes: blosc2.compress2(codes, **options),
            lambda kept: np.frombuffer(blosc2.decompress2(kept, nthreads=threads), np.int32),
        )  # fmt: skip

    return make


def _pcodec(x: Array, bound: float, threads: int) -> Codec:
    from pcodec import ChunkConfig, standalone

    config = ChunkConfig(compression_level=8)
    return _quantised(
        x, bound, lambda codes: standalone.simple_compress(codes, config),
        standalone.simple_decompress,
    )  # fmt: skip


METHODS = (
    Method(MEMCPY, None, _memcpy, False),
    Method(OURS, None, _ours, True),
    Method(OURS_ZSTD, None, _ours_zstd, True),
    Method("SZ3 interpolation", "pysz", _sz3("INTERP_LORENZO"), True),
    Method("SZ3 interpolation alone", "pysz", _sz3("INTERP"), True),
    Method("SZ3 Lorenzo/regression", "pysz", _sz3("LORENZO_REG"), True),
    Method("SZ3 no prediction", "pysz", _sz3("NOPRED"), True),
    Method("zfp", "zfpy", _zfp, False),
    Method("quantise + bitshuffle zstd", "blosc2", _blosc("ZSTD", 3), True),
    Method("quantise + bitshuffle lz4", "blosc2", _blosc("LZ4", 1), True),
    Method("quantise + pcodec", "pcodec", _pcodec, False),
)


def versions() -> dict[str, str | None]:
    """Versions of the peers; None for those that are missing."""
    return {package: _version(package) for package in ("pysz", "zfpy", "blosc2", "pcodec", "numba")}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
