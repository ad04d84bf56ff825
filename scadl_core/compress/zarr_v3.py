"""The codec as a serializer of Zarr format 3; found by its entry point."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.common import parse_named_configuration

from scadl_core.compress.bounds import Bound, bound_from_json
from scadl_core.compress.codec import decode, encode
from scadl_core.compress.container import from_bytes, to_bytes
from scadl_core.errors import StreamError


@dataclass(frozen=True)
class ScadlCodec(ArrayBytesCodec):
    """Compresses chunks of floats within a bound.

    ``encoding={"t2m": {"serializer": ScadlCodec(Absolute(0.01)), "compressors": None}}`` in
    xarray's ``to_zarr``. A relative bound is relative to each chunk's own range.

    Attributes:
        bound: What may be lost.
        zstd: Level of the second stage; None for none.
    """

    bound: Bound
    zstd: int | None = 3
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ScadlCodec:
        """The codec of :meth:`to_dict`."""
        found: Any = parse_named_configuration(data, "scadl")[1]
        return cls(bound_from_json(found["bound"]), found.get("zstd"))

    def to_dict(self) -> dict[str, Any]:
        """What Zarr's metadata say of it."""
        configuration = {"bound": self.bound.to_json(), "zstd": self.zstd}
        return {"name": "scadl", "configuration": configuration}

    async def _encode_single(self, chunk_array: Any, chunk_spec: Any) -> Any:
        array = np.asarray(chunk_array.as_numpy_array())
        packed = await asyncio.to_thread(encode, array, self.bound)
        return chunk_spec.prototype.buffer.from_bytes(to_bytes(packed, zstd=self.zstd))

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        array = await asyncio.to_thread(lambda: decode(from_bytes(chunk_bytes.as_numpy_array())))
        if array.shape != chunk_spec.shape:
            raise StreamError(f"a chunk has the shape {array.shape}, expected {chunk_spec.shape}")
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array)

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: Any) -> int:
        """Is not known before."""
        raise NotImplementedError
