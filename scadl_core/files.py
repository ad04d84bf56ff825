"""Files that are either whole or absent, whatever kills the process that writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Gives a path beside the wanted one; on success syncs it to disk and renames it into place.

    Args:
        path: Where the file shall be. Its folder must exist. An older file there stays until the
            rename.

    Yields:
        A path in the same folder to write to. It keeps the suffix, which some writers go by.
    """
    aside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield aside
        _sync(aside)
        aside.replace(path)
        _sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    Args:
        path: Where to.
        text: Its content, stored as UTF-8.
    """
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON, whole or not at all.

    Args:
        path: Where to.
        value: Anything JSON can hold.
    """
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
