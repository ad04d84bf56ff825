"""From a checked configuration to the objects of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict

from scadl_core.comm import World
from scadl_core.config.build import build
from scadl_core.errors import ConfigError, RunError
from scadl_core.workflow.contracts import Source
from scadl_core.workflow.seeds import derive
from scadl_core.workflow.task import Task


def resolve(config: DictConfig) -> DictConfig:
    """The configuration with every interpolation resolved and every path absolute, so that it
    stands by itself.

    Args:
        config: What was composed; mandatory values must be there.
    """
    config = config.copy()
    for name in ("data", "runs"):
        config.paths[name] = str(Path(config.paths[name]).expanduser().absolute())
    OmegaConf.resolve(config)
    if config.get("warm_start"):
        config.warm_start = str(Path(config.warm_start).expanduser().absolute())
    given = config.data.path
    paths = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise ConfigError(f"data.path: expected a path, or a list of paths, got {given!r}")
    if given is not None:
        paths = [
            str(Path(p).expanduser().absolute())
            for p in ([given] if isinstance(given, str) else given)
        ]
        config.data.path = paths[0] if isinstance(given, str) else paths
    return config


def make_source(config: DictConfig, world: World) -> Source:
    """Opens the configured data on every rank; writes the example data set first where it is asked
    for and absent.

    Args:
        config: The resolved configuration.
        world: The processes of the run.
    """
    sample = config.data.get("sample")
    if sample is not None and _same_place(sample.get("path"), config.data.path):
        world.first(lambda: build(config, "data.sample"))
    bare = config.copy()
    with open_dict(bare):
        bare.data.pop("sample", None)
    source: Source = world.together(lambda: build(bare, "data"))
    return source


def _same_place(one: Any, other: Any) -> bool:
    """Whether both name one folder; one of them may have been made absolute already."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    return Path(one).expanduser().absolute() == Path(other).expanduser().absolute()


def make_task(config: DictConfig, facts: dict[str, Any], world: World) -> Task:
    """Builds network, optimizer and schedule into a task whose weights depend on the seed alone.

    Args:
        config: The resolved configuration.
        facts: What the source found, see :meth:`scadl_core.workflow.contracts.Source.facts`.
        world: The processes of the run.
    """
    torch.manual_seed(derive(config.seed, "weights"))
    network = build(config, "model", **facts["model"])
    task: Task = build(
        config,
        "task",
        network=network,
        facts=facts,
        world=world,
        seed=config.seed,
        optimizer=build(config, "optimizer"),
        schedule=build(config, "schedule") if config.get("schedule") else None,
    )
    return task


def restore_task(config: DictConfig, checkpoint: dict[str, Any], world: World) -> Task:
    """Builds the task of a checkpoint, with its weights and statistics.

    Args:
        config: The run's configuration.
        checkpoint: What :meth:`scadl_core.record.runfolder.RunFolder.load_checkpoint` gave.
        world: The processes of the run.

    Raises:
        RunError: The configured network is not the one that was saved.
    """
    task = make_task(config, checkpoint["scadl"]["facts"], world)
    load_weights(task, checkpoint)
    return task.eval()


def load_weights(task: Task, checkpoint: dict[str, Any]) -> None:
    """Gives a task the weights and statistics of a checkpoint, whatever solver trained them.

    Args:
        task: Built from the same configuration of model and task.
        checkpoint: What :meth:`scadl_core.record.runfolder.RunFolder.load_checkpoint` gave.

    Raises:
        RunError: The configured network is not the one that was saved.
    """
    try:
        task.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        reason = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        raise RunError(
            f"the checkpoint does not fit the configured model ({reason}); leave out overrides of "
            "model, task and data.inputs"
        ) from None
