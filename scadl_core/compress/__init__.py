"""Floor 0. Arrays in, bytes out: compression whose error is bounded."""

from scadl_core.compress.bounds import L2, Absolute, Bound, PointwiseRelative, Relative
from scadl_core.compress.codec import Achieved, Compressed, decode, decode_tiles, encode
from scadl_core.compress.container import from_bytes, to_bytes
from scadl_core.compress.threads import get_num_threads, set_num_threads

__all__ = [
    "L2",
    "Absolute",
    "Achieved",
    "Bound",
    "Compressed",
    "PointwiseRelative",
    "Relative",
    "decode",
    "decode_tiles",
    "encode",
    "from_bytes",
    "get_num_threads",
    "set_num_threads",
    "to_bytes",
]
