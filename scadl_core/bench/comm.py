"""`scadl bench comm`: what exchanges of gradients cost on a slow network.

Bytes, the time of a step and the time to a target loss of a residual network of 6.3 million
parameters, on 2 and 4 ranks whose links are shaped to 100 Mb/s and 1 Gb/s. One case alone:
``python -m scadl_core.bench.comm RANKS MEGABITS DIR``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from scadl_core.bench.links import INTERFACE, Host, hosts, refusal
from scadl_core.bench.rows import Row, show_rows, value_of, write_rows

SHOWN = {
    "payload a step": ".3f",
    "on the wire a step": ".3f",
    "fewer bytes than plain": ".1f",
    "step": ".3f",
    "steps": ".0f",
    "last loss": ".3f",
    "time to target": ".1f",
}
LINKS = {"100 Mb/s": 100.0, "1 Gb/s": 1000.0}
_PORT = "29517"


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the tables.

    Args:
        quick: 2 ranks at 100 Mb/s, a few steps.
        console: Where to print.

    Returns:
        The rows.
    """
    reason = refusal()
    if reason is not None:
        console.print(f"links cannot be shaped: {reason}")
        return []
    rows: list[Row] = []
    for link, megabits in LINKS.items():
        for count in (2, 4):
            if quick and (count, megabits) != (2, 100.0):
                continue
            found = bench_case(f"{count} ranks, {link}", count, megabits, quick)
            rows += found
            show_rows(found, SHOWN, console)
    return rows


def bench_case(case: str, count: int, megabits: float, quick: bool) -> list[Row]:
    """All methods on some ranks and one kind of link.

    Args:
        case: What to call it.
        count: How many ranks.
        megabits: Of each link, 10^6 bits a second.
        quick: A few steps only.
    """
    with tempfile.TemporaryDirectory() as folder, hosts(count, megabits) as joined:
        out = Path(folder) / "rows.json"
        program = ["-m", "scadl_core.bench.exchanges", str(out), case, str(int(quick))]
        run_on(joined, [sys.executable, *program])
        rows = [Row(**row) for row in json.loads(out.read_text())]
    plain = value_of(rows, case, "plain", "on the wire a step")
    assert plain is not None
    ratios = [
        row._replace(metric="fewer bytes than plain", value=plain / row.value, unit="1")
        for row in rows
        if row.metric == "on the wire a step"
    ]
    return rows + ratios


def run_on(joined: Sequence[Host], words: Sequence[str]) -> None:
    """Runs a program as one rank on each host, as torchrun would start it.

    Args:
        joined: The hosts; rank 0 is on the first.
        words: The command.

    Raises:
        RuntimeError: A rank failed; with the end of what it wrote.
    """
    common = {"WORLD_SIZE": str(len(joined)), "MASTER_ADDR": joined[0].address,
              "MASTER_PORT": _PORT, "GLOO_SOCKET_IFNAME": INTERFACE,
              "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        ranks = [
            subprocess.Popen(
                host.command(words), env={**os.environ, **common, "RANK": str(rank)},
                stdout=log, stderr=log,
            )
            for rank, host in enumerate(joined)
        ]  # fmt: skip
        try:
            statuses = [rank.wait() for rank in ranks]
        finally:  # none goes on alone
            for rank in ranks:
                rank.kill()
        if any(statuses):
            log.seek(0)
            raise RuntimeError(f"ranks ended with {statuses}: {log.read()[-2000:]}")


def main(count: int, megabits: float, folder: Path) -> None:
    """One case, printed and written to ``folder/comm.json``."""
    rows = bench_case(f"{count} ranks, {megabits:g} Mb/s", count, megabits, quick=False)
    show_rows(rows, SHOWN, Console(width=140))
    write_rows(rows, "comm", folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
