from __future__ import annotations
from pathlib import Path
from typing import Any
from apps.climate.catalogue import find_files
from apps.climate.predict import write_predictions

def predict_files(task, inputs, output, provenance, probabilities):
    """Applies a trained task to files: the ``predict`` part of the configuration.

    Args:
        task: The trained :class:`apps.climate.task.Segmentation`.
        inputs: A file, a folder, a glob pattern, or several of them.
        output: The file to write, or a folder in which it is named after the first input.
        provenance: Of the run; a short form goes into the file's attributes.
        probabilities: Whether to write them beside the classes.

    Returns:
        The file written.
    """
    if output.is_dir():
        output = output / f"{find_files(inputs)[0].stem}_classes.nc"
    about = {
        "scadl_version": provenance["versions"]["scadl"],
        "scadl_git_commit": provenance["git"].get("sha", "unknown"),
        "scadl_model_trained": provenance["time"],
        "scadl_command": provenance["command"],
    }
    facts = task.facts
    return write_predictions(
        task.probabilities, inputs, output, facts["inputs"], facts["classes"], about, probabilities
    )
