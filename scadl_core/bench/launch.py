"""Benchmarks that need several ranks start them here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from scadl_core.bench.rows import Row


def on_ranks(ranks: int, module: str, arguments: list[str], console: Console) -> list[Row]:
    """Runs ``mpirun -n RANKS python -m MODULE OUT ARGUMENTS``, one thread each.

    Args:
        ranks: How many.
        module: Writes rows as JSON to OUT.
        arguments: Of it.
        console: Where it is said why there are no rows.

    Returns:
        The rows, or none.
    """
    launcher = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if launcher is None:
        console.print(f"no mpirun: nothing on {ranks} ranks; pip install 'scadl\\[mpi]'")
        return []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        program = [sys.executable, "-m", "mpi4py", "-m", module, str(out), *arguments]
        done = subprocess.run(
            [launcher, "-n", str(ranks), *program],
            capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:]
            console.print(f"{ranks} ranks ended with status {done.returncode}: {reason}")
            return []
        return [Row(**row) for row in json.loads(out.read_text())]
