"""Records of the test split with what was picked in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from apps.seismic.data import SeismicData
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from apps.seismic.task import Picking

COLOURS = ("#0b5394", "#a32020")


def draw(task: Picking, source: SeismicData, folder: Path, num_records: int) -> dict[str, str]:
    """A panel a record: its vertical component, arrivals, and the probability of each phase."""
    samples, facts = source.samples("test"), task.facts
    count = min(num_records, len(samples))
    figure = Figure(figsize=(10, 2.2 * count), layout="constrained")
    for number, axes in enumerate(figure.subplots(count, squeeze=False)[:, 0]):
        sample = samples.read(number, None)
        record_T = sample["record_CT"][-1]
        time_T = np.arange(len(record_T)) / facts["rate_Hz"]
        axes.plot(time_T, record_T / np.abs(record_T).max(), color="#66717f", linewidth=0.6)
        probability_PT = task.probabilities(sample["record_CT"])[1:]
        found = zip(facts["phases"], COLOURS, sample["arrival_P"], probability_PT, strict=False)
        for phase, colour, at, values_T in found:
            axes.plot(time_T, values_T, color=colour, label=f"probability of {phase}")
            axes.axvline(
                at / facts["rate_Hz"], color=colour, linestyle=":", label=f"{phase} arrives"
            )
        axes.legend(frameon=False, fontsize=7, loc="upper right")
    axes.set_xlabel("seconds")
    figure.savefig(folder / "records.png", dpi=110)
    return {"records.png": "Test records (last component), true arrivals (dotted), probabilities."}
