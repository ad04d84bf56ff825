"""One function a verb: reads its words, calls the workflow, returns the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from scadl_core.cli.arguments import Words, read_words
from scadl_core.config.apps import find_apps
from scadl_core.config.compose import choices, compose_run, parse, require
from scadl_core.errors import ConfigError

if TYPE_CHECKING:  # what a verb needs is imported when it is called
    from scadl_core.record.runfolder import RunFolder

__all__ = [
    *("bench", "check", "compare", "config", "doctor", "evaluate", "export", "list_", "new"),
    *("plan", "predict", "rerun", "study", "train", "tune"),
]


def list_(words: list[str]) -> int:
    """Pipelines and what each offers."""
    _no_more("list", words)
    table = Table(
        "pipeline",
        "data",
        "model",
        "experiment",
        title="scadl train PIPELINE data=... model=... experiment=...",
    )
    for app in find_apps().values():
        table.add_row(
            app.name,
            *(", ".join(choices(app, group)) or "-" for group in ("data", "model", "experiment")),
        )
    _console().print(table)
    return 0


def train(words: list[str]) -> int:
    """One run, a sweep with ``-m``, or one of Hydra's own flags."""
    given = read_words("train", words)
    if given.hydra_flags:
        from scadl_core.cli.sweep import hydra_main

        hydra_main(given.app, [*given.hydra_flags, *given.overrides], given.config_dir)
        return 0
    config = compose_run(given.app, given.overrides, given.config_dir)
    require(config)
    if given.multirun:
        from scadl_core.cli.sweep import sweep

        sweep(given.app, config, given.overrides, given.config_dir, _console())
        return 0
    _refuse_choices(given)
    from scadl_core.workflow.train import train as run

    run(config)
    return 0


def evaluate(words: list[str]) -> int:
    """A finished run's scores."""
    from scadl_core.workflow.evaluate import evaluate as run

    folder, config = _finished_run("evaluate", words)
    scores = run(folder, config)
    table = Table("score", "value", title=f"{config.split} split, {config.checkpoint} checkpoint")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4f}")
    _console().print(table)
    return 0


def predict(words: list[str]) -> int:
    """A finished run's predictions on files."""
    from scadl_core.workflow.evaluate import predict as run

    for override in read_words("predict", words).parsed:
        if override.key_or_group.split(".")[0] == "data":
            raise ConfigError(
                f"{override.input_line}: predict reads input=, with the channels that the model "
                "was trained on; leave it out"
            )
    run(*_finished_run("predict", words))
    return 0


def export(words: list[str]) -> int:
    """A finished run's network for other programs."""
    from scadl_core.workflow.export import export as run

    run(*_finished_run("export", words))
    return 0


def check(words: list[str]) -> int:
    """A look into a user's files."""
    from scadl_core.cli.check import check as run

    given = read_words("check", words)
    _refuse_choices(given)
    usable = run(compose_run(given.app, given.overrides, given.config_dir), _console())
    keys = {override.key_or_group for override in given.parsed} - {"data.path"}
    wanted = any(key.startswith("data.") for key in keys)  # else the page is what was asked for
    return 2 if wanted and not usable else 0


def compare(words: list[str]) -> int:
    """Finished runs side by side."""
    from scadl_core.cli.compare import compare as run

    run(words, _console())
    return 0


def new(words: list[str]) -> int:
    """A pipeline of the user's own."""
    from scadl_core.cli.new import new as run

    run(words, _console())
    return 0


def config(words: list[str]) -> int:
    """The composed and checked configuration."""
    given = read_words("config", words)
    _refuse_choices(given)
    composed = compose_run(given.app, given.overrides, given.config_dir)
    require(composed)
    print(OmegaConf.to_yaml(composed, resolve=True), end="")
    return 0


def rerun(words: list[str]) -> int:
    """A run again."""
    trusted: list[Any] = [o.value() for o in parse(words[1:]) if o.key_or_group == "build.allow"]
    if not words or len(trusted) != len(words) - 1:
        raise ConfigError(
            "scadl rerun takes the folder of a finished run, and packages that you trust: "
            "scadl rerun DIR [build.allow=[PACKAGE]]"
        )
    from scadl_core.cli.rerun import rerun as run

    folder = Path(words[0].removeprefix("run.dir=")).expanduser().absolute()
    run(folder, _console(), trusted[-1] if trusted else [])
    return 0


def doctor(words: list[str]) -> int:
    """What the machine has."""
    _no_more("doctor", words)
    from scadl_core.cli.doctor import doctor as run

    run(_console())
    return 0


def bench(words: list[str]) -> int:
    """The tables of the README, against the peers."""
    from scadl_core.cli.bench import bench as run

    run(words, _console())
    return 0


def study(words: list[str]) -> int:
    """Trainings with every compressor and bound."""
    from scadl_core.cli.study import study as run

    run(words, _console())
    return 0


def plan(words: list[str]) -> int:
    """What a step costs, with and without each power."""
    from scadl_core.cli.tune import run_plan

    run_plan(words, _console())
    return 0


def tune(words: list[str]) -> int:
    """The fastest plan of a run, or scaling curves of a larger machine."""
    from scadl_core.cli.tune import run_tune

    run_tune(words, _console())
    return 0


def _finished_run(verb: str, words: list[str]) -> tuple[RunFolder, DictConfig]:
    from scadl_core.workflow.evaluate import load_run

    given = read_words(verb, words)
    _refuse_choices(given)
    return load_run(given.app, given.overrides, given.config_dir)


def _refuse_choices(given: Words) -> None:
    for override in given.parsed:
        if override.is_sweep_override():
            raise ConfigError(
                f"{override.input_line}: a comma parts the choices of a sweep (scadl train -m); "
                "quote the value twice, or write a list in [ ]"
            )


def _no_more(verb: str, words: list[str]) -> None:
    if words:
        raise ConfigError(f"scadl {verb} takes nothing more, got {' '.join(words)!r}")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=140)
