"""Files with bytes that are not as they were: read clean, or one message and exit status 2.

That a value is another one than was written is found by our own container only (tests/compress);
here nothing else than a wrong number may come of it: no traceback, no hang, no end of the process,
nothing half written.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import sys
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig

from scadl_core.cli import main, verbs
from scadl_core.comm import World
from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run
from scadl_core.errors import ScadlError
from scadl_core.workflow.loaders import Loaders
from scadl_core.workflow.pipeline import make_source, resolve
from tests.hostile import aside, damaged, fault, in_child
from tests.hostile_files import CASES, Case

FEW, ALL, MOST_READ = 10, 200, 4
# One of each family that people bring; of the others the long tests look at more than a glance.
MAIN = ("netcdf4", "root-rntuple", "jets-hdf5", "geotiff", "jets-parquet", "graph-parquet")
GLANCE = 3


def look(config: DictConfig, path: Path, output: Path) -> int:
    """`scadl check`, and then a first reading of what a training would read."""
    config = config.copy()
    config.data.path, config.output = str(path), str(output)
    with pytest.MonkeyPatch.context() as patch:  # composed once: it is what takes longest
        patch.setattr(verbs, "compose_run", lambda *_: config)
        if status := main(["check", config.app]):
            return status
    try:
        source = make_source(resolve(config), World())
        source.facts()
        loaders = Loaders(world=World(), seed=0, batch_size=2, workers=0)
        for split in ("train", "val", "test"):
            list(itertools.islice(loaders.evaluation(source.samples(split)), MOST_READ))
    except ScadlError as error:
        print(f"scadl: {error}", file=sys.stderr)
        return 2
    return 0


def data_path(case: Case, place: Path, target: Path) -> Path:
    """What a person would name: the file, the store or folder that it is in, or all of them."""
    if not case.whole:
        return target
    first = place / target.relative_to(place).parts[0]
    return place if first == target else first


def run_damaged(name: str, numbers: range, root: Path) -> list[str]:
    """What went wrong over some damaged files of a format."""
    case, faults, ends = CASES[name], [], Counter[int]()
    made, place, output = (root / it for it in ("made", "tried", "page.yaml"))
    made.mkdir()
    target = case.write(made)
    content, file = target.read_bytes(), place / target.relative_to(made)
    own = ["data.statistics=null"] if case.app != "graphs" else []
    config = compose_run(find_app(case.app), [*case.words, "data.path=x", *own])
    undamaged = partial(look, config, data_path(case, made, target), output)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        undamaged()  # here too: children shall find what it imports
    whole = in_child(undamaged)
    assert (whole.status, whole.err) == (0, ""), whole
    for number in numbers:
        shutil.copytree(made, place)
        file.unlink()  # a library that has the whole one open keeps it
        how, data = damaged(content, np.random.default_rng([number, len(content)]))
        file.write_bytes(data)
        before = aside(place)
        fate = in_child(partial(look, config, data_path(case, place, file), output))
        ends[fate.status] += 1
        if wrong := fault(fate, place, before):
            faults.append(f"{name} {number} ({how}): {wrong}")
            print(faults[-1], fate.err[-1500:])
        shutil.rmtree(place)
    print(
        f"{name}: {ends.total()} damaged: read {ends[0]}, refused {ends[2]}, faults {len(faults)}"
    )
    return faults


@pytest.mark.parametrize("name", CASES)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    assert run_damaged(name, range(FEW if name in MAIN else GLANCE), tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_many_damaged_files(name: str, tmp_path: Path) -> None:
    assert run_damaged(name, range(ALL), tmp_path) == []
