"""A finished run on data: its scores, and its predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from scadl_core.comm import World
from scadl_core.config.apps import App
from scadl_core.config.build import build, takes
from scadl_core.config.compose import override_stored, parse, require
from scadl_core.errors import ConfigError, LaunchError, RunError
from scadl_core.files import write_json
from scadl_core.record.provenance import command_line, describe, fingerprints
from scadl_core.record.runfolder import RunFolder
from scadl_core.workflow.loaders import Loaders
from scadl_core.workflow.pipeline import make_source, resolve, restore_task


def load_run(
    app: App, overrides: Sequence[str], config_dir: Path | None
) -> tuple[RunFolder, DictConfig]:
    """Opens the run that ``run.dir=...`` among the overrides names, and applies the others to its
    configuration.

    Args:
        app: The pipeline that was asked for.
        overrides: Hydra overrides.
        config_dir: A further folder of choices.

    Raises:
        ConfigError: No run was named, or an override does not fit.
        RunError: The folder holds no run of this pipeline.
    """
    named = [o.value() for o in parse(overrides) if o.key_or_group == "run.dir"]
    if not named or named[-1] is None:
        raise ConfigError("missing: run.dir; add run.dir=<the folder of a finished run>")
    folder = RunFolder(Path(str(named[-1])).expanduser().absolute())
    stored = folder.load_config()
    if stored.app != app.name:
        raise RunError(
            f"run folder {folder.path} is of the pipeline {stored.app!r}, not of {app.name!r}"
        )
    config = override_stored(stored, app, overrides, config_dir)
    if config.model != stored.model:
        raise RunError(f"the run in {folder.path} has another model; leave out overrides of model")
    return folder, config


def evaluate(folder: RunFolder, config: DictConfig) -> dict[str, float]:
    """Scores a finished run on a split of the configured data, on all ranks.

    Args:
        folder: The run.
        config: Its configuration with overrides; ``split`` and ``checkpoint`` say what is scored.

    Returns:
        The scores by name; also written to ``output`` or ``evaluations/`` in the run folder.
    """
    require(config)
    world = World.start()
    config = resolve(config)
    checkpoint = folder.load_checkpoint(config.checkpoint, config.app)
    source = make_source(config, world)
    task = restore_task(config, checkpoint, world)
    if source.dimensions() != checkpoint["scadl"]["facts"]["model"]:
        raise RunError(
            f"the run in {folder.path} was trained with {checkpoint['scadl']['facts']['model']}, "
            f"the data have {source.dimensions()}; give data.inputs and data.target of the same "
            "number and order"
        )
    loaders: Loaders = build(config, "loader", seed=config.seed, world=world)
    solver = build(
        config,
        "solver",
        trainer=build(config, "trainer"),
        world=world,
        callbacks=[],
        loggers=[],
        folder=folder.path,
        progress_bar=False,
    )
    solver.evaluate(task, loaders.evaluation(source.samples(config.split)))
    scores = {name: value for name, value in task.scores().items() if math.isfinite(value)}
    provenance = describe(
        world, config.seed, command_line(), world.first(lambda: fingerprints(source.files()))
    )
    if world.is_first:
        name = f"{config.split}-{config.checkpoint}-{provenance['time'].replace(':', '')}.json"
        output = output_of(config, folder, folder.path / "evaluations" / name)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_json(output, {**scores, "provenance": provenance})
        print(f"written: {output}")
    return scores


def output_of(config: DictConfig, folder: RunFolder, default: Path) -> Path:
    """The file to write, which must be none of the run's own.

    Args:
        config: The configuration; ``output`` is what the person said.
        folder: The run.
        default: Where to write if the person said nothing.

    Raises:
        ConfigError: The file belongs to the run.
        RunError: Nothing was said, and a link in the run folder leads out of it.
    """
    run = folder.path.resolve()  # a name may come here by .. or a link
    if not config.output:
        if run not in default.resolve().parents:
            raise RunError(
                f"{default} leads out of the run folder, to {default.resolve()}; say output=..."
            )
        return default
    output = Path(str(config.output)).expanduser().absolute()
    place = output.resolve()
    if run in place.parents and place.parent not in (run / "predictions", run / "evaluations"):
        raise ConfigError(f"output={output} is inside the run folder; choose another place")
    return output


def predict(folder: RunFolder, config: DictConfig) -> Path:
    """Applies a finished run to files of the user's.

    Args:
        folder: The run.
        config: Its configuration with overrides; ``input`` names the files, ``output`` the file to
            write.

    Returns:
        The file that was written.

    Raises:
        ConfigError: No input was named.
        LaunchError: Several processes were started, of a pipeline in which one does this.
    """
    given = [config.input] if isinstance(config.input, str) else config.input
    if not isinstance(given, Sequence) or not given or not all(map(str, given)):
        raise ConfigError("missing: input; add input=<file or pattern>, or input=[<file>,<file>]")
    world = World.start()
    shared = {"world": world} if takes(config, "predict", "world") else {}
    if world.size > 1 and not shared:
        raise LaunchError(
            f"scadl predict {config.app} runs in one process, not in {world.size}; start it "
            "without a launcher"
        )
    checkpoint = folder.load_checkpoint(config.checkpoint, config.app)
    config = resolve(config)
    task = restore_task(config, checkpoint, world)
    output = output_of(config, folder, folder.predictions)
    provenance = {**checkpoint["scadl"]["provenance"], "command": command_line()}
    written: Path = build(
        config,
        "predict",
        task=task,
        inputs=config.input,
        output=output,
        provenance=provenance,
        **shared,
    )
    if world.is_first:
        print(f"written: {written}")
    return written
