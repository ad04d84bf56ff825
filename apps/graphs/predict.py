"""Predictions as a table with the nodes' own ids, in their own order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from apps.graphs.data import GraphData
from scadl_core.errors import ConfigError, DataError
from scadl_core.files import Paths, written_aside

if TYPE_CHECKING:
    from apps.graphs.task import NodeTask

SUFFIXES = (".parquet", ".csv")


def predict_files(
    task: NodeTask,
    inputs: Paths,
    output: Path,
    provenance: Mapping[str, Any],
    probabilities: bool = True,
    batch_size: int = 4096,
) -> Path:
    """Applies a trained task to every node of a graph.

    Args:
        task: What predicts; it knows its features and classes.
        inputs: The files of one graph.
        output: The file to write, Parquet or CSV by its ending; or a folder to name one in.
        provenance: Of the run; a short form goes into the metadata of Parquet.
        probabilities: Whether to write them, beside the label.
        batch_size: Nodes or clusters at a time.

    Returns:
        The file written.

    Raises:
        ConfigError: Another ending, or a batch of nothing.
        DataError: The graph has not the features of the training, or the output is an input.
    """
    if batch_size < 1:
        raise ConfigError(f"predict.batch_size: expected 1 or more, got {batch_size}")
    data = open_graph(task, inputs)
    output = _name_output(Path(output).expanduser(), data)
    said_NC = task.predict_nodes(data.whole(), batch_size)
    table = pd.DataFrame({"id": data.raw.ids.values})
    names = task.facts["classes"]
    if task.kind == "classes":
        table["label"] = np.array(names, object)[said_NC.argmax(1)]
    for name, said_N in zip(names, said_NC.T, strict=True):
        if task.kind == "regression":
            table[name] = said_N
        elif probabilities:
            table[f"probability_{name}"] = said_N.astype(np.float32)
        if task.kind == "multilabel":
            table[f"label_{name}"] = (said_N > 0.5).astype(np.int8)
    table.attrs = {f"scadl_{it}": str(provenance[it]) for it in ("time", "command")}
    with written_aside(output) as aside:
        if output.suffix == ".csv":
            table.to_csv(aside, index=False)
        else:
            table.to_parquet(aside, index=False)
    return output


def open_graph(task: NodeTask, inputs: Paths) -> GraphData:
    """A graph as the task's was read, scaled as in training. Its labels are not looked at, unless
    the training used labels as inputs: then those of its train nodes are.

    Raises:
        DataError: It has other features.
    """
    facts = task.facts
    settings = {"target": None, "scale": "none", "classes": facts["classes"], **facts["settings"]}
    if facts["settings"]["make"] == "identity" and facts["inputs"][:1] == ["node_0"]:
        raise DataError("the model knows the nodes of its graph only (data.make=identity)")
    data = GraphData(inputs, **settings)
    there, wanted = data.features.names, facts["inputs"]
    if there != wanted:
        if lacking := [name for name in wanted if name not in there]:
            more = f" and {len(lacking) - 3} more" * (len(lacking) > 3)
            raise DataError(
                f"{data.raw.files[0]}: lacks the features {', '.join(lacking[:3])}{more} of the "
                f"training; it has {len(there)}, {len(wanted)} are needed"
            )
        data = GraphData(inputs, wanted, **settings)
    data.scaled_by(facts)
    return data


def _name_output(output: Path, data: GraphData) -> Path:
    if output.is_dir():
        output = output / f"{data.raw.files[0].stem}_nodes.parquet"
    if output.suffix == "":
        output = output.with_suffix(".parquet")
    if output.suffix not in SUFFIXES:
        raise ConfigError(f"output={output}: predictions are tables; end in .parquet or .csv")
    if output.resolve() in {file.resolve() for file in data.raw.files}:
        raise DataError(f"output={output} is an input as well; choose another name")
    output.parent.mkdir(parents=True, exist_ok=True)
    return output
