"""Which samples train, choose the best epoch, judge. Samples of one instant are never parted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from scadl_core.errors import ConfigError, DataError, nearest

SPLITS = ("train", "val", "test")
SPLIT_FOLDERS = {name: name for name in SPLITS} | {"validation": "val"}  # as in DeepCAM
DEFAULT = {"by": "folder", "val": 0.15, "test": 0.2, "gap": 1}
# ClimateNet: data-2003-06-01-01-1.nc and -2.nc are two people's labels of one map.
LABELLING = re.compile(r"(.*\d{4}-\d{2}-\d{2}-\d{1,2})-\d+(\.nc)?")


def instant(key: str) -> str:
    """The instant of a sample: its key without ClimateNet's number of the labelling."""
    found = LABELLING.fullmatch(key)
    return found[1] if found else key


def check_split(split: Mapping[str, Any]) -> None:
    """A ConfigError if ``data.split`` has unknown words, or shares that leave none to train on."""
    for key in split:
        if key not in DEFAULT:
            raise ConfigError(f"data.split.{key} is unknown{nearest(key, DEFAULT)}")
    if split["by"] not in ("folder", "file", "time"):
        raise ConfigError(f"data.split.by={split['by']} is unknown; there is: folder, file, time")
    if isinstance(split["gap"], bool) or not isinstance(split["gap"], int) or split["gap"] < 0:
        raise ConfigError(f"data.split.gap={split['gap']}: expected a whole number from 0")
    val, test = split["val"], split["test"]
    if min(val, test) < 0 or val + test >= 1:
        raise ConfigError(f"data.split: val={val} and test={test} must be shares, below 1 in all")


def split_samples(
    files: Mapping[str, Path], by: str, val: float, test: float, gap: int
) -> dict[str, list[str]]:
    """Deals samples out, given the file of each, by key, in order; gives the keys by split.

    By ``folder``, train, test and perhaps val are folders; without val, it is the last share of
    train. By ``time``, the splits are contiguous blocks: train, val, test; by ``file``, blocks of
    whole files. Where a block ends, its last ``gap`` instants are left out, as the weather of one
    step resembles that of the next.

    Raises:
        DataError: A split without a sample.
    """
    keys: dict[str, list[str]] = {"train": list(files), "val": [], "test": []}
    shares = {"test": test, "val": val}
    if by == "folder":
        keys = {name: [key for key in files if _is_in(files[key], name)] for name in SPLITS}
        shares = {} if keys["val"] else {"val": val}
    of_unit = files.__getitem__ if by == "file" else instant
    units = [list(group) for _, group in groupby(keys["train"], key=of_unit)]
    total, blocks = len(units), {}
    for name, share in shares.items():
        kept = max(len(units) - (max(1, round(share * total)) if share else 0), 0)
        units, blocks[name] = units[:kept], list(chain(*units[kept:]))
    blocks["train"] = list(chain(*units))
    last = next((name for name in reversed(SPLITS) if blocks.get(name)), "train")
    keys |= {name: _trimmed(block, gap * (name != last)) for name, block in blocks.items()}
    for name in ["train"] + ["val"] * (val > 0) + ["test"] * (test > 0 or by == "folder"):
        if not keys[name]:
            counts = ", ".join(f"{split} {len(keys[split])}" for split in SPLITS)
            more = "give data.path more time steps, or lower data.split.val, test and gap"
            put = f"put files into a folder {name}/ below data.path, or set data.split.by=time"
            advice = put if by == "folder" else more
            raise DataError(f"data.split: '{name}' has no sample (by {by}: {counts}); {advice}")
    return keys


def _trimmed(keys: Sequence[str], gap: int) -> list[str]:
    """The keys without those of the last instants."""
    instants = list(dict.fromkeys(map(instant, keys)))
    kept = set(instants[: max(len(instants) - gap, 0)])
    return [key for key in keys if instant(key) in kept]


def _is_in(file: Path, name: str) -> bool:
    parts = reversed(file.resolve().parent.parts)
    return name == next((SPLIT_FOLDERS[part] for part in parts if part in SPLIT_FOLDERS), None)
