"""`scadl study memory APP`: what compression of activations and gradients does to a training.

Every case and seed is a job of Hydra's launcher and leaves one file, so that a study that was
stopped goes on where it was. At equal steps and at equal time: the score of the validation, bytes,
throughput, epochs to the target.
"""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lightning import Callback, Trainer
from matplotlib.figure import Figure
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from scadl_core.bench.cases import PEERS, StudyMemory, measured
from scadl_core.comm import World
from scadl_core.config.build import build
from scadl_core.files import write_json, write_text
from scadl_core.record.intervals import interval
from scadl_core.workflow.pipeline import make_source, make_task, resolve

MARGIN = 0.02  # of the score: what DESIGN.md takes for the same
BASELINE = "none"
EPSILONS = ("0.0001", "0.001", "0.01", "0.1", "0.3")
OTHERS = (BASELINE, "adaptive_0.01", "adaptive_0.1", "quantise_8", "quantise_4", "quantise_2",
          "checkpoint", "save_on_cpu")  # fmt: skip


def cases(quick: bool) -> list[str]:
    """The words of all cases."""
    epsilons = EPSILONS[1:] if quick else EPSILONS
    found = list(OTHERS)
    for name in ("scadl", *PEERS):
        kinds = ("relative",) if quick else ("absolute", "relative", "pointwise")
        found += [f"{name}_{kind}_{eps}" for kind in kinds for eps in epsilons]
    kinds = ("relative",) if quick else ("absolute", "relative", "pointwise")
    names = ("scadl",) if quick else ("scadl", *PEERS)
    for target in ("gradients", "weights"):
        chosen = epsilons[1:] if quick else epsilons
        found += [f"{n}_{k}_{e}_{target}" for n in names for k in kinds for e in chosen]
    return found


class Curve(Callback):
    """The score after each epoch, and the time that training took up to there."""

    def __init__(self) -> None:
        self.seconds, self.steps = 0.0, 0
        self.scores: list[float] = []
        self.times: list[float] = []
        self._began = 0.0

    def on_train_batch_start(self, *_: Any) -> None:
        """Starts the clock: of the processor, which other programs disturb less."""
        self._began = time.process_time()

    def on_train_batch_end(self, *_: Any) -> None:
        """Stops it."""
        self.seconds += time.process_time() - self._began
        self.steps += 1

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Keeps the score."""
        self.scores.append(float(trainer.callback_metrics["val/score"]))
        self.times.append(self.seconds)


def job(config: DictConfig, folder: Path) -> None:
    """Trains one case with one seed and writes ``result.json``; nothing where it is there.

    Args:
        config: The composed configuration, with ``memory=study``.
        folder: Of this case and seed.
    """
    path = folder / "result.json"
    if path.exists():
        return
    config, world = resolve(config), World.start()
    memory: StudyMemory = build(config, "memory", world=world)
    source = make_source(config, world)
    task = make_task(config, source.facts(), world)
    loaders = build(config, "loader", seed=config.seed, world=world)
    curve = Curve()
    solver = build(
        config, "solver", trainer=build(config, "trainer"), world=world,
        callbacks=[curve, memory], loggers=[], folder=folder, progress_bar=False,
    )  # fmt: skip
    training = loaders.training(source.samples("train"))
    solver.fit(task, training, loaders.evaluation(source.samples("val")), None)
    stored, raw = memory.saved
    if not stored and memory.case is not None:
        batch = next(iter(training))
        task.log = lambda *_, **__: None  # type: ignore[method-assign]
        stored, raw = measured(memory.case, lambda: task.training_step(batch, 0))
    folder.mkdir(parents=True, exist_ok=True)
    result = {"case": config.memory.case, "seed": config.seed, "scores": curve.scores,
              "times": curve.times, "steps": curve.steps, "stored": stored, "raw": raw}  # fmt: skip
    write_json(path, result)


class Line(NamedTuple):
    """One case over its seeds; differences are paired by seed.

    Attributes:
        case: Its word.
        seeds: How many.
        score: The best of each training's epochs, mean.
        difference: To the baseline at equal steps.
        low: Lower end of its 95 % interval (Student).
        high: Upper end.
        at_equal_time: The same difference when the baseline's time is over.
        reduction: Bytes without over with.
        throughput: Steps a second over the baseline's.
        epochs: To 99 % of the baseline's score; infinite where not reached.
        verdict: "same", "worse" or "inconclusive", by the margin.
    """

    case: str
    seeds: int
    score: float
    difference: float
    low: float
    high: float
    at_equal_time: float
    reduction: float
    throughput: float
    epochs: float
    verdict: str


def lines(results: Iterable[dict[str, Any]]) -> list[Line]:
    """Summaries of all cases, in their order."""
    of_case: dict[str, dict[int, dict[str, Any]]] = {}
    for result in results:
        of_case.setdefault(result["case"], {})[result["seed"]] = result
    return [_line(case, of_case[case], of_case[BASELINE]) for case in of_case]


def _line(case: str, runs: dict[int, Any], base: dict[int, Any]) -> Line:
    seeds = sorted(set(runs) & set(base))
    best = [_best(runs[seed]["scores"]) for seed in seeds]
    wanted = [_best(base[seed]["scores"]) for seed in seeds]
    differences = np.subtract(best, wanted)
    mean, low, high = interval(differences)
    later = [
        _best([s for s, t in zip(runs[seed]["scores"], runs[seed]["times"], strict=True)
               if t <= 1.02 * base[seed]["times"][-1]]) - target
        for seed, target in zip(seeds, wanted, strict=True)
    ]  # fmt: skip
    epochs = [
        next((n + 1 for n, s in enumerate(runs[seed]["scores"]) if s >= 0.99 * target), math.inf)
        for seed, target in zip(seeds, wanted, strict=True)
    ]
    verdict = "same" if low > -MARGIN else "worse" if high < -MARGIN else "inconclusive"
    speed = [base[s]["times"][-1] / runs[s]["times"][-1] for s in seeds]
    reduction = float(np.mean([runs[s]["raw"] / max(1.0, runs[s]["stored"]) for s in seeds]))
    return Line(case, len(seeds), float(np.mean(best)), mean, low, high, float(np.mean(later)),
                reduction, float(np.mean(speed)), float(np.median(epochs)), verdict)  # fmt: skip


def _best(scores: list[float]) -> float:
    return max((s for s in scores if math.isfinite(s)), default=0.0)


def falls_at(found: list[Line], prefix: str, suffix: str = "") -> str:
    """The smallest bound from which on the mean score is below the baseline's by the margin."""
    known = {line.case: line.difference for line in found}
    eps = [e for e in EPSILONS if f"{prefix}_{e}{suffix}" in known]
    falling = [e for e in eps if known[f"{prefix}_{e}{suffix}"] < -MARGIN]
    first = next(
        (e for e in eps if e in falling and set(eps[eps.index(e) :]) <= set(falling)), None
    )
    return f"falls from {first} on" if first else f"holds up to {eps[-1]}"


