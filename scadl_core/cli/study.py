"""scadl study memory APP [--quick] [run.dir=DIR] [key=value ...]: trainings with every compressor
and bound, side by side.

scadl study convergence APP benchmark=NAME [--quick] [run.dir=DIR] [data.path=...] [key=value ...]:
epochs, seconds and bytes to a target.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from scadl_core.cli.arguments import Words, read_words, take_flags
from scadl_core.cli.sweep import hydra_main
from scadl_core.config.compose import compose_run, each_choice, require
from scadl_core.errors import ConfigError

_ROOM = "scadl_core.bench.study"  # found by name: nobody imports it
# A training of seconds, for every app whose example has these keys.
_OF_CONVERGENCE = ("benchmark", "run.dir", "seed")
_QUICK = ("trainer.max_epochs=6", "trainer.accelerator=cpu")
_QUICK_APPS = {
    "climate": ("data.sample.train_maps=40", "data.sample.test_maps=2",
                "data.sample.latitudes=32", "data.sample.longitudes=48", "model.width=8",
                "model.norm=batch", "loader.batch_size=2", "optimizer.lr=0.01",
                "trainer.max_epochs=8"),
}  # fmt: skip


def study(words: list[str], console: Console) -> None:
    """Trains what is not there yet, prints the table, writes CSV and plots.

    Args:
        words: What follows the verb.
        console: Where to print.

    Raises:
        ConfigError: No such study or flag.
    """
    if words and words[0] == "convergence":
        _convergence(words[1:], console)
        return
    if not words or words[0] != "memory":
        raise ConfigError("which study? scadl study memory APP; there is: memory, convergence")
    rest, flags = take_flags(words[1:], {"--quick": ""}, others=True)
    quick, given = "--quick" in flags, read_words("study memory", rest)
    room = import_module(_ROOM)
    own = [*_QUICK, *_QUICK_APPS.get(given.app.name, ()), *_side_by_side(given)] if quick else []
    ours = ("run.dir", "seed", "memory.case")
    kept = [str(o.input_line) for o in given.parsed if o.key_or_group not in ours]
    config = compose_run(given.app, ["memory=study", *own, *kept], given.config_dir)
    require(config)
    wanted = {o.key_or_group: o for o in given.parsed}
    seeds = (
        wanted["seed"].input_line if "seed" in wanted else f"seed={'0,1' if quick else '0,1,2,3,4'}"
    )
    chosen = wanted.get("memory.case")
    words_of_cases = chosen.input_line if chosen else "memory.case=" + ",".join(room.cases(quick))
    named: Any = wanted["run.dir"].value() if "run.dir" in wanted else None
    folder = (
        Path(named or Path(config.paths.runs) / "study" / given.app.name).expanduser().absolute()
    )
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    hydra = [
        f"hydra.sweep.dir='{quoted}'", "hydra.sweep.subdir='${memory.case}-seed${seed}'",
        "hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none",
    ]  # fmt: skip
    arguments = [
        "-m",
        "memory=study",
        *map(str, [*own, *kept]),
        str(words_of_cases),
        str(seeds),
        *hydra,
    ]
    hydra_main(given.app, arguments, given.config_dir, job)
    room.summarise(folder, console)
    console.print(f"written: {folder / 'study.csv'}, {folder / 'study.png'}")


def _convergence(words: list[str], console: Console) -> None:
    room = import_module("scadl_core.bench.convergence")
    rest, flags = take_flags(words, {"--quick": ""}, others=True)
    given = read_words("study convergence", rest)
    own = {o.key_or_group: o for o in given.parsed if o.key_or_group in _OF_CONVERGENCE}
    if "benchmark" not in own:
        known = [it for it, found in room.BENCHMARKS.items() if found.app == given.app.name]
        raise ConfigError(f"which benchmark? add benchmark=NAME; there is: {', '.join(known)}")
    name, quick = str(own["benchmark"].value()), "--quick" in flags
    kept = [str(o.input_line) for o in given.parsed if o.key_or_group not in own]
    benchmark = room.find(given.app.name, name)
    is_own = any(word.startswith("data.path=") for word in kept)
    config = compose_run(given.app, [*(benchmark.words if is_own else benchmark.sample), *kept])
    named: Any = own["run.dir"].value() if "run.dir" in own else None
    folder = Path(named or Path(config.paths.runs) / "study" / f"{given.app.name}-{name}")
    seeds = [int(str(it.value())) for it in each_choice(own["seed"])] if "seed" in own else None
    room.study(given.app.name, name, kept, seeds or range(1 if quick else 3), quick,
               folder.expanduser().absolute(), console)  # fmt: skip
    console.print(f"written: {folder / 'convergence.md'}")


def _side_by_side(given: Words) -> list[str]:
    """As many trainings at once as there are cores, of one thread each: of maps as small as those
    of the quick study two threads make nothing faster.
    """
    told = any(str(o.key_or_group).startswith("hydra") for o in given.parsed)
    if told or find_spec("hydra_plugins.hydra_joblib_launcher") is None:
        return []
    return ["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"]


def job(config: DictConfig) -> None:
    """One case with one seed; it may be in another process."""
    import_module(_ROOM).job(config, Path(HydraConfig.get().runtime.output_dir))
    sys.stdout.flush()
