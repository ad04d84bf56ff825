"""Records of three components with arrivals, in HDF5: checks and samples.

Suffixes: T sample in time, C component, K class (noise, then phases), P phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from scadl_core.errors import ConfigError, DataError
from scadl_core.files import Paths, find_files
from scadl_core.record.datareport import DataReport, Table

SUFFIXES = (".hdf5", ".h5")
COMPONENTS = ("E", "N", "Z")  # the columns of a record, as STEAD has them
SPLIT = {"val": 0.15, "test": 0.2}


class Trace(NamedTuple):
    """Where a record is, and its arrivals in samples, NaN where there is none."""

    path: Path
    name: str
    arrivals: tuple[float, ...]


@contextmanager
def opened(path: Path) -> Iterator[h5py.Group]:
    """The records of a file; a DataError names it if it cannot be read."""
    try:
        with h5py.File(path) as file:
            if not isinstance(file.get("data"), h5py.Group):
                raise DataError(f"{path}: has no group 'data' of records")
            yield file["data"]
    except (OSError, KeyError, RuntimeError) as error:
        raise DataError(f"{path}: cannot be read as HDF5 ({error})".replace("\n", " ")) from None


def read_record(path: Path, name: str, inputs: Sequence[str]) -> NDArray[np.float32]:
    """Components of a record, float32 of shape (C, T)."""
    with opened(path) as records:
        record_T3 = np.asarray(records[name], np.float32)
    if record_T3.ndim != 2 or record_T3.shape[1] != len(COMPONENTS):
        raise DataError(f"{path}: {name} has the shape {record_T3.shape}, (samples, 3) is needed")
    return np.ascontiguousarray(record_T3[:, [COMPONENTS.index(it) for it in inputs]].T)


class SeismicData:
    """Records with arrivals.

    Args:
        path: A file, a folder, a pattern, or several of them.
        inputs: Components.
        target: Attributes with the sample of each arrival; their first word names the phase.
        weight: None; records count the same.
        split: Shares ``val`` and ``test``.
        width_s: Standard deviation of the bell that an arrival is in the target.

    Raises:
        ConfigError: A component or a share that does not exist.
        DataError: A file that cannot be read, records of different lengths, or without arrivals.
    """

    def __init__(
        self, path: Paths, inputs: Sequence[str], target: Sequence[str], weight: None = None,
        split: Mapping[str, float] | None = None, width_s: float = 0.2,
    ) -> None:  # fmt: skip
        self.inputs, self.target, self.width_s = list(inputs), list(target), width_s
        self.split = SPLIT | dict(split or {})
        if not self.inputs or set(self.inputs) - set(COMPONENTS):
            raise ConfigError(f"data.inputs={self.inputs}: some of E, N, Z are needed")
        if not self.target or not 0 < sum(self.split.values()) < 1:
            raise ConfigError("data.target names an attribute or two; shares are within 0 and 1")
        self._files = find_files(path, SUFFIXES)
        self.rate_Hz, self.length, self.traces = 0.0, 0, list[Trace]()
        for file in self._files:
            self._look_into(file)

    def _look_into(self, path: Path) -> None:
        with opened(path) as records:
            for name, record in records.items():
                lacking = [it for it in self.target if it not in record.attrs]
                if lacking:
                    known = ", ".join(sorted(record.attrs)) or "none"
                    raise DataError(f"{path}: {name} has no attribute {lacking[0]}; it has {known}")
                self.length = self.length or len(record)
                self.rate_Hz = float(record.attrs.get("sampling_rate", 100.0))
                if len(record) != self.length:
                    raise DataError(
                        f"{path}: {name} has {len(record)} samples, others {self.length}"
                    )
                arrivals = tuple(float(record.attrs[it] or np.nan) for it in self.target)
                self.traces.append(Trace(path, name, arrivals))
        if not self.traces:
            raise DataError(f"{path}: has no record")

    @staticmethod
    def propose(path: Paths, **_: Any) -> tuple[DataReport, dict[str, Any]]:
        """What the first record has, and as targets its attributes that speak of arrivals."""
        files = find_files(path, SUFFIXES)
        with opened(files[0]) as records:
            name = next(iter(records), None)
            if name is None:
                raise DataError(f"{files[0]}: has no record")
            about = {key: str(value) for key, value in records[name].attrs.items()}
            facts = {"files": str(len(files)), "records in the first": str(len(records)),
                     "shape": str(records[name].shape)}  # fmt: skip
        rows = list(about.items())
        table = Table(f"attributes of {name}", ["attribute", "value"], rows)
        report = DataReport(f"records of {files[0].name}", facts, [table])
        return report, {"target": [it for it in about if it.endswith("arrival_sample")] or None}

    def dimensions(self) -> dict[str, Any]:
        """Components in; noise and phases out."""
        return {"in_channels": len(self.inputs), "num_classes": len(self.target) + 1}

    def facts(self) -> dict[str, Any]:
        """What predictions have to know."""
        return {
            "inputs": self.inputs,
            "phases": [name.split("_")[0].upper() for name in self.target],
            "rate_Hz": self.rate_Hz,
            "length": self.length,
            "model": self.dimensions(),
        }

    def report(self) -> DataReport:
        """Counts, and how far apart the arrivals are."""
        arrival_RP = np.array([it.arrivals for it in self.traces])
        counts = np.isfinite(arrival_RP).sum(0)
        facts = {
            "records": f"{len(self.traces)} of {self.length / self.rate_Hz:g} s",
            "rate": f"{self.rate_Hz:g} Hz",
        }
        found = dict(zip(self.target, counts, strict=True))
        facts |= {name: f"in {count} records" for name, count in found.items()}
        warnings = [f"{name}: no arrival at all" for name, count in found.items() if not count]
        return DataReport(f"{len(self.traces)} seismic records", facts, [], warnings)

    def samples(self, split: str) -> SeismicSamples:
        """Records of ``train``, ``val``, ``test`` or ``all``: parted at random, always the same."""
        order = np.random.default_rng(0).permutation(len(self.traces))
        ends = np.cumsum([max(1, round(self.split[it] * len(order))) for it in ("val", "test")])
        parts = dict(zip(("val", "test", "train"), np.split(order, ends), strict=True))
        chosen = np.arange(len(order)) if split == "all" else parts[split]
        return SeismicSamples(self, [self.traces[index] for index in chosen])

    def example(self) -> list[Path]:
        """The file of the first record of the test split."""
        return [self.samples("test").traces[0].path]

    def files(self) -> list[Path]:
        """All of them."""
        return self._files


class SeismicSamples:
    """The records of one split."""

    def __init__(self, data: SeismicData, traces: Sequence[Trace]) -> None:
        self.data, self.traces = data, traces

    def __len__(self) -> int:
        return len(self.traces)

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, NDArray[Any]]:
        """``record_CT``; ``target_KT``, the probability of noise and of each phase; and
        ``arrival_P`` in samples. With ``rng`` the polarity is drawn.
        """
        data, trace = self.data, self.traces[index]
        record_CT = read_record(trace.path, trace.name, data.inputs)
        if rng is not None and rng.random() < 0.5:
            record_CT = -record_CT
        arrival_P = np.array(trace.arrivals, np.float32)
        away_PT = np.arange(data.length) - arrival_P[:, None]
        bell_PT = np.nan_to_num(np.exp(-0.5 * (away_PT / (data.width_s * data.rate_Hz)) ** 2))
        noise_T = np.maximum(1 - bell_PT.sum(0), 0)
        target_KT = np.concatenate([noise_T[None], bell_PT]).astype(np.float32)
        return {"record_CT": record_CT, "target_KT": target_KT, "arrival_P": arrival_P}
