"""`scadl bench tuner`: is the plan that is predicted to be the fastest the fastest?

On 2 ranks and three shaped links, 48 plans of one network are predicted, and measured: the least of
three interleaved rounds. One link alone: ``python -m scadl_core.bench.tuner MEGABITS DIR``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from scadl_core.bench.comm import run_on
from scadl_core.bench.links import hosts, refusal
from scadl_core.bench.rows import Row, show_rows, write_rows

LINKS = (100.0, 300.0, 1000.0)
SHOWN = {"predicted": ".3f", "measured": ".3f", "ratio": ".2f", "value": ".3f"}
_RANKS = 2


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the tables.

    Args:
        quick: The slowest link alone, 12 plans.
        console: Where to print.

    Returns:
        The rows.
    """
    reason = refusal()
    if reason is not None:
        console.print(f"links cannot be shaped: {reason}")
        return []
    rows: list[Row] = []
    for megabits in LINKS[:1] if quick else LINKS:
        found = bench_link(megabits, quick)
        rows += found
        show_rows(found, SHOWN, console)
    return rows


def bench_link(megabits: float, quick: bool) -> list[Row]:
    """All plans on one link.

    Args:
        megabits: 10^6 bits a second.
        quick: 12 plans.
    """
    with tempfile.TemporaryDirectory() as folder, hosts(_RANKS, megabits) as joined:
        out = Path(folder) / "rows.json"
        case = f"{_RANKS} ranks, {megabits:g} Mb/s"
        program = ["-m", "scadl_core.bench.plans", str(out), case, str(int(quick))]
        run_on(joined, [sys.executable, *program])
        return [Row(**row) for row in json.loads(out.read_text())]


def main(megabits: float, folder: Path) -> None:
    """One link, printed and written to ``folder/tuner.json``."""
    rows = bench_link(megabits, quick=False)
    show_rows(rows, SHOWN, Console(width=140))
    write_rows(rows, "tuner", folder)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
