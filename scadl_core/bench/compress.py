"""`scadl bench compress`: the codec beside its peers, in one run.

Every method in turn, round after round, so that what the machine does besides falls on all alike;
the best round counts. One thread is timed by the processor's clock, which other programs disturb
less; several by the wall's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from scadl_core.bench.arrays import model_arrays, smooth_field
from scadl_core.bench.codecs import MEMCPY, METHODS, OURS, OURS_ZSTD, Codec, Method, versions
from scadl_core.bench.rows import Row, show_rows, value_of

EPSILONS = (1e-2, 1e-3, 1e-4)
SHOWN = {
    "ratio": ".2f",
    "compress": ".0f",
    "decompress": ".0f",
    "compress of memcpy": ".1f",
    "decompress of memcpy": ".1f",
    "max error": ".4f",
    "violations": ".0f",
}


Clock = Callable[[], float]


class Size(NamedTuple):
    """How much is measured."""

    maps: int
    steps: int
    field: tuple[int, int, int]
    rounds: int


FULL = Size(16, 48, (512, 512, 64), 9)
QUICK = Size(4, 12, (128, 128, 64), 9)


def bench(quick: bool, console: Console) -> list[Row]:
    """Measures, and prints the tables.

    Args:
        quick: Less data; about four minutes.
        console: Where to print.

    Returns:
        The rows.
    """
    size = QUICK if quick else FULL
    found = versions()
    missing = sorted(package for package, version in found.items() if version is None)
    console.print(f"versions: {', '.join(f'{p} {v}' for p, v in found.items() if v)}")
    if missing:
        console.print(f"not installed, left out: {', '.join(missing)}; pip install 'scadl[bench]'")
    methods = [m for m in METHODS if m.package is None or found[m.package]]
    activations, gradients = model_arrays(size.maps, size.steps)
    data = {"activations": activations, "gradients": gradients}
    data["smooth field"] = [smooth_field(*size.field)]
    cores = len(os.sched_getaffinity(0))
    rows: list[Row] = []
    for threads in dict.fromkeys((1, cores)):
        usable = methods if threads == 1 else [m for m in methods if m.threaded or m.name == MEMCPY]
        for name, arrays in data.items():
            for eps in EPSILONS if threads == 1 else (1e-3,):
                case = f"{name}, {eps:g} of the range, {threads} thread{'s' * (threads > 1)}"
                rows += measure(case, arrays, eps, threads, usable, size.rounds)
                console.print(f"done: {case}", style="dim")
    show_rows(rows, SHOWN, console)
    _show_acceptance(rows, console)
    return rows


class _Tally:
    """One method's numbers over the arrays of a case."""

    def __init__(
        self, codecs: list[Codec], arrays: list[NDArray[Any]], bounds: list[float], clock: Clock
    ) -> None:
        self.codecs, self.arrays, self.clock = codecs, arrays, clock
        self.kept = [codec.compress() for codec in codecs]
        again = [codec.decompress(kept) for codec, kept in zip(codecs, self.kept, strict=True)]
        errors = [
            np.abs(y.reshape(x.shape).astype(np.float64) - x) / b
            for x, y, b in zip(arrays, again, bounds, strict=True)
        ]
        self.worst = max(float(error.max()) for error in errors)
        self.violations = sum(int((~(error <= 1)).sum()) for error in errors)
        self.compress = self.decompress = float("inf")

    @property
    def num_bytes(self) -> int:
        return sum(x.nbytes for x in self.arrays)

    def go_round(self) -> None:
        started = self.clock()
        self.kept = [codec.compress() for codec in self.codecs]
        between = self.clock()
        for codec, kept in zip(self.codecs, self.kept, strict=True):
            codec.decompress(kept)
        self.compress = min(self.compress, between - started)
        self.decompress = min(self.decompress, self.clock() - between)

    def rows(self, case: str, method: str) -> list[Row]:
        sizes = [codec.size(kept) for codec, kept in zip(self.codecs, self.kept, strict=True)]
        speed = [self.num_bytes / seconds / 1e6 for seconds in (self.compress, self.decompress)]
        return [
            Row(case, method, "ratio", self.num_bytes / sum(sizes), "1"),
            Row(case, method, "compress", speed[0], "MB/s"),
            Row(case, method, "decompress", speed[1], "MB/s"),
            Row(case, method, "max error", self.worst, "1"),
            Row(case, method, "violations", self.violations, "1"),
        ]


def measure(
    case: str,
    arrays: list[NDArray[Any]],
    eps: float,
    threads: int,
    methods: list[Method],
    rounds: int,
) -> list[Row]:
    """The rows of one case.

    Args:
        case: Its name.
        arrays: float32; each has its own bound.
        eps: Relative to each array's range.
        threads: For the methods that can use several.
        methods: Who takes part; memcpy among them.
        rounds: How often each is timed.
    """
    arrays = [x for x in arrays if x.max() > x.min()]
    bounds = [eps * (float(x.max()) - float(x.min())) for x in arrays]
    clock = time.process_time if threads == 1 else time.perf_counter
    tallies = {
        method.name: _Tally(
            [method.make(x, b, threads) for x, b in zip(arrays, bounds, strict=True)],
            arrays,
            bounds,
            clock,
        )
        for method in methods
    }
    for _ in range(rounds):
        for tally in tallies.values():
            tally.go_round()
    rows = [row for name, tally in tallies.items() for row in tally.rows(case, name)]
    limit = tallies[MEMCPY]
    for name, tally in tallies.items():
        part = 100 * limit.compress / tally.compress, 100 * limit.compress / tally.decompress
        rows.append(Row(case, name, "compress of memcpy", part[0], "%"))
        rows.append(Row(case, name, "decompress of memcpy", part[1], "%"))
    return rows


def _show_acceptance(rows: list[Row], console: Console) -> None:
    """Ours over each peer, by which the codec is judged."""
    table = Table("case", "against", "ratio", "with zstd", "compress", "decompress",
                  title="ours over the peers'", title_justify="left")  # fmt: skip
    for case, method in dict.fromkeys((row.case, row.method) for row in rows):
        if method in (OURS, OURS_ZSTD, MEMCPY):
            continue
        table.add_row(case, method, *(
            _quotient(rows, case, ours, method, metric)
            for ours, metric in ((OURS, "ratio"), (OURS_ZSTD, "ratio"), (OURS, "compress"),
                                 (OURS, "decompress"))
        ))  # fmt: skip
    console.print(table)


def _quotient(rows: list[Row], case: str, ours: str, peer: str, metric: str) -> str:
    above, below = value_of(rows, case, ours, metric), value_of(rows, case, peer, metric)
    return f"{above / below:.2f}" if above and below else "-"
