"""xarray through Zarr formats 2 and 3."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

from scadl_core.compress import Absolute, Bound, Relative
from scadl_core.errors import StreamError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def registered() -> dict[str, Any]:
    """The classes behind the entry points, registered as an installation does it."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    found = {
        group: EntryPoint("scadl", points[group]["scadl"], group).load()
        for group in ("numcodecs.codecs", "zarr.codecs")
    }
    numcodecs.register_codec(found["numcodecs.codecs"])
    zarr.registry.register_codec("scadl", found["zarr.codecs"])
    return found


def dataset(dtype: Any) -> Any:
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.standard_normal((6, 50, 70)), 1), 2).astype(dtype)
    smooth[:, 10:20, 30:50] = np.nan  # land
    return xr.Dataset({"t": (("time", "lat", "lon"), smooth)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("bound", [Absolute(0.5), Relative(1e-3)])
def test_a_data_set(
    bound: Bound, zarr_format: int, dtype: Any, tmp_path: Path, registered: dict[str, Any]
) -> None:
    data = dataset(dtype)
    if zarr_format == 2:
        encoding: dict[str, Any] = {"compressors": (registered["numcodecs.codecs"](bound),)}
    else:
        encoding = {"serializer": registered["zarr.codecs"](bound), "compressors": None}
    encoding["chunks"] = (2, 30, 70)
    data.to_zarr(tmp_path / "a.zarr", encoding={"t": encoding}, zarr_format=zarr_format,
                 consolidated=False)  # fmt: skip
    with xr.open_zarr(tmp_path / "a.zarr", consolidated=False, chunks=None) as again:
        found = again["t"].to_numpy()
    expected = data["t"].to_numpy()
    assert found.dtype == dtype
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    spread = float(np.nanmax(expected) - np.nanmin(expected))
    limit = bound.eps * (spread if isinstance(bound, Relative) else 1)
    assert np.nanmax(np.abs(found.astype(np.float64) - expected)) <= limit
    assert np.nanmax(np.abs(found - expected)) > limit / 20
    stored = sum(f.stat().st_size for f in (tmp_path / "a.zarr" / "t").rglob("*") if f.is_file())
    assert stored < expected.nbytes / 3


def test_a_damaged_chunk_is_an_error(tmp_path: Path, registered: dict[str, Any]) -> None:
    codec = registered["numcodecs.codecs"](Absolute(0.5))
    stream = bytearray(codec.encode(dataset(np.float32)["t"].to_numpy()))
    out = np.empty(6 * 50 * 70, np.float32)
    codec.decode(bytes(stream), out)
    assert np.array_equal(out, codec.decode(bytes(stream)).ravel(), equal_nan=True)
    stream[len(stream) // 2] ^= 1
    with pytest.raises(StreamError, match="checksum"):
        codec.decode(bytes(stream))


def test_configurations(registered: dict[str, Any]) -> None:
    codec = registered["numcodecs.codecs"](Relative(0.1), zstd=None)
    assert numcodecs.get_codec(codec.get_config()).get_config() == codec.get_config()
    third = registered["zarr.codecs"](Relative(0.1), zstd=None)
    assert registered["zarr.codecs"].from_dict(third.to_dict()) == third
