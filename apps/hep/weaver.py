"""Reads data configurations of weaver (github.com/hqucms/weaver-core) into settings of ours.

Two things are done in another way here: constituents that fill up a row are masked, whatever
``pad_mode`` says, and weights enter the loss, where weaver draws rows by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scadl_core.errors import ConfigError

ROLES = ("points", "vectors", "mask")  # of a group of inputs, by the end of its name; else features
UNKNOWN = ("file_magic", "bucketing")  # change what is read, and have no counterpart


def read_weaver(path: Path) -> dict[str, Any]:
    """Settings by their names below ``data``; of a file that is no such configuration, or has what
    cannot be taken over, a ConfigError.
    """
    try:
        page = yaml.safe_load(path.read_text(encoding="utf-8"))
        for old, new in (page.get("branch_magic") or {}).items():
            page = yaml.safe_load(yaml.safe_dump(page).replace(old, new))
        return _settings(path, page)
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"data.weaver={path}: no data configuration of weaver ({type(error).__name__} {reason})"
        ) from None


def _settings(path: Path, page: dict[str, Any]) -> dict[str, Any]:
    if lost := [key for key in UNKNOWN if page.get(key)]:
        raise ConfigError(f"data.weaver={path}: {lost[0]} cannot be taken over; remove it there, "
                          'and ask for files in formulas, as in: "HToBB" in file')  # fmt: skip
    labels, observers = page["labels"], page.get("observers") or []
    is_simple = labels.get("type", "simple") == "simple"
    values = labels["value"] if is_simple else list(labels["value"].values())
    found = {
        "weaver": None,
        "tree": page.get("treename"),
        "selection": _text(page.get("selection")),
        "derived": {name: _text(it) for name, it in (page.get("new_variables") or {}).items()},
        "target": [str(it) for it in values] if is_simple else str(values[0]),
        "weight": _weight(page.get("weights") or {}),
        "reweight": _reweight(page.get("weights") or {}),
        "monitor": {"pt": next((it for it in observers if it.endswith("_pt")), None),
                    "mass": next((it for it in observers if it.endswith("mass")), None)},
    }  # fmt: skip
    if is_simple:
        found["classes"] = [str(it).removeprefix("label_") for it in values]
    elif len(values) > 1:
        raise ConfigError(f"data.weaver={path}: several custom labels; one can be taken over")
    return found | _inputs(path, page)


def _text(formula: Any) -> Any:
    return None if formula is None else " ".join(str(formula).split())


def _inputs(path: Path, page: dict[str, Any]) -> dict[str, Any]:
    """``inputs``, ``constituents`` and ``fixed``."""
    is_manual = (page.get("preprocess") or {}).get("method", "auto") == "manual"
    found: dict[str, list[str]] = {"particles": [], "flat": [], "points": [], "vectors": []}
    fixed: dict[str, list[float]] = {}
    lengths = []
    for group, of in page["inputs"].items():
        role = next((it for it in ROLES if group.endswith(it)), "particles")
        names = [[it] if isinstance(it, str) else list(it) for it in of["vars"]]
        if role == "mask":
            continue
        if not of.get("length"):
            role = "flat"
        elif role == "particles" and found["particles"]:
            raise ConfigError(
                f"data.weaver={path}: inputs.{group} is a second list of constituents; one can be "
                "taken over"
            )
        found[role] += [str(it[0]) for it in names]
        lengths += [int(of["length"])] if of.get("length") else []
        if role in ("particles", "flat"):
            fixed |= {str(name): _standard(*rest) for name, *rest in names
                      if is_manual or (rest and rest[0] not in (None, "auto"))}  # fmt: skip
    constituents = {name: found[name] for name in ("points", "vectors") if found[name]}
    constituents |= {"length": max(lengths)} if lengths else {}
    inputs = {name: found[name] for name in ("particles", "flat") if found[name]}
    return {"inputs": inputs, "constituents": constituents, "fixed": fixed}


def _standard(
    centre: float | None = None, factor: float = 1, low: float = -5, high: float = 5, pad: float = 0
) -> list[float]:
    if centre is None:
        return [0.0, 1.0, -math.inf, math.inf]
    return [float(it) for it in (centre, factor, low, high)]


def _weight(weights: Mapping[str, Any]) -> str | None:
    return " * ".join(f"({it})" for it in weights.get("weight_branches") or []) or None


def _reweight(weights: Mapping[str, Any]) -> dict[str, Any]:
    of = weights.get("reweight_vars") or {}
    if not of or weights.get("use_precomputed_weights"):
        return {}
    return {"by": list(of), "bins": [[float(edge) for edge in edges] for edges in of.values()]}
