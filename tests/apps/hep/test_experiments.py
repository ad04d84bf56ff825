"""The shipped experiments train, shortened, on the layouts that they are for."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

QUICK = ("debug=smoke", "trainer.accelerator=cpu", "baseline.max_iter=2", "figures.bins=1")


def write_pandas(path: Path, jets: int, seed: int) -> None:
    """A table of four-momenta as pandas writes it, columns by number."""
    rng, most = np.random.default_rng(seed), 12
    momentum = rng.normal(0, 5, (jets, most, 3)) + np.array([300, 0, 0])
    energy = np.linalg.norm(momentum, axis=2, keepdims=True) * 1.001
    block = np.concatenate([energy, momentum], 2)
    block[np.arange(most) >= rng.integers(2, most + 1, jets)[:, None]] = 0
    names = [f"{name}_{n}" for n in range(most) for name in ("E", "PX", "PY", "PZ")]
    label = np.arange(jets) % 2
    kinds = {"values_block_0": ("f4", (len(names),)), "values_block_1": ("i8", (1,))}
    records = np.zeros(jets, [("index", "i8"), *((name, *it) for name, it in kinds.items())])
    records["values_block_0"] = block.reshape(jets, -1)
    records["values_block_1"] = label[:, None]
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("table/table", data=records)
        for name, columns in zip(kinds, (names, ["is_signal_new"]), strict=True):
            stored.attrs[f"{name}_kind"] = np.bytes_(pickle.dumps(columns, 0))


def metrics_of(scadl: Callable[..., Any], *words: str) -> dict[str, float]:
    done = scadl("train", "hep", *words, *QUICK, "run.dir=run")
    assert (done.status, done.err) == (0, "")
    return json.loads(Path("run/metrics.json").read_text())


def test_top_tagging(scadl: Callable[..., Any], workplace: Path) -> None:
    for seed, split in enumerate(("train", "val", "test")):
        write_pandas(workplace / f"{split}.h5", 40, seed)
    words = ("experiment=toptagging", f"data.path={workplace}", "model=particlenet")
    found = metrics_of(scadl, *words, "loader.batch_size=8", "model.widths=[8]")
    assert "test/auc_QCD_top" in found


def test_b_tagging(scadl: Callable[..., Any], workplace: Path, shared_data: Path) -> None:
    path = shared_data / "hep" / "nano_tt_v12.root"
    found = metrics_of(scadl, "experiment=btag", f"data.path={path}")
    assert "test/rejection_b_at_50" in found
