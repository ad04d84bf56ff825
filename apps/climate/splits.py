"""Which samples train, choose the best epoch, judge. Samples of one instant are never parted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from scadl_core.errors import ConfigError, DataError, nearest

SPLITS = ("train", "val", "test")
# ClimateNet: data-2003-06-01-01-1.nc and -2.nc are two people's labels of one map.
LABELLING = re.compile(r"(.*\d{4}-\d{2}-\d{2}-\d{1,2})-\d+(\.nc)?")


def instant(key: str) -> str:
    """The instant of a sample: its key without ClimateNet's number of the labelling."""
    found = LABELLING.fullmatch(key)
    return found[1] if found else key


def check_split(split: Mapping[str, Any]) -> None:
    """A ConfigError if ``data.split`` has unknown words, or shares that leave none to train on."""
    for key in split:
        if key not in ("by", "val", "test"):
            raise ConfigError(f"data.split.{key} is unknown{nearest(key, ['by', 'val', 'test'])}")
    if split["by"] not in ("folder", "time"):
        raise ConfigError(f"data.split.by={split['by']} is unknown; there is: folder, time")
    val, test = split["val"], split["test"]
    if min(val, test) < 0 or val + test >= 1:
        raise ConfigError(f"data.split: val={val} and test={test} must be shares, below 1 in all")


def split_samples(
    folders: Mapping[str, Path], by: str, val: float, test: float
) -> dict[str, list[str]]:
    """Deals samples out, given the folder of each, by key, in order; gives the keys by split.

    By ``folder``, train, test and perhaps val are folders; without val, it is the last share of
    train. By ``time``, the splits are contiguous blocks: train, val, test.

    Raises:
        DataError: A split without a sample.
    """
    keys: dict[str, list[str]] = {"train": list(folders), "val": [], "test": []}
    shares = {"test": test, "val": val}
    if by == "folder":
        keys = {name: [key for key in folders if _is_in(folders[key], name)] for name in SPLITS}
        shares = {} if keys["val"] else {"val": val}
    instants = [list(group) for _, group in groupby(keys["train"], key=instant)]
    total = len(instants)
    for name, share in shares.items():
        kept = max(len(instants) - (max(1, round(share * total)) if share else 0), 0)
        instants, keys[name] = instants[:kept], list(chain(*instants[kept:]))
    keys["train"] = list(chain(*instants))
    for name in ["train"] + ["val"] * (val > 0) + ["test"] * (test > 0 or by == "folder"):
        if not keys[name]:
            counts = ", ".join(f"{split} {len(keys[split])}" for split in SPLITS)
            more = "give data.path more time steps, or lower data.split.val and data.split.test"
            put = f"put files into a folder {name}/ below data.path, or set data.split.by=time"
            advice = put if by == "folder" else more
            raise DataError(f"data.split: '{name}' has no sample (by {by}: {counts}); {advice}")
    return keys


def _is_in(folder: Path, name: str) -> bool:
    return name == next((part for part in reversed(folder.parts) if part in SPLITS), None)
