"""Statistics of channels in one pass over data larger than memory, and a place to keep results.

Suffixes: C channel, P pixel (or any other position at which a channel has a value).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.errors import PlaceError
from scadl_core.files import write_json
from scadl_core.record.provenance import fingerprints

Floats = NDArray[np.float64]


@dataclass
class Moments:
    """Count, mean, spread and range of the finite values of each channel.

    Law: any cutting of the values into parts, added in any order, gives the same to rounding; see
    Chan, Golub and LeVeque (1983), doi:10.1080/00031305.1983.10483115, eq. 2.1.

    Attributes:
        count_C: Finite values.
        mean_C: Their mean.
        squares_C: Sum of their squared distances from the mean.
        min_C: The smallest; infinite where there is none.
        max_C: The largest.
        missing_C: Values that are not finite.
    """

    count_C: Floats
    mean_C: Floats
    squares_C: Floats
    min_C: Floats
    max_C: Floats
    missing_C: Floats

    @classmethod
    def of(cls, values_CP: NDArray[Any]) -> Moments:
        """The moments of values of any float type, shape [C, ...]."""
        values_CP = values_CP.reshape(len(values_CP), -1).astype(np.float64)
        finite_CP = np.isfinite(values_CP)
        count_C = finite_CP.sum(1).astype(np.float64)
        mean_C = values_CP.sum(1, where=finite_CP) / np.maximum(count_C, 1)
        squares_C = np.square(values_CP - mean_C[:, None]).sum(1, where=finite_CP)
        min_C = values_CP.min(1, where=finite_CP, initial=np.inf)
        max_C = values_CP.max(1, where=finite_CP, initial=-np.inf)
        return cls(count_C, mean_C, squares_C, min_C, max_C, values_CP.shape[1] - count_C)

    def __add__(self, other: Moments) -> Moments:
        total_C = self.count_C + other.count_C
        delta_C, share_C = other.mean_C - self.mean_C, other.count_C / np.maximum(total_C, 1)
        return Moments(
            total_C,
            self.mean_C + delta_C * share_C,
            self.squares_C + other.squares_C + delta_C**2 * self.count_C * share_C,
            np.minimum(self.min_C, other.min_C),
            np.maximum(self.max_C, other.max_C),
            self.missing_C + other.missing_C,
        )

    @property
    def std_C(self) -> Floats:
        """Standard deviation; 1 where a channel is constant or empty, as one divides by it."""
        std_C = np.sqrt(self.squares_C / np.maximum(self.count_C, 1))
        return np.where(self.max_C <= self.min_C, 1.0, std_C)


def remembered(
    folder: str | Path | None,
    files: Iterable[Path],
    settings: Mapping[str, Any],
    compute: Callable[[], dict[str, NDArray[Any]]],
) -> dict[str, NDArray[Any]]:
    """What was computed from some files before, with the same settings; else computes and keeps it.

    Args:
        folder: Where results are kept, one JSON file each; None keeps nothing. A folder that cannot
            be written, or a file in it that cannot be read, costs no more than the computation.
        files: What the result depends on; changed content gives another result, see
            :func:`scadl_core.record.provenance.fingerprints`.
        settings: What else it depends on, in plain numbers, texts and lists.
        compute: Gives finite or infinite numbers by name.
    """
    if folder is None:
        return compute()
    page = json.dumps([fingerprints(files), settings], sort_keys=True, default=str)
    path = Path(folder) / f"{_digest(page)}.json"
    with suppress(OSError, ValueError, LookupError, TypeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["digest"] == _digest(json.dumps(kept["values"])):
            return {name: np.asarray(it, np.float64) for name, it in kept["values"].items()}
    result = compute()
    values = {name: it.tolist() for name, it in result.items()}
    with suppress(OSError, PlaceError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"digest": _digest(json.dumps(values)), "values": values})
    return result


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
