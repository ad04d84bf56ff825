"""What is exported gives what `scadl predict` says of the nodes, in another program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from apps.graphs.sample import write_sample

Scadl = Callable[..., Any]
QUICK = ("debug=smoke", "trainer.accelerator=cpu", "data=graph", "data.path=g")


def arrays(folder: Path, features: list[str]) -> list[np.ndarray]:
    """The inputs of an exported network, by pandas alone."""
    nodes, edges = (pd.read_parquet(folder / f"{it}.parquet") for it in ("nodes", "edges"))
    place = pd.Series(np.arange(len(nodes)), nodes["id"])
    one = np.stack([place[edges["source"]], place[edges["target"]]])
    both = np.unique(np.concatenate([one, one[::-1]], 1), axis=1)
    both = both[:, both[0] != both[1]]
    x_NF = np.array(nodes[features], np.float32)
    return [x_NF, both, np.ones(both.shape[1], np.float32)]


@pytest.mark.parametrize("words", [("model=hedge",), ("model=sgc", "data.norm=row")])
def test_an_exported_network_says_what_predict_says(
    scadl: Scadl, workplace: Path, words: tuple[str, ...]
) -> None:
    write_sample(Path("g"), nodes=300, classes=3, features=5)
    for line in (
        ("train", "graphs", *QUICK, *words, "run.dir=run"),
        ("predict", "graphs", "run.dir=run", "input=g", "output=said.parquet"),
        ("export", "graphs", "run.dir=run", "format=onnx", "output=model.onnx"),
        ("export", "graphs", "run.dir=run", "format=pt2", "output=model.pt2"),
    ):
        done = scadl(*line)
        assert (done.status, done.err) == (0, "")
    about = json.loads(Path("model.json").read_text())
    assert about["inputs"]["x_NF"]["shape"] == ["nodes", 5]
    assert about["inputs"]["edge_index"]["shape"] == [2, "edges"]
    inputs = arrays(Path("g"), about["features"])
    names = [f"probability_{name}" for name in about["classes"]]
    expected_NC = pd.read_parquet("said.parquet")[names].to_numpy()
    given = dict(zip(about["inputs"], inputs, strict=True))
    (found_NC,) = onnxruntime.InferenceSession("model.onnx").run([about["output"]], given)
    np.testing.assert_allclose(found_NC, expected_NC, rtol=0, atol=1e-5)
    program = torch.export.load("model.pt2").module()
    found_NC = program(*map(torch.from_numpy, inputs)).detach().numpy()
    np.testing.assert_allclose(found_NC, expected_NC, rtol=0, atol=1e-5)


def test_what_is_not_exported_is_said(scadl: Scadl, workplace: Path) -> None:
    write_sample(Path("g"), nodes=200, classes=2, features=4)
    assert scadl("train", "graphs", *QUICK, "model=gcn", "run.dir=run").status == 0
    refused = scadl("export", "graphs", "run.dir=run")
    assert refused.status == 2
    assert "MessagePassing passes messages by a library's own kernels" in refused.err
