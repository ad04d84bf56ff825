"""ROOT files: TTree and RNTuple alike, through uproot."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uproot

if TYPE_CHECKING:
    from apps.hep.tables import Table

# Gives the number of rows, the bounds of clusters, and the type of each branch.
About = Callable[[], tuple[int, list[int], dict[str, str]]]
CLASSES = ("TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")
# Files that a process keeps open, each in every thread that reads: opening one takes as long as
# reading 3000 jets, half a megabyte, and one of the files that the system allows.
MOST_OPEN = min(500, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
# Nothing that is read stays in memory. uproot's own choice of a source asks a loop of asyncio for
# each branch, which takes as long as all else; a file that is mapped to memory ends the process if
# it is cut while it is read.
OPTIONS: dict[str, Any] = {"object_cache": None, "array_cache": None}
OPTIONS |= {"handler": uproot.MultithreadedFileSource, "use_threads": False}


def tables(path: Path) -> Iterator[tuple[str, About]]:
    """The trees of a file: the name of each, and what describes it; a name without a cycle means
    the latest.
    """
    with uproot.open(path, **OPTIONS) as file:
        cycles = [name for name, kind in file.classnames().items() if kind in CLASSES]
    for name in dict.fromkeys(it for key in cycles for it in (key.partition(";")[0], key)):
        if not name.rpartition("/")[2].startswith("##"):  # of ATLAS, about the file itself
            yield name, partial(_about, path, name)


def _about(path: Path, name: str) -> tuple[int, list[int], dict[str, str]]:
    tree, branches = _open(path, name)
    kinds = {name: branch.typename for name, branch in branches.items()}
    if hasattr(tree, "cluster_summaries"):
        bounds = [int(it.num_first_entry) for it in tree.cluster_summaries]
        return tree.num_entries, [*bounds, tree.num_entries], kinds
    return tree.num_entries, [int(it) for it in tree.common_entry_offsets()], kinds


def _open(path: Path, tree: str) -> tuple[Any, dict[str, Any]]:
    status = path.stat()
    stamp = status.st_size, status.st_mtime_ns
    return _opened(path, tree, stamp, os.getpid(), threading.get_ident())


@lru_cache(MOST_OPEN)
def _opened(path: Path, name: str, *_: Any) -> tuple[Any, dict[str, Any]]:
    """A tree and its branches, for one process and thread; nothing that is read stays in it."""
    tree = uproot.open(path, **OPTIONS)[name]
    if hasattr(tree, "cluster_summaries"):  # of collections without a name there are copies
        fields = {it.name: it for it in tree.fields if not it.name.startswith("_collection")}
        return tree, fields
    return tree, dict(tree.iteritems())


def read(table: Table, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
    """Awkward arrays of some rows."""
    tree, branches = _open(table.path, table.tree)
    rows = {"entry_start": start, "entry_stop": stop}
    plain = [it for it in names if it.isidentifier()]  # no path, and no formula of uproot's
    found = tree.arrays(plain, **rows, how=dict) if plain else {}
    return found | {it: branches[it].array(**rows) for it in names if it not in found}
