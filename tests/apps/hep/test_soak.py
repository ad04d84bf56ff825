"""The long ones: streaming a set larger than memory allows, and networks compared."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import uproot

from apps.hep.data import HEPData
from apps.hep.sample import write_sample
from scadl_core.comm import World
from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run
from scadl_core.workflow.loaders import Loaders
from scadl_core.workflow.pipeline import make_source, resolve

GIBIBYTES, JETS_A_GIBIBYTE = 5, 580_000
LIMIT_BYTES = 2 * 2**30


def stream(folder: str) -> dict[str, float]:
    """Reads all training jets of a folder once: by a plain loop, then as a run does.

    Returns:
        Processor seconds of both, bytes of the files, and the most memory held, in bytes.
    """
    words = [f"data.path={folder}", "data.cache_GiB=0.4", "data.statistics=null"]
    source = make_source(resolve(compose_run(find_app("hep"), words)), World())
    assert isinstance(source, HEPData)
    names = sorted(source.recipe.branches(source.tables[0]))
    files = [file for file in source.files() if file.parent.name == "train"]
    began = time.process_time()
    plain = 0
    for file in files:
        with uproot.open(file) as opened:
            for arrays in opened["tree"].iterate(names, step_size=4096):
                plain += len(arrays)
    middle = time.process_time()
    samples = source.samples("train")
    survey = time.process_time() - middle
    loader = Loaders(512, 0, 0, World()).training(samples)
    middle = time.process_time()
    ours = sum(len(batch["label_B"]) for batch in loader)
    end = time.process_time()
    assert ours > 0.85 * plain  # a tenth is validation, and of the training none is left out
    share = plain / (ours + len(source.samples("val")))
    peak = int(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines()
                    if line.startswith("VmHWM"))) * 1024  # fmt: skip
    return {
        "plain_seconds": middle - survey - began, "survey_seconds": survey,
        "stream_seconds": (end - middle) * share, "peak_bytes": peak, "jets": plain,
        "file_bytes": sum(file.stat().st_size for file in files),
    }  # fmt: skip


def measure(folder: Path, gibibytes: float) -> dict[str, float]:
    """Writes a set of that size and streams it in a process of its own."""
    write_sample(folder, int(gibibytes * JETS_A_GIBIBYTE), 1000)
    code = "import json, sys; from tests.apps.hep.test_soak import stream; "
    code += "print(json.dumps(stream(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.soak
def test_five_gibibytes_stream_in_two_of_memory(tmp_path: Path) -> None:
    found = measure(tmp_path / "jets", GIBIBYTES)
    print(found)
    assert found["file_bytes"] > 0.95 * GIBIBYTES * 2**30
    assert found["peak_bytes"] < LIMIT_BYTES
    assert found["stream_seconds"] < found["plain_seconds"] / 0.7


@pytest.mark.soak
def test_the_transformer_beats_deep_sets_on_64k_jets(tmp_path: Path) -> None:
    """Ten epochs each of the same jets, the same seed."""
    found = {}
    for model in ("pfn", "part"):
        words = [f"model={model}", "trainer.max_epochs=10", "data.sample.train_jets=65536"]
        words += ["data.sample.test_jets=16384", f"run.dir={tmp_path / model}"]
        subprocess.run([sys.executable, "-m", "scadl_core.cli", "train", "hep", *words], check=True)
        found[model] = json.loads((tmp_path / model / "metrics.json").read_text())["test/auc_macro"]
    print(found)
    assert found["part"] > found["pfn"]


@pytest.mark.soak
def test_the_default_run_is_better_than_boosted_trees(tmp_path: Path) -> None:
    """The mean of three seeds."""
    rows = []
    for seed in range(3):
        words = [f"seed={seed}", f"run.dir={tmp_path / str(seed)}"]
        subprocess.run([sys.executable, "-m", "scadl_core.cli", "train", "hep", *words], check=True)
        metrics = json.loads((tmp_path / str(seed) / "metrics.json").read_text())
        names = ("test/auc_macro", "test/accuracy", "baseline/auc_macro", "train/seconds")
        rows.append([metrics[name] for name in names])
    auc, accuracy, baseline, seconds = np.mean(rows, 0)
    print(rows)
    assert auc >= 0.945
    assert accuracy >= 0.81
    assert 0.925 <= baseline <= 0.937
    assert seconds < 300
