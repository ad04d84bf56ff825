"""Many runs from one command line (``-m``), by Hydra's launchers and sweepers, and their
summary.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scadl_core.comm import World
from scadl_core.config.apps import App
from scadl_core.config.compose import hydra_for, parse, require
from scadl_core.errors import ConfigError, RunError
from scadl_core.record.runfolder import RunFolder, differences, new_name
from scadl_core.workflow.train import train


def hydra_main(
    app: App,
    arguments: Sequence[str],
    config_dir: Path | None,
    job: Callable[[DictConfig], Any] | None = None,
) -> None:
    """Hands a command line over to Hydra: a sweep, or one of its own flags such as ``--info``.

    Args:
        app: The pipeline.
        arguments: Overrides and flags, ``--config-dir`` taken out.
        config_dir: A further folder of choices.
        job: Does one combination; by default trains it.
    """
    # Hydra then raises what a job raised instead of ending the process.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with hydra_for(app, config_dir):
        configs = str(app.configs)
    typed, sys.argv = sys.argv, ["scadl", *arguments]
    try:
        hydra.main(version_base="1.3", config_path=configs, config_name=app.name)(job or _job)()
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split())) from error
    finally:
        sys.argv = typed


def sweep(
    app: App,
    config: DictConfig,
    overrides: Sequence[str],
    config_dir: Path | None,
    console: Console,
) -> None:
    """Trains every combination, each in a numbered folder, and prints one table.

    Args:
        app: The pipeline.
        config: The first combination, checked.
        overrides: Hydra overrides; ``run.dir`` names the folder of the whole sweep.
        config_dir: A further folder of choices.
        console: Where the table is printed.

    Raises:
        RunError: The folder holds runs already.
    """
    require(config)
    world = World.start()
    folder = Path(
        config.run.dir or Path(config.paths.runs) / app.name / world.broadcast(new_name())
    ).absolute()
    if world.first(lambda: any(folder.glob("*/config.yaml"))):
        raise RunError(f"{folder} already holds runs; choose another run.dir for this sweep")
    kept = [o.input_line for o in parse(overrides) if o.key_or_group != "run.dir"]
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    own = [
        f"hydra.sweep.dir='{quoted}'",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
    ]
    hydra_main(app, ["-m", *map(str, kept), *own], config_dir)
    if world.is_first:
        summarise(folder, console)


def summarise(folder: Path, console: Console) -> None:
    """Prints the test scores of the runs below a folder, and where only the seed differs their mean
    and spread.

    Args:
        folder: A sweep's folder.
        console: Where to print.
    """
    runs = [
        RunFolder(path) for path in sorted(folder.glob("*/"), key=lambda p: (len(p.name), p.name))
    ]
    runs = [run for run in runs if run.exists and run.is_complete]
    if not runs:
        return
    configs, metrics = [run.load_config() for run in runs], [run.load_metrics() for run in runs]
    keys = sorted(
        {d.split(" (")[0] for config in configs[1:] for d in differences(configs[0], config)}
    )
    names = [
        n
        for n in metrics[0]
        if n.startswith(("test/iou", "test/auc", "test/psnr", "test/acc", "baseline/iou"))
    ]
    names += ["train/seconds"]
    table = Table("run", *keys, *names, title=escape(str(folder)), title_justify="left")
    for run, config, numbers in zip(runs, configs, metrics, strict=True):
        values = [escape(str(OmegaConf.select(config, key, default="-"))) for key in keys]
        table.add_row(
            run.path.name, *values, *(f"{numbers.get(name, float('nan')):.4f}" for name in names)
        )
    if keys == ["seed"]:
        columns = [[numbers[name] for numbers in metrics if name in numbers] for name in names]
        table.add_section()
        table.add_row("mean", "", *(f"{statistics.mean(c):.4f}" for c in columns))
        table.add_row("standard deviation", "", *(f"{statistics.stdev(c):.4f}" for c in columns))
    console.print(table)


def _job(config: DictConfig) -> dict[str, float]:
    """One run of a sweep; it may be in another process, on another machine."""
    return train(config, Path(HydraConfig.get().runtime.output_dir))
