"""Every network outside Python: onnxruntime gives the scores of predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from apps.hep.model import DeepSets, ParticleNet, ParticleTransformer
from apps.hep.task import INPUTS, Classification
from scadl_core.comm import World
from scadl_core.workflow.export import _write
from tests.apps.hep.made import everything

NETWORKS = {
    "pfn": (DeepSets, {"width": 8}),
    "particlenet": (ParticleNet, {"widths": [8], "neighbours": 4, "head": 8}),
    "part": (ParticleTransformer, {"width": 8, "heads": 2, "layers": 1, "pair_width": 4}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_gives_the_scores_of_predict(jetclass: Any, tmp_path: Path, name: str) -> None:
    """Also for a jet without a constituent, and for one jet alone."""
    data = jetclass()
    facts, (network, sizes) = data.facts(), NETWORKS[name]
    torch.manual_seed(0)
    task = Classification(network=network(**facts["model"], **sizes), facts=facts, world=World())
    batch = {key: it[:50] for key, it in everything(data, "test").items()}
    batch["mask_BP"][3] = False
    for key in ("features_BPF", "points_BPD", "vectors_BPD"):
        batch[key][3] = 0
    expected = task.eval().probabilities(batch, rows=7)
    _write(task.exportable(), tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = {it.name for it in session.get_inputs()}
    for rows in (slice(None), slice(0, 1)):
        inputs = {key: np.ascontiguousarray(batch[key][rows]) for key in INPUTS if key in names}
        (found,) = session.run(None, inputs)
        np.testing.assert_allclose(found, expected[rows], rtol=0, atol=1e-5)
    assert expected.std(0).max() > 1e-3
