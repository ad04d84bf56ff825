"""Picks as a table: record, phase, second, probability."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from apps.seismic.data import SUFFIXES, opened, read_record
from apps.seismic.picks import picks_of

from scadl_core.errors import DataError
from scadl_core.files import Paths, find_files, written_aside

if TYPE_CHECKING:
    from apps.seismic.task import Picking


def predict_files(
    task: Picking, inputs: Paths, output: Path, provenance: Mapping[str, Any]
) -> Path:
    """Picks the phases of every record in some files; these need no arrivals.

    Args:
        task: What picks.
        inputs: HDF5 files.
        output: The CSV file to write; or a folder to name one in.
        provenance: Of the run; a line on top of the table.

    Raises:
        DataError: A file cannot be read, or would be overwritten.
    """
    files = find_files(inputs, SUFFIXES, key="input")
    output = Path(output)
    output = output / f"{files[0].stem}_picks.csv" if output.is_dir() else output
    if output.resolve() in {file.resolve() for file in files}:
        raise DataError(f"output={output} is an input as well; choose another name")
    output.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(output) as aside, aside.open("w", newline="") as table:
        table.write(f"# ScaDL, {provenance['command']}\n")
        writer = csv.writer(table)
        writer.writerow(["file", "record", "phase", "second", "probability"])
        for file in files:
            with opened(file) as records:
                names = list(records)
            for name in names:
                writer.writerows([file.name, name, *pick] for pick in _picks(task, file, name))
    return output


def _picks(task: Picking, file: Path, name: str) -> list[tuple[str, str, str]]:
    probability_KT = task.probabilities(read_record(file, name, task.facts["inputs"]))
    found_RP, best_RP = picks_of(probability_KT[None, 1:])
    return [
        (phase, f"{at / task.facts['rate_Hz']:.2f}", f"{best:.3f}")
        for phase, at, best in zip(task.facts["phases"], found_RP[0], best_RP[0], strict=True)
        if np.isfinite(at)
    ]
