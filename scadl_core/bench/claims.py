"""`scadl bench claims [APP ...]`: what the three powers do to each pipeline, alone and together.

Every training is a command of its own on two ranks, so that its time, memory and bytes are its own,
and a line of a journal as soon as it has ended. Of every method the learning rate is chosen among
three, by the validation of seed 0; then scores of the test are compared with those of plain
training, paired by seed.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.console import Console

from scadl_core.bench.journal import Journal, about
from scadl_core.bench.rows import Row, markdown, show_rows
from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run
from scadl_core.errors import ConfigError, LaunchError, RunError
from scadl_core.files import write_text
from scadl_core.record.intervals import interval

PLAIN = "plain"
METHODS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    "compression": ("memory=adaptive", "comm=compressed"),
    "second order": ("optimizer=kfac",),
    "gradient-free": ("solver=admm",),
    "compression, second order": ("memory=adaptive", "comm=compressed", "optimizer=kfac"),
    "all three": ("memory=adaptive", "comm=compressed", "solver=admm", "solver.local=kfac"),
}
# The score of each pipeline's test, from the quickest to train to the slowest.
SCORES = {"graphs": "accuracy", "hep": "auc_macro", "climate": "iou_mean", "remote_sensing": "psnr"}
RANKS, SEEDS, RATES = 2, 5, (1.0, 0.3, 3.0)
QUICK = ("debug=tiny", "trainer.max_epochs=3", "trainer.accelerator=cpu")
QUICK_APPS = {
    "remote_sensing": ("data.sample.train_scenes=8", "data.sample.test_scenes=2",
                       "data.split.val=0.3"),
}  # fmt: skip
SHOWN = {
    "seeds": ".0f", "rate": "g", "score": ".4f", "difference": "+.4f", "low": "+.4f",
    "high": "+.4f", "at equal time": "+.4f", "activations": ".2f", "sent": ".2f", "time": ".2f",
    "failed": ".0f",
}  # fmt: skip
EXPLAINED = """`rate`: of the optimizer, chosen among three by the validation of seed 0. `score`:
of the test, mean over seeds; `difference` to plain training of the same seed, `low` and `high` the
ends of its 95 % interval (Student), at equal epochs; `at equal time`: the difference of the best
validation score within the time that plain training took, epochs taken for equally long (-: none
was over by then). The rest is a ratio: bytes of saved `activations` a rank and bytes `sent`, plain
over method (more is better); `time`, method over plain (less is better). `failed`: trainings that
ended with an error, which count as lost. Better, worse: zero is outside of the interval.
"""


class Training(Protocol):
    """What :func:`trained` needs to know."""

    @property
    def app(self) -> str:
        """The pipeline."""

    @property
    def key(self) -> str:
        """Its name, also of its folder."""

    @property
    def words(self) -> Sequence[str]:
        """The overrides of its command."""


class Job(NamedTuple):
    """One training.

    Attributes:
        app: The pipeline.
        method: What is switched on.
        factor: Of the rate on the optimizer's page.
        seed: Of the run.
        quick: Whether it is shortened.
    """

    app: str
    method: str
    factor: float
    seed: int
    quick: bool

    @property
    def key(self) -> str:
        """Its name in the journal."""
        parts = (self.app, self.method, f"rate x {self.factor:g}", f"seed {self.seed}")
        return ", ".join([*parts, *["quick"] * self.quick])

    @property
    def words(self) -> list[str]:
        """The overrides of its command."""
        short = [*QUICK, *QUICK_APPS.get(self.app, ())] if self.quick else []
        chosen = [*short, *METHODS[self.method]]
        if self.factor != 1:
            rate = self.factor * float(compose_run(find_app(self.app), chosen).optimizer.lr)
            chosen.append(f"optimizer.lr={rate:.6g}")
        return [*chosen, f"seed={self.seed}", "logger=none"]


def bench_into(folder: Path, apps: Sequence[str], quick: bool, console: Console) -> list[Row]:
    """Trains what is not in the journal yet; the tables are renewed after every training.

    Args:
        folder: Of ``claims.jsonl`` and ``claims.md``; of a quick one ``claims-quick.md``.
        apps: Which pipelines; none: all four.
        quick: Trainings of seconds, two seeds, no choice of rates.
        console: Where to print.

    Raises:
        ConfigError: A pipeline that has no row.
        RunError: A training was ended from outside; the same command goes on.
    """
    for app in apps:
        if app not in SCORES:
            raise ConfigError(f"claims: {app!r} is none of {', '.join(SCORES)}")
    journal = Journal(folder / "claims.jsonl")
    chosen = [app for app in SCORES if app in (apps or SCORES)]
    for app in chosen:
        for job in jobs(app, quick, journal):
            console.print(f"{job.key}: scadl train {app} {' '.join(job.words)}")
            journal.add(job.key, **job._asdict(), words=job.words, **trained(job, folder))
            write_page(folder, journal, quick)
    rows = summary(journal, quick)
    write_page(folder, journal, quick)
    show_rows(rows, SHOWN, console)
    return rows


def jobs(app: str, quick: bool, journal: Journal) -> Iterator[Job]:
    """What is to be done of a pipeline, in order, given what is in the journal when it is asked."""

    def absent(found: Sequence[Job]) -> Iterator[Job]:
        yield from (job for job in found if job.key not in journal.lines)

    rates = RATES[:1] if quick else RATES
    yield from absent([Job(app, name, it, 0, quick) for name in METHODS for it in rates])
    for seed in range(1, 2 if quick else SEEDS):
        best = {name: chosen_rate(journal, app, name, quick) for name in METHODS}
        yield from absent([Job(app, name, best[name], seed, quick) for name in METHODS])


def chosen_rate(journal: Journal, app: str, method: str, quick: bool) -> float:
    """The factor with the best validation score at seed 0."""
    tried = [Job(app, method, factor, 0, quick) for factor in RATES]
    found = {it.factor: journal.lines[it.key] for it in tried if it.key in journal.lines}
    return max(found, key=lambda factor: best_of(found[factor]["curve"]), default=RATES[0])


def trained(job: Training, folder: Path) -> dict[str, Any]:
    """Does one training, or goes on with it.

    Args:
        job: Which.
        folder: Where its run folder is while it lasts.

    Returns:
        ``metrics``, the ``curve`` of its validation scores, and why it ``failed``, or None.
    """
    run = folder / "claims" / job.key.replace(" ", "_").replace(",", "")
    run.mkdir(parents=True, exist_ok=True)
    command = [_launcher(), "-n", str(RANKS), sys.executable, "-m", "scadl_core.cli", "train",
               job.app, *job.words, f"run.dir={_quoted(run / 'run')}", "resume=auto"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (run / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    said = [line for line in done.stderr.splitlines() if line.startswith("scadl: ")]
    if done.returncode not in (0, 2) or (done.returncode and not said):
        raise RunError(f"{job.key}: status {done.returncode}; see {run / 'output.txt'}")
    if done.returncode:
        return {"metrics": {}, "curve": [], "failed": said[-1].removeprefix("scadl: ")}
    metrics, curve = read_run(run / "run")
    shutil.rmtree(run)
    return {"metrics": metrics, "curve": curve, "failed": None}


def read_run(run: Path) -> tuple[dict[str, float], list[float]]:
    """The metrics of a finished run, and its validation score after each epoch."""
    from scadl_core.record.runfolder import RunFolder

    text = (run / "metrics.csv").read_text(encoding="utf-8")
    curve = [float(row["val/score"] or "nan") for row in csv.DictReader(text.splitlines())]
    return RunFolder(run).load_metrics(), curve


def _launcher() -> str:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpirun", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        raise LaunchError(
            "claims are measured on two ranks, and mpirun is not on PATH: load the site's MPI "
            "module, or pip install 'scadl[mpi]'"
        )
    return found


def _quoted(path: Path) -> str:
    return "'" + str(path.absolute()).replace("\\", "\\\\").replace("'", "\\'") + "'"


def summary(journal: Journal, quick: bool) -> list[Row]:
    """The rows of all pipelines and methods of which there is something in a journal."""
    rows: list[Row] = []
    for app in SCORES:
        found = {name: _runs(journal, app, name, quick) for name in METHODS}
        for name, runs in found.items():
            values = _compare(app, runs, found[PLAIN]) if runs and found[PLAIN] else {}
            if values:
                values["rate"] = chosen_rate(journal, app, name, quick)
            rows += [Row(app, name, metric, value, "1") for metric, value in values.items()]
        rows += _rule(app, found[PLAIN])
    return rows


def _runs(journal: Journal, app: str, method: str, quick: bool) -> dict[int, dict[str, Any]]:
    """Lines by seed, with the chosen rate."""
    factor = chosen_rate(journal, app, method, quick)
    keys = {seed: Job(app, method, factor, seed, quick).key for seed in range(SEEDS)}
    return {seed: journal.lines[key] for seed, key in keys.items() if key in journal.lines}


def _compare(
    app: str, runs: dict[int, dict[str, Any]], plain: dict[int, dict[str, Any]]
) -> dict[str, float]:
    """A method's line of the table."""
    pairs = [(runs[s], plain[s]) for s in sorted(runs.keys() & plain.keys())]
    done = [(mine, base) for mine, base in pairs if not (mine["failed"] or base["failed"])]
    failed = {"failed": float(sum(1 for mine, _ in pairs if mine["failed"]))}
    if not done:
        return failed if pairs else {}
    name = f"test/{SCORES[app]}"
    scores = [[run["metrics"][name] for run in pair] for pair in done]
    mean, low, high = interval([mine - base for mine, base in scores])
    found = {
        "seeds": float(len(done)),
        "score": float(np.mean([mine for mine, _ in scores])),
        "difference": mean,
        "low": low,
        "high": high,
        "at equal time": float(np.mean([at_equal_time(*pair) for pair in done])),
        "activations": _ratio(done, "memory/saved_bytes"),
        "sent": _ratio(done, "comm/sent_bytes"),
        "time": 1 / _ratio(done, "train/seconds"),
        **failed,
    }
    return {metric: value for metric, value in found.items() if math.isfinite(value)}


