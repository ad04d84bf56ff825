"""A trained network for other programs: ONNX or pt2, and beside it what it has to be given."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import torch
from omegaconf import DictConfig

from scadl_core.comm import World
from scadl_core.errors import ConfigError, LaunchError, nearest
from scadl_core.files import write_json, written_aside
from scadl_core.record.runfolder import RunFolder
from scadl_core.workflow.contracts import Exportable
from scadl_core.workflow.evaluate import output_of
from scadl_core.workflow.pipeline import resolve, restore_task

FORMATS = ("onnx", "pt2")


def export(folder: RunFolder, config: DictConfig) -> Path:
    """Writes the network of a finished run, and ``<output>.json``, its description.

    Args:
        folder: The run.
        config: Its configuration with overrides; ``format`` and ``output`` say what is written.

    Returns:
        The file of the network.

    Raises:
        ConfigError: An unknown format, or ONNX is not installed, or the pipeline has no export.
        LaunchError: Several processes were started; one does this.
    """
    world = World.start()
    if world.size > 1:
        raise LaunchError(f"scadl export runs in one process, not in {world.size}")
    kind = str(config.get("format", "onnx"))
    if kind not in FORMATS:
        raise ConfigError(f"format={kind}: no such format{nearest(kind, FORMATS)}")
    config = resolve(config)
    task = restore_task(config, folder.load_checkpoint(config.checkpoint, config.app), world)
    offered: Exportable = task.exportable()
    path = output_of(config, folder, folder.predictions / f"model.{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(offered, path, kind)
    shapes = {
        name: {
            "shape": [_free(offered, name).get(n, size) for n, size in enumerate(it.shape)],
            "dtype": str(it.dtype).removeprefix("torch."),
        }
        for name, it in offered.inputs.items()
    }
    about = {"inputs": shapes, "output": offered.output, **offered.description}
    write_json(path.with_suffix(".json"), about)
    print(f"written: {path} and {path.with_suffix('.json').name}")
    return path


def _free(offered: Exportable, name: str) -> dict[int, str]:
    return offered.free.get(name, {0: "samples"})


def _write(offered: Exportable, path: Path, kind: str) -> None:
    names = {of for name in offered.inputs for of in _free(offered, name).values()}
    sizes = {name: torch.export.Dim(name, min=1) for name in names}
    free = tuple(
        {n: sizes[of] for n, of in _free(offered, name).items()} for name in offered.inputs
    )
    program = torch.export.export(
        offered.module.eval(), tuple(offered.inputs.values()), dynamic_shapes=free
    )
    with written_aside(path) as aside:
        if kind == "pt2":
            torch.export.save(program, aside)
            return
        log = logging.getLogger("torch.onnx")
        log.setLevel(logging.ERROR)  # what it says of optional packages, and warns about itself
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = torch.onnx.export(
                    program,
                    (),
                    input_names=list(offered.inputs),
                    output_names=[offered.output],
                    dynamo=True,
                    verbose=False,
                )
            except ImportError as error:
                raise ConfigError(
                    f"format=onnx needs {error.name}: pip install onnx onnxscript, or format=pt2"
                ) from None
        assert found is not None
        found.save(aside, include_initializers=True)
