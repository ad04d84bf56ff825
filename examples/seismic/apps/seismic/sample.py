"""Writes the example: records of three components in the layout of STEAD (Mousavi et al. 2019,
doi:10.1109/ACCESS.2019.2947848).

A record is coloured noise with a P wave, mostly on Z, and a stronger, slower S wave on E and N;
or noise alone. Bursts that are no arrivals mislead a rule that looks at power only.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from scadl_core.files import written_aside
from scadl_core.workflow.seeds import generator

RATE_HZ = 100.0


def write_sample(
    path: str | Path, traces: int, samples: int = 1500, noise: float = 0.1, seed: int = 0
) -> None:
    """Writes a file of records, where it is not there.

    Args:
        path: The HDF5 file.
        traces: How many records.
        samples: Of each, at 100 Hz.
        noise: Share of records without an event.
        seed: Of everything random.
    """
    path = Path(path)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside, h5py.File(aside, "w") as file:
        for number in range(traces):
            rng = generator(seed, "record", number)
            record_T3, arrivals = _record(rng, samples, is_noise=rng.random() < noise)
            dataset = file.create_dataset(f"data/{number:05d}_EV", data=record_T3)
            dataset.attrs["sampling_rate"] = RATE_HZ
            for name, sample in zip("ps", arrivals, strict=True):
                dataset.attrs[f"{name}_arrival_sample"] = sample


def _record(
    rng: np.random.Generator, samples: int, is_noise: bool
) -> tuple[NDArray[np.float32], tuple[float, float]]:
    white_T3 = rng.normal(size=(samples, 3))
    record_T3 = np.cumsum(white_T3, axis=0) * 0.03 + white_T3
    record_T3 -= record_T3.mean(0)
    for _ in range(rng.integers(0, 3)):  # bursts: a door, a lorry
        at, size = rng.integers(0, samples), rng.uniform(1, 5)
        record_T3 += size * _wave(rng, samples, at, rng.uniform(0.05, 0.3), 25, (1, 1, 1))
    if is_noise:
        return record_T3.astype(np.float32), (np.nan, np.nan)
    p = rng.uniform(0.1, 0.5) * samples
    s = p + rng.uniform(0.08, 0.4) * samples
    size = 10 ** rng.uniform(-0.2, 1.1)
    record_T3 += size * _wave(rng, samples, p, rng.uniform(0.5, 2), 10, (0.3, 0.3, 1))
    record_T3 += 1.8 * size * _wave(rng, samples, s, rng.uniform(1, 3), 5, (1, 1, 0.4))
    return record_T3.astype(np.float32), (p, s)


def _wave(
    rng: np.random.Generator, samples: int, at: float, decay_s: float, frequency_Hz: float,
    share_3: tuple[float, float, float],
) -> NDArray[np.float64]:  # fmt: skip
    """Begins at a sample, decays, and scatters: shape (samples, 3)."""
    time_T = (np.arange(samples) - at) / RATE_HZ
    envelope_T = np.where(time_T >= 0, np.exp(-np.maximum(time_T, 0) / decay_s), 0)
    frequency_3 = frequency_Hz * rng.uniform(0.7, 1.4, 3)
    phase_T3 = 2 * np.pi * frequency_3 * time_T[:, None] + rng.uniform(0, 2 * np.pi, 3)
    coda_T3 = np.cos(phase_T3) + 0.4 * rng.normal(size=(samples, 3))
    return envelope_T[:, None] * coda_T3 * np.asarray(share_3)
