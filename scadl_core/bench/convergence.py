"""`scadl study convergence APP benchmark=NAME`: epochs, seconds and bytes to a target, a method a
row, on well-known benchmarks in their published layout.

Without ``data.path`` the sample generator writes the nearest layout that it has; such rows say so,
and their target is a share of what plain training of the same seed reaches.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from scadl_core.bench.claims import METHODS, PLAIN, QUICK, QUICK_APPS, RANKS, best_of, trained
from scadl_core.bench.journal import Journal, about
from scadl_core.bench.rows import Row, markdown, show_rows
from scadl_core.errors import ConfigError, nearest
from scadl_core.files import write_text

SHARE = 0.99  # of plain training's best score, on sample data
SHOWN = {
    "seeds": ".0f", "reached": ".0f", "best score": ".4f", "target": ".4f", "epochs": ".0f",
    "seconds": ".0f", "megabytes": ".1f", "failed": ".0f",
}  # fmt: skip


class Benchmark(NamedTuple):
    """A well-known data set, with what was published of it.

    Attributes:
        app: The pipeline.
        words: Layout, split, network and budget in epochs, for data as they are published.
        sample: The same for the sample generator.
        target: Of the validation score.
        about: What the target is, where it is from, and what here is not as there.
    """

    app: str
    words: tuple[str, ...]
    sample: tuple[str, ...]
    target: float
    about: str


_TOP = ("data.target=[label_QCD,label_Tbqq]", "data.classes=[QCD,Tbqq]",
        "data.sample.classes=[QCD,Tbqq]")  # fmt: skip
BENCHMARKS = {
    "deepcam": Benchmark(
        "climate",
        ("data=deepcam", "model=deeplab", "model.width=64", "model.depth=4",
         "model.rates=[6,12,18]", "trainer.max_epochs=25"),
        ("data.sample.layout=deepcam", "model=deeplab"),
        0.82,
        "Mean IoU of MLPerf HPC, reached there in 9 to 23 epochs by the size of the batch; an "
        "empty class counts as 1 there, and is left out here.",
    ),
    "climatenet": Benchmark(
        "climate", ("data=climatenet", "model=cgnet", "loader.batch_size=8",
                    "trainer.max_epochs=30"),
        ("model=cgnet",), 0.5527,
        "Mean IoU of the published CGNet weights on the 61 test maps; here of the validation, "
        "which is split off the training maps.",
    ),
    "jetclass": Benchmark(
        "hep", ("data=jetclass", "model=part", "model.width=128", "model.heads=8",
                "model.layers=8", "trainer.max_epochs=20"),
        ("model=part",), 0.9877,
        "AUC, mean of pairs, of Particle Transformer (arXiv:2202.03772) on all 100 million jets.",
    ),
    "top": Benchmark(
        "hep", ("experiment=toptagging", "model=particlenet", "trainer.max_epochs=20"),
        (*_TOP, "model=particlenet"), 0.9858,
        "AUC of ParticleNet (arXiv:1902.08570); the sample is in the layout of JetClass, with two "
        "of its classes.",
    ),
    "planetoid": Benchmark(
        "graphs", ("experiment=planetoid", "model=gcn"), ("model=gcn", "trainer.max_epochs=100"),
        0.815, "Accuracy of GCN on the public split of Cora (arXiv:1609.02907), there of the test.",
    ),
    "ogbn-arxiv": Benchmark(
        "graphs", ("data=graph", "data.split.by=given", "model=gcn", "model.width=256",
                   "model.depth=3", "trainer.max_epochs=500"),
        ("model=gcn", "trainer.max_epochs=100"), 0.7174,
        "Accuracy of GCN (arXiv:2005.00687), there of the test.",
    ),
    "div2k": Benchmark(
        "remote_sensing", ("data=raster", "data.scale=4", "model=edsr", "model.width=64",
                           "model.blocks=16", "trainer.max_epochs=300"),
        ("model=edsr",), 28.97,
        "PSNR in RGB of EDSR-M on DIV2K's 100 validation images, made coarse by bicubic "
        "interpolation; here by a model of a sensor, unless data.target names the coarse images.",
    ),
}  # fmt: skip


class Job(NamedTuple):
    """One training."""

    app: str
    benchmark: str
    method: str
    seed: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return f"{self.benchmark}, {self.method}, seed {self.seed}"


def find(app: str, name: str) -> Benchmark:
    """The benchmark of a pipeline.

    Raises:
        ConfigError: There is none of that name, or it is another pipeline's.
    """
    own = [it for it, benchmark in BENCHMARKS.items() if benchmark.app == app]
    if name not in own:
        raise ConfigError(f"benchmark={name}: no such benchmark of {app}{nearest(name, own)}")
    return BENCHMARKS[name]


def study(
    app: str, name: str, words: Sequence[str], seeds: Sequence[int], quick: bool, folder: Path,
    console: Console,
) -> list[Row]:  # fmt: skip
    """Trains what is not in the journal yet; the table is renewed after every training.

    Args:
        app: The pipeline.
        name: Of the benchmark.
        words: Overrides for every training; with ``data.path`` the data are the published ones.
        seeds: Of the trainings.
        quick: Shortened, on sample data.
        folder: Of the journal and the table.
        console: Where to print.

    Raises:
        ConfigError: No such benchmark, or a quick study of a user's data.
    """
    benchmark = find(app, name)
    is_sample = not any(word.startswith("data.path=") for word in words)
    if quick and not is_sample:
        raise ConfigError("--quick is for sample data: leave out data.path")
    base = benchmark.sample if is_sample else benchmark.words
    short = [*QUICK, *QUICK_APPS.get(app, ())] if quick else []
    journal = Journal(folder / "convergence.jsonl")
    for seed in seeds:
        for method, switched in METHODS.items():
            chosen = (*base, *short, *switched, *words, f"seed={seed}", "logger=none")
            job = Job(app, name, method, seed, chosen)
            done = journal.lines.get(job.key)
            if done is not None and done["words"] == list(chosen):
                continue
            console.print(f"{job.key}: scadl train {app} {' '.join(chosen)}", markup=False)
            journal.add(job.key, **job._asdict(), **trained(job, folder))
            page(folder, journal, name, is_sample)
    rows = page(folder, journal, name, is_sample)
    show_rows(rows, SHOWN, console)
    return rows


def to_target(run: dict[str, Any], target: float) -> tuple[int, float, float] | None:
    """Epochs, seconds and bytes until a training first has the target; None: never.

    Args:
        run: Of :func:`scadl_core.bench.claims.trained`; its epochs are taken for equally long.
        target: Of its validation score.
    """
    curve = run["curve"]
    epochs = next((n for n, score in enumerate(curve, 1) if score >= target), None)
    if epochs is None:
        return None
    share = epochs / len(curve)
    metrics = run["metrics"]
    return epochs, share * metrics["train/seconds"], share * metrics["comm/sent_bytes"]


def summary(journal: Journal, name: str, is_sample: bool) -> list[Row]:
    """A line a method: medians of the trainings that reached the target."""
    case = f"{name}: sample data, not the benchmark's" if is_sample else name
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for line in journal.lines.values():
        runs.setdefault(line["method"], {})[line["seed"]] = line
    plain = {seed: best_of(run["curve"]) for seed, run in runs.get(PLAIN, {}).items()}
    rows = []
    for method, of_seed in runs.items():
        targets = {seed: SHARE * plain.get(seed, float("inf")) if is_sample
                   else BENCHMARKS[name].target for seed in of_seed}  # fmt: skip
        found = [it for seed, run in of_seed.items() if (it := to_target(run, targets[seed]))]
        best = [best_of(run["curve"]) for run in of_seed.values() if run["curve"]]
        values = {
            "seeds": len(of_seed),
            "reached": len(found),
            "failed": sum(1 for run in of_seed.values() if run["failed"]),
            "target": statistics.mean(targets.values()),
        }
        if best:
            values["best score"] = statistics.mean(best)
        if found:
            epochs, seconds, sent = (
                statistics.median(column) for column in zip(*found, strict=True)
            )
            values |= {"epochs": epochs, "seconds": seconds, "megabytes": sent / 1e6}
        rows += [Row(case, method, metric, float(it), "1") for metric, it in values.items()]
    return rows


def page(folder: Path, journal: Journal, name: str, is_sample: bool) -> list[Row]:
    """Writes the table as Markdown; gives its rows."""
    rows, lines = summary(journal, name, is_sample), list(journal.lines.values())
    benchmark = BENCHMARKS[name]
    target = (
        f"Target: {SHARE:.0%} of the best validation score of plain training with the same seed."
        if is_sample
        else f"Target: a validation score of {benchmark.target}. {benchmark.about}"
    )
    write_text(
        folder / "convergence.md",
        f"# Convergence: {name}\n\n`scadl study convergence {benchmark.app} benchmark={name}`, "
        f"{RANKS} ranks. {target} Epochs, seconds and megabytes sent by all ranks: medians of "
        f"the trainings that reached it. {about(lines)}\n\n{markdown(rows, SHOWN)}",
    )
    return rows
