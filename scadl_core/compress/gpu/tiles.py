"""Tiles in the memory of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.tiling import GROUP, SIZE_MASK, SLACK, Tiles
from scadl_core.errors import CodecError

BLOCK = 8  # tiles a thread block does


@dataclass(frozen=True, eq=False)
class Arena:
    """Memory that many arrays' words share, so that no call waits or allocates for them.

    Attributes:
        words: uint32, on the device.
        cursor: uint64, on the device: words given away. Setting it to zero empties the arena.
    """

    words: Any
    cursor: Any


@dataclass(frozen=True, eq=False)
class DeviceTiles:
    """As :class:`scadl_core.compress.tiling.Tiles`, whose attributes are copied on first use.

    Attributes:
        device_descriptors: uint16, one a tile.
        device_words: uint32; in an arena, those of others, too.
        device_bases: uint64, the first word of every ``per_base`` tiles.
        per_base: 32 where tiles lie in order, else the tiles of a thread block.
        cursor: Of the arena; None where tiles lie in order.
        trusted: Whether the encoder wrote them and had room.
    """

    device_descriptors: Any
    device_words: Any
    device_bases: Any
    per_base: int
    cursor: Any = field(default=None, repr=False)
    trusted: bool = False

    @classmethod
    def empty(
        cls, cupy: Any, count: int, words: Any, per_base: int, cursor: Any = None
    ) -> DeviceTiles:
        """Room for ``count`` tiles whose words go to ``words``."""
        bases = cupy.zeros(-(-count // per_base) + 1, np.uint64)
        return cls(cupy.empty(count, np.uint16), words, bases, per_base, cursor)

    @classmethod
    def of(cls, cupy: Any, tiles: Tiles) -> DeviceTiles:
        """A copy on the device."""
        words = tiles.words[: tiles.num_words]
        descriptors, words, bases = map(cupy.asarray, (tiles.descriptors, words, tiles.bases))
        return cls(descriptors, words, bases, GROUP)

    def trimmed(self) -> DeviceTiles:
        """These tiles, which lie in order, with no more words than they have."""
        words = self.device_words[: self.num_words].copy()
        return DeviceTiles(
            self.device_descriptors, words, self.device_bases, GROUP, None, trusted=True
        )

    @property
    def descriptors(self) -> NDArray[np.uint16]:
        """On the host."""
        return self.host.descriptors

    @property
    def words(self) -> NDArray[np.uint32]:
        """On the host, in order."""
        return self.host.words

    @property
    def bases(self) -> NDArray[np.uint64]:
        """On the host, of tiles in order."""
        return self.host.bases

    @cached_property
    def num_words(self) -> int:
        """How many words there are; waits for the device."""
        if self.cursor is not None:
            return int((self.descriptors & SIZE_MASK).sum(dtype=np.int64))
        return int(self.device_bases[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of bases, descriptors and words."""
        count = int(self.device_descriptors.size)
        return 8 * -(-count // GROUP) + 2 * count + 4 * self.num_words

    @cached_property
    def host(self) -> Tiles:
        """A copy in order.

        Raises:
            CodecError: The arena had no room for all words.
        """
        import cupy

        descriptors: NDArray[np.uint16] = cupy.asnumpy(self.device_descriptors)
        starts = cupy.asnumpy(self.device_bases)[:-1].tolist()
        padded = np.zeros(len(starts) * self.per_base, np.int64)
        padded[: descriptors.size] = descriptors & SIZE_MASK
        sizes = padded.reshape(-1, self.per_base).sum(1).tolist()
        if any(b + n > self.device_words.size for b, n in zip(starts, sizes, strict=True)):
            raise CodecError(
                f"the arena of {4 * self.device_words.size} bytes had no room for this array; "
                "make it larger, or empty it more often"
            )
        if self.cursor is None:
            parts = [self.device_words[: self.num_words]]
        else:
            parts = [self.device_words[b : b + n] for b, n in zip(starts, sizes, strict=True)]
        slack: NDArray[np.uint32] = np.zeros(SLACK, np.uint32)
        return Tiles(descriptors, np.concatenate([*map(cupy.asnumpy, parts), slack]))
