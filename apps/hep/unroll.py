"""Rows that are objects of events: a row a jet, whatever else the event has beside it.

Of NanoAOD and its like: the branches of a collection share a prefix (``Jet_pt``, ``Jet_eta``), and
tables of links say which constituent belongs to which object (``FatJetPFCands_jetIdx``,
``FatJetPFCands_pFCandsIdx``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from scadl_core.errors import ConfigError, DataError

LINK_KEYS = {"object", "item"}


def belongs(name: str, collection: str) -> bool:
    """Whether a branch is of a collection."""
    return name.startswith((f"{collection}_", f"{collection}."))


def check_links(links: Mapping[str, Any], rows: str | None) -> None:
    """A ConfigError unless each collection of constituents names its two branches of indices."""
    for name, of in links.items():
        if set(of) != LINK_KEYS:
            raise ConfigError(
                f"data.links.{name}: expected {{object: BRANCH, item: BRANCH}}, the indices of a "
                f"link's object and of its item in {name}, got {of!r}"
            )
        if not rows:
            raise ConfigError("data.links needs data.rows, the collection of the objects linked")


@dataclass
class Unrolled:
    """Events as rows of one collection's objects.

    A branch of the collection has a value (or list) a row; a linked collection the list of a row's
    own constituents; everything else is that of the event.

    Attributes:
        branch: Gives the values of a branch by event.
        names: The branches that will be asked for.
        rows: The collection.
        links: By collection of constituents, its branches of indices.
    """

    branch: Callable[[str], Any]
    names: frozenset[str]
    rows: str
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def counts_E(self) -> NDArray[np.int64]:
        """Objects of each event."""
        named = sorted(name for name in self.names if belongs(name, self.rows))
        if not named:
            raise ConfigError(f"data.rows={self.rows}: no input is of it, such as {self.rows}_pt")
        values = self.branch(named[0])
        if values.ndim < 2:
            raise DataError(f"data.rows={self.rows}: {named[0]} has one value an event")
        return np.asarray(ak.num(values, axis=1), np.int64)

    @cached_property
    def event_R(self) -> NDArray[np.int64]:
        """The event of each row."""
        return np.repeat(np.arange(len(self.counts_E)), self.counts_E)

    def __call__(self, name: str) -> Any:
        """The values of a branch by row."""
        values = self.branch(name)
        if belongs(name, self.rows):
            if values.ndim < 2 or not np.array_equal(ak.num(values, axis=1), self.counts_E):
                raise DataError(f"{name} has other numbers of values than {self.rows} has objects")
            return ak.flatten(values, axis=1)
        for collection, of in self.links.items():
            if belongs(name, collection):
                return self._linked(values, of)
        return values[self.event_R]

    def _linked(self, values: ak.Array, of: Mapping[str, str]) -> ak.Array:
        owner, item = self.branch(of["object"]), self.branch(of["item"])
        numbers = ak.num(values, axis=1)
        valid = (owner >= 0) & (item >= 0) & (owner < self.counts_E) & (item < numbers)
        owner, item = owner[valid], item[valid]  # of objects and items that were not stored
        first_E = np.cumsum(self.counts_E) - self.counts_E
        row_L = np.asarray(ak.flatten(owner + first_E, axis=1), np.int64)
        values_L = ak.flatten(values[item], axis=1)
        order = np.argsort(row_L, kind="stable")
        return ak.unflatten(values_L[order], np.bincount(row_L, minlength=len(self.event_R)))
