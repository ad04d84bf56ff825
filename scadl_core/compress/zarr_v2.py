"""The codec as a compressor of numcodecs, for Zarr format 2; found by its entry point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy

from scadl_core.compress.bounds import Bound, bound_from_json
from scadl_core.compress.codec import decode, encode
from scadl_core.compress.container import from_bytes, to_bytes


class ScadlCodec(Codec):  # type: ignore[misc]
    """Compresses chunks of floats within a bound.

    ``encoding={"t2m": {"compressors": (ScadlCodec(Absolute(0.01)),)}}`` in xarray's ``to_zarr``
    with ``zarr_format=2``. A relative bound is relative to each chunk's own range.

    Args:
        bound: What may be lost.
        zstd: Level of the second stage; None for none.
    """

    codec_id = "scadl"

    def __init__(self, bound: Bound, zstd: int | None = 3) -> None:
        self.bound = bound
        self.zstd = zstd

    def encode(self, buf: Any) -> bytes:
        """A chunk's stream.

        Raises:
            CodecError: The chunk does not hold floats.
        """
        return to_bytes(encode(np.asarray(buf), self.bound), zstd=self.zstd)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """A chunk of a stream.

        Raises:
            StreamError: The stream is damaged.
        """
        array = decode(from_bytes(ensure_contiguous_ndarray(buf)))
        return array if out is None else ndarray_copy(array, out)

    def get_config(self) -> dict[str, Any]:
        """What Zarr's metadata say of it."""
        return {"id": self.codec_id, "bound": self.bound.to_json(), "zstd": self.zstd}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ScadlCodec:
        """The codec of :meth:`get_config`."""
        return cls(bound_from_json(config["bound"]), config.get("zstd"))