def _ratio(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]], name: str) -> float:
    """Plain over method; the geometric mean over seeds."""
    logs = [math.log(max(it["metrics"][name], 1e-9)) for pair in pairs for it in pair]
    return math.exp(sum(logs[1::2]) / len(pairs) - sum(logs[::2]) / len(pairs))


def at_equal_time(mine: dict[str, Any], base: dict[str, Any]) -> float:
    """Best validation score within the time of plain training, less plain training's."""
    seconds, limit = (it["metrics"]["train/seconds"] for it in (mine, base))
    curve = mine["curve"]
    within = [score for n, score in enumerate(curve, 1) if n * seconds / len(curve) <= 1.02 * limit]
    return best_of(within) - best_of(base["curve"])


def best_of(curve: Sequence[float]) -> float:
    """The best of the scores that are numbers; minus infinity where there is none."""
    return max((it for it in curve if math.isfinite(it)), default=-math.inf)


def _rule(app: str, plain: dict[int, dict[str, Any]]) -> list[Row]:
    """The simple rule's score."""
    values = [line["metrics"].get(f"baseline/{SCORES[app]}") for line in plain.values()]
    found = [value for value in values if value is not None]
    return [Row(app, "simple rule", "score", float(np.mean(found)), "1")] if found else []


def write_page(folder: Path, journal: Journal, quick: bool) -> None:
    """Writes the tables as Markdown."""
    rows = summary(journal, quick)
    lines = [line for line in journal.lines.values() if line["quick"] == quick]
    flag = " --quick" * quick
    short = "**Quick: trainings of seconds, which show that it works and not how good it is.**\n\n"
    failures = dict.fromkeys(f"* {it['key']}: {it['failed']}" for it in lines if it["failed"])
    page = (
        f"# Claims: three powers, four pipelines\n\n`scadl bench claims{flag} --out DIR`, "
        f"{RANKS} ranks, {len(lines)} trainings. {about(lines)}\n\n{short * quick}{EXPLAINED}\n"
        + "\n".join(f"* {name}: `{' '.join(it) or 'none'}`" for name, it in METHODS.items())
        + "\n\n"
        + markdown(with_verdicts(rows), SHOWN)
        + ("\n".join(["## Failed", "", *failures]) + "\n") * bool(failures)
    )
    write_text(folder / f"claims{'-quick' * quick}.md", page)


def with_verdicts(rows: Sequence[Row]) -> list[Row]:
    """The same, with what an interval says behind the name of its method."""
    ends = {(it.case, it.method, it.metric): it.value for it in rows}

    def named(row: Row) -> str:
        low, high = (ends.get((row.case, row.method, it)) for it in ("low", "high"))
        if row.method == PLAIN or (row.case, row.method, "difference") not in ends:
            return row.method
        if low is None or high is None:
            return f"{row.method}: one seed"
        word = "**better**" if low > 0 else "**worse**" if high < 0 else "inconclusive"
        return f"{row.method}: {word}"

    return [row._replace(method=named(row)) for row in rows]
