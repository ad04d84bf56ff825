"""What a pipeline's folder has to offer.

One contract test runs over every app (tests/test_contract.py). The parts are named by ``_target_``
in the app's configuration and built by :func:`scadl_core.config.build.build`:

* ``data``: a :class:`Source`. ``data.sample``, where present, is called to write the example set.
* ``model``: a network, built with what :meth:`Source.dimensions` says and the configured arguments.
* ``task``: a :class:`scadl_core.workflow.task.Task`, a LightningModule of loss and metrics.
* ``baseline``: called with ``source``; returns scores by the names of ``Task.scores``.
* ``predict``: called with ``task`` (whose ``facts`` say what it has to know), ``inputs`` (paths or
  patterns), ``output`` (a file, or a folder in which to name one) and ``provenance``; returns the
  path it wrote.
  With an argument ``world``, every rank calls it, and the first writes.
* ``figures``: called with ``task``, ``source``, ``folder``; writes PNG files, and tables and the
  like that the report links, and returns their captions by file name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from scadl_core.record.datareport import DataReport


class Samples(Protocol):
    """The samples of one split.

    With a method ``order(rng)`` they are taken in the order that it gives, a permutation, in
    evaluations too: one in which reading them in turn touches few blocks of a file at a time.
    """

    def __len__(self) -> int:
        """How many there are."""

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, Any]:
        """One sample.

        Args:
            index: Which, from 0.
            rng: In training, the source of its augmentation; None reads the sample as it is.

        Returns:
            Arrays by name; those of several samples are stacked to a batch.
        """


@runtime_checkable
class Batches(Samples, Protocol):
    """Samples that are read together: they lie in blocks of a file, or are not independent, as the
    nodes of a graph are not.
    """

    def batch(self, indices: Sequence[int], key: int | None) -> Any:
        """Some samples together: arrays by name, stacked in the order of ``indices``, or what the
        task takes; ``key``, one an epoch, seeds what is drawn, and is None in evaluations.
        """


class Source(Protocol):
    """A user's files, checked.

    Constructing one reads only what is needed to name a mistake.
    """

    def dimensions(self) -> dict[str, Any]:
        """The arguments that the data decide for the network, such as the number of channels."""

    def facts(self) -> dict[str, Any]:
        """What network, task and prediction have to know of the data, in plain numbers, texts and
        lists.

        It goes into the checkpoint. Under ``"model"`` is what :meth:`dimensions` says; statistics
        are those of the training split.
        """

    def report(self) -> DataReport:
        """What was found in the files."""

    def samples(self, split: str) -> Samples:
        """The samples of ``"train"``, ``"val"`` or ``"test"``."""

    def example(self) -> list[Path]:
        """The files of one sample of the test split, whose prediction every run shows."""

    def files(self) -> list[Path]:
        """Every file that is read, for the fingerprint."""


@dataclass(frozen=True)
class Exportable:
    """What a task offers to :func:`scadl_core.workflow.export.export`.

    Attributes:
        module: From the inputs, in order, to one output.
        inputs: Examples by name; their first dimension is that of samples, and free.
        output: The name of what comes out.
        description: How the inputs are made from a user's files, in plain values.
        free: For other inputs: by name, what each of their free dimensions is called; those of one
            name are of one size.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    output: str
    description: dict[str, Any]
    free: dict[str, dict[int, str]] = field(default_factory=dict)
