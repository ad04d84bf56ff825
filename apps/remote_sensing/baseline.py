"""Bicubic interpolation, which every model has to beat."""

from __future__ import annotations

import torch

from apps.remote_sensing.metrics import Sums, add, against_input, against_truth, cropped, scores
from apps.remote_sensing.model import bicubic
from apps.remote_sensing.sensor import Sensor
from scadl_core.workflow.contracts import Source


def score(source: Source, crop: int) -> dict[str, float]:
    """The scores of :class:`apps.remote_sensing.task.SuperResolution` on the test split.

    Args:
        source: The data.
        crop: As that of the task.
    """
    facts, samples, total = source.facts(), source.samples("test"), Sums()
    sensor = Sensor(**facts["sensor"])
    for index in range(len(samples)):
        sample = samples.read(index, None)
        batch = {name: torch.from_numpy(it)[None] for name, it in sample.items()}
        plain = bicubic(batch["lr_CHW"], sensor.scale)
        sums = against_truth(*cropped(batch, plain, crop), facts["inputs"])
        total = add(total, sums | against_input(plain, batch, sensor))
    return scores(total, facts["inputs"], sensor.scale)
