"""Small files for the tests, and the data of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

from apps.hep.data import HEPData

FLAT: dict[str, Any] = {"inputs": ["x", "y"], "target": "label", "classes": ["no", "yes"]}
SPLIT = {"val": 0.2, "test": 0.2}


def write(path: Path, tree: str = "tree", **columns: Any) -> Path:
    with uproot.recreate(path) as file:
        file.mktree(tree, {name: it.type.content if isinstance(it, ak.Array) else it.dtype
                           for name, it in columns.items()}).extend(columns)  # fmt: skip
    return path


def table(count: int = 400, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count).astype(np.int32)
    columns = {"x": rng.normal(label, 1), "y": rng.normal(size=count), "label": label}
    return columns | {"event": np.arange(count) + 1000 * seed}


def make(path: Path, **other: Any) -> HEPData:
    return HEPData(path, **{**FLAT, "split": SPLIT, **other})


def everything(data: HEPData, split: str = "all") -> dict[str, np.ndarray]:
    samples = data.samples(split)
    return samples.batch(range(len(samples)))
