"""What is exported gives the probabilities that `scadl predict` writes, in another program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import xarray as xr

Scadl = Callable[..., Any]


def test_an_exported_network_gives_the_probabilities_of_predict(
    scadl: Scadl, trained: Path, sample_folder: Path
) -> None:
    source = sorted((sample_folder / "test").glob("*.nc"))[0]
    for words in (
        ("predict", f"input={source}", "output=said.nc"),
        ("export", "format=onnx", "output=model.onnx"),
        ("export", "format=pt2", "output=model.pt2"),
    ):
        done = scadl(words[0], "climate", f"run.dir={trained}", *words[1:])
        assert (done.status, done.err) == (0, "")
    about = json.loads(Path("model.json").read_text())
    with xr.open_dataset(source) as file, xr.open_dataset("said.nc") as said:
        maps, said = (it.sortby("lat").sortby("lon") for it in (file, said))
        image_BCHW = np.stack([maps[name].values[0] for name in about["channels"]])[None]
        names = [f"probability_{name}" for name in about["classes"]]
        expected_KHW = np.stack([said[name].values.squeeze() for name in names])
    assert about["inputs"]["image_BCHW"]["shape"] == ["samples", *image_BCHW.shape[1:]]
    given = {"image_BCHW": image_BCHW.astype(np.float32)}
    (found,) = onnxruntime.InferenceSession("model.onnx").run([about["output"]], given)
    np.testing.assert_allclose(found[0], expected_KHW, rtol=0, atol=1e-5)
    program = torch.export.load("model.pt2").module()
    found = program(torch.from_numpy(given["image_BCHW"])).detach().numpy()
    np.testing.assert_allclose(found[0], expected_KHW, rtol=0, atol=1e-5)
