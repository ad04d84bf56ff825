"""Streams for ever, streams of strangers, streams of the future."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scadl_core.compress import (
    L2,
    Absolute,
    PointwiseRelative,
    Relative,
    decode,
    encode,
    from_bytes,
    to_bytes,
)
from scadl_core.errors import CodecError, NewerStreamError, StreamError

GOLDEN = Path(__file__).parent / "golden"


def field(dtype: Any, seed: int, *shape: int) -> NDArray[Any]:
    """Integers alone, so that it is the same on every machine: a walk with zeros and exceptions."""
    state = np.arange(seed, seed + int(np.prod(shape)), dtype=np.uint64)
    state = (state * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52)
    walk = np.cumsum(state.astype(np.int64) - 2048) // 64
    x = (np.maximum(walk, 0) / 64).astype(dtype)
    x[5000:5040] = np.nan
    x[7000] = np.inf
    x[9000:9200:7] *= dtype(30000) if dtype == np.float16 else dtype(1e30)
    return x.reshape(shape)


CASES: dict[str, Callable[[], Any]] = {
    "float32-absolute-2d": lambda: encode(field(np.float32, 0, 100, 120), Absolute(0.01)),
    "float32-relative-1d": lambda: encode(
        field(np.float32, 1, 12000), Absolute(1e-4), predictor="1d"
    ),
    "float32-pointwise-none": lambda: encode(
        field(np.float32, 2, 12, 1000), PointwiseRelative(1e-3), predictor="none"
    ),
    "float32-dither": lambda: encode(field(np.float32, 3, 12000), Absolute(0.5), dither=11),
    "float32-exact": lambda: encode(field(np.float32, 4, 90, 130).T, Absolute(0.0)),
    "float64-absolute-2d": lambda: encode(field(np.float64, 5, 100, 120), Absolute(1e-7)),
    "float64-pointwise": lambda: encode(field(np.float64, 6, 12000), PointwiseRelative(1e-5)),
    "float16-absolute": lambda: encode(field(np.float16, 7, 3, 40, 100), Absolute(0.05)),
    "float16-l2": lambda: encode(np.nan_to_num(field(np.float16, 7, 12000), posinf=0), L2(0.01)),
    "bfloat16-absolute": lambda: encode(
        torch.from_numpy(field(np.float32, 8, 100, 120)).bfloat16(), Absolute(0.1)
    ),
    "float32-repeated": lambda: encode(
        np.broadcast_to(field(np.float32, 9, 12000), (3, 12000)), Absolute(0.1)
    ),
}


def bits(array: Any) -> bytes:
    if isinstance(array, torch.Tensor):
        array = array.contiguous().view(torch.int16).numpy()
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("case", CASES)
def test_golden_streams(case: str) -> None:
    """Committed streams decode to the committed bits, and the same arrays give the same bytes."""
    stream = (GOLDEN / f"{case}.sbf").read_bytes()
    expected = json.loads((GOLDEN / "checksums.json").read_text())[case]
    packed = from_bytes(stream)
    assert zlib.crc32(bits(decode(packed))) == expected
    assert to_bytes(CASES[case]()) == stream
    assert to_bytes(packed) == stream


@pytest.mark.parametrize(
    "stream", sorted((GOLDEN / "earlier").glob("*.sbf")), ids=lambda it: it.stem
)
def test_streams_of_earlier_encoders(stream: Path) -> None:
    """What an encoder wrote that chose between dense and sparse tiles by another rule."""
    expected = json.loads((GOLDEN / "checksums.json").read_text())[stream.stem]
    assert zlib.crc32(bits(decode(from_bytes(stream.read_bytes())))) == expected


def test_golden_second_stage() -> None:
    stream = (GOLDEN / "float32-absolute-2d.zst.sbf").read_bytes()
    plain = (GOLDEN / "float32-absolute-2d.sbf").read_bytes()
    assert len(stream) < len(plain)
    assert to_bytes(from_bytes(stream)) == plain


@pytest.mark.parametrize("level", [None, 1, 19])
def test_round_trip(level: int | None) -> None:
    x = torch.from_numpy(field(np.float32, 0, 4, 30, 100)).permute(0, 2, 1)
    packed = encode(x, Relative(1e-3))
    again = from_bytes(memoryview(to_bytes(packed, zstd=level)))
    y = decode(again)
    assert y.stride() == x.stride()
    assert torch.equal(y.nan_to_num(), decode(packed).nan_to_num())
    assert (again.bound, again.achieved, again.law) == (packed.bound, packed.achieved, packed.law)
    for empty in (np.zeros((0, 3), np.float16), np.float64(3.0)):
        assert decode(from_bytes(to_bytes(encode(empty, Relative(0.1))))).shape == empty.shape


def sealed(stream: bytearray) -> bytes:
    """With the checksum that belongs to it, as a stranger would write it."""
    return bytes(stream[:-4]) + struct.pack("<I", zlib.crc32(stream[:-4]))


SMALL = {name: to_bytes(make()) for name, make in list(CASES.items())[:5]}


def attacked(stream: bytes) -> None:
    """Decodes or refuses; the process lives and nothing else is raised."""
    try:
        packed = from_bytes(stream)
        if packed.layout.size <= 1 << 22:
            decode(packed)
    except StreamError as error:
        assert "damaged" in str(error) or "version" in str(error)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.data())
def test_changed_bytes(name: str, data: st.DataObject) -> None:
    stream = bytearray(SMALL[name])
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(12, len(stream) - 5))] = data.draw(st.integers(0, 255))
    attacked(sealed(stream))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes_for_long(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = sorted(SMALL)
    for _ in range(20_000):
        stream = bytearray(SMALL[names[rng.integers(len(names))]])
        places = rng.integers(12, len(stream) - 4, rng.integers(1, 9))
        for place in places if rng.random() < 0.7 else places % 300 + 12:
            stream[place] = rng.integers(256)
        attacked(sealed(stream))


def test_every_shortened_stream_is_refused() -> None:
    stream = SMALL["float32-absolute-2d"]
    for length in [*range(200), *range(200, len(stream), 97)]:
        with pytest.raises(StreamError):
            from_bytes(stream[:length])
    with pytest.raises(StreamError, match="expected"):
        from_bytes(stream + b"x")


def test_a_changed_bit_is_seen_by_the_checksum() -> None:
    stream = bytearray(SMALL["float32-absolute-2d"])
    stream[-100] ^= 4
    with pytest.raises(StreamError, match="checksum"):
        from_bytes(stream)


def test_second_stage_of_another_size() -> None:
    import zstandard

    packed = encode(np.arange(9000, dtype=np.float32), Absolute(0.1))
    stream = bytearray(to_bytes(packed, zstd=3))
    begin = len(stream) - 4 - int.from_bytes(stream[12 + 88 : 12 + 96], "little")
    bomb = zstandard.compress(bytes(1 << 20))
    forged = stream[:begin] + bomb + bytes(4)
    forged[12 + 88 : 12 + 96] = struct.pack("<Q", len(bomb))
    with pytest.raises(StreamError, match="another size"):
        from_bytes(sealed(forged))


def test_the_future() -> None:
    stream = bytearray(SMALL["float32-absolute-2d"])
    stream[8:10] = (2).to_bytes(2, "little")
    with pytest.raises(NewerStreamError, match="version 2, this package reads up to 1"):
        from_bytes(stream)


def test_mistakes() -> None:
    packed = encode(np.zeros(3, np.float32), Absolute(0.1))
    for level in (0, 23, True):
        with pytest.raises(CodecError, match="1 to 22"):
            to_bytes(packed, zstd=level)
    with pytest.raises(CodecError, match="32 axes"):
        to_bytes(encode(np.zeros((1,) * 33, np.float32), Absolute(0.1)))


if __name__ == "__main__":  # python -m tests.compress.test_container writes the golden streams
    GOLDEN.mkdir(exist_ok=True)
    sums = {}
    for case, make in CASES.items():
        packed = make()
        (GOLDEN / f"{case}.sbf").write_bytes(to_bytes(packed))
        sums[case] = zlib.crc32(bits(decode(packed)))
    (GOLDEN / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n")
    squeezed = to_bytes(CASES["float32-absolute-2d"](), zstd=3)
    (GOLDEN / "float32-absolute-2d.zst.sbf").write_bytes(squeezed)