def summarise(folder: Path, console: Console) -> list[Line]:
    """Reads all results below a folder, prints the table, writes a CSV and a picture."""
    results = [json.loads(p.read_text()) for p in sorted(folder.glob("*/result.json"))]
    order = {case: number for number, case in enumerate(cases(quick=False))}
    results.sort(key=lambda r: (order.get(r["case"], len(order)), r["seed"]))
    found = lines(results)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Line._fields)
    writer.writerows(found)
    write_text(folder / "study.csv", text.getvalue())
    table = Table("case", "seeds", "score", "difference", "95 %", "at equal time", "bytes",
                  "speed", "epochs", "verdict", title=str(folder),
                  title_justify="left")  # fmt: skip
    for it in found:
        table.add_row(it.case, str(it.seeds), f"{it.score:.4f}", f"{it.difference:+.4f}",
                      f"{it.low:+.4f} .. {it.high:+.4f}", f"{it.at_equal_time:+.4f}",
                      f"1 / {it.reduction:.1f}", f"{it.throughput:.2f}", f"{it.epochs:.0f}",
                      it.verdict)  # fmt: skip
    console.print(table)
    for prefix, suffix in dict.fromkeys(_series(it.case) for it in found):
        if prefix:
            what = suffix.removeprefix("_") or "activations"
            console.print(f"{prefix.replace('_', ', ')}, {what}: {falls_at(found, prefix, suffix)}")
    draw(found, folder / "study.png")
    return found


def _series(case: str) -> tuple[str, str]:
    """What cases that differ in the bound alone share."""
    parts = case.split("_")
    if parts[0] not in ("scadl", *PEERS):
        return "", ""
    return "_".join(parts[:2]), "".join(f"_{part}" for part in parts[3:])


def draw(found: list[Line], path: Path) -> None:
    """Draws the difference to the baseline against bound and against reduction, with intervals."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    against_bound, against_bytes = figure.subplots(1, 2)
    for prefix, suffix in dict.fromkeys(_series(it.case) for it in found):
        mine = [it for it in found if prefix and _series(it.case) == (prefix, suffix)]
        if mine:
            eps = [float(it.case.split("_")[2]) for it in mine]
            _errorbars(against_bound, eps, mine, (prefix + suffix).replace("_", " "))
    saving = [it for it in found if it.reduction > 1.01 or it.case == BASELINE]
    _errorbars(against_bytes, [it.reduction for it in saving], saving, None)
    for it in saving:
        against_bytes.annotate(it.case, (it.reduction, it.difference), fontsize=6)
    for axes, label in ((against_bound, "bound"), (against_bytes, "bytes without / with")):
        axes.axhline(-MARGIN, color="gray", linestyle=":")
        axes.set(xscale="log", xlabel=label, ylabel="score less the baseline's")
        axes.grid(alpha=0.3)
    against_bound.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=110)


def _errorbars(axes: Any, x: list[float], found: list[Line], label: str | None) -> None:
    y = [it.difference for it in found]
    half = [it.high - it.difference if math.isfinite(it.high) else 0.0 for it in found]
    style = "o-" if label else "o"
    axes.errorbar(x, y, half, fmt=style, markersize=4, capsize=2, linewidth=1, label=label)
