"""What is to be computed from branches: inputs, labels, weights, which rows are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from apps.hep.expressions import Expression
from apps.hep.settings import mapping, number, numbers, texts
from apps.hep.tables import Table
from apps.hep.unroll import check_links
from scadl_core.errors import ConfigError

OF_CONSTITUENTS, LISTS = ("length", "order", "points", "vectors"), ("points", "vectors")


@dataclass(frozen=True)
class Recipe:
    """The part of ``data`` that a prediction has to repeat, and labels and weights; see
    :class:`apps.hep.data.HEPData`.
    """

    particles: list[str] = field(default_factory=list)
    flat: list[str] = field(default_factory=list)
    length: int = 64
    order: str | None = None
    points: list[str] = field(default_factory=list)
    vectors: list[str] = field(default_factory=list)
    derived: dict[str, str] = field(default_factory=dict)
    selection: str | None = None
    target: str | list[str] | None = None
    classes: list[str] = field(default_factory=list)
    weight: str | None = None
    pt: str | None = None
    mass: str | None = None
    spectra: list[str] = field(default_factory=list)
    event: list[str] = field(default_factory=list)
    rows: str | None = None
    links: dict[str, dict[str, str]] = field(default_factory=dict)
    sentinels: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Parses all formulas; a ConfigError for the first mistake."""
        check_links(self.links, self.rows)
        if self.vectors and len(self.vectors) != 4:
            raise ConfigError("data.constituents.vectors: expected four: px, py, pz, energy")
        self.needs(self._keys)

    @cached_property
    def _formulas(self) -> dict[str, Expression]:
        return {}

    def formula(self, text: str, key: str = "data") -> Expression:
        """A parsed formula; a ConfigError if it is none."""
        if text not in self._formulas:
            self._formulas[text] = Expression(text, key)
        return self._formulas[text]

    @cached_property
    def _keys(self) -> dict[str, str]:
        """By formula, the key under which a person wrote it."""
        several = {
            "data.inputs.particles": self.particles, "data.inputs.flat": self.flat,
            "data.constituents.points": self.points, "data.constituents.vectors": self.vectors,
            "data.target": self.labels, "data.reweight.by": self.spectra,
            "data.split.event": self.event,
        }  # fmt: skip
        single = {
            "data.constituents.order": self.order, "data.selection": self.selection,
            "data.weight": self.weight, "data.monitor.pt": self.pt, "data.monitor.mass": self.mass,
        }  # fmt: skip
        pairs = [(text, key) for key, texts in several.items() for text in texts]
        return dict([*pairs, *((text, key) for key, text in single.items() if text)][::-1])

    @property
    def labels(self) -> list[str]:
        """The formulas of the labels."""
        return [self.target] if isinstance(self.target, str) else list(self.target or [])

    def key(self, text: str) -> str:
        """Where a formula was written, for messages."""
        return self._keys.get(text, "data")

    @property
    def inputs(self) -> list[str]:
        """The formulas that a prediction needs."""
        order = [self.order] if self.order else []
        return [*self.particles, *self.flat, *order, *self.points, *self.vectors]

    def needs(self, texts: Iterable[str]) -> frozenset[str]:
        """The branches of some formulas, through derived variables."""
        found = {it for of in self.links.values() for it in of.values()}

        def visit(text: str, key: str, within: tuple[str, ...]) -> None:
            for name in self.formula(text, key).names:
                if name not in self.derived:
                    found.add(name)
                elif name in within:
                    raise ConfigError(f"data.derived.{name} is defined by itself")
                else:
                    visit(self.derived[name], f"data.derived.{name}", (*within, name))

        for text in texts:
            visit(text, self.key(text), ())
        return frozenset(found)

    def lacking(self, table: Table, texts: Iterable[str]) -> list[str]:
        """Branches of some formulas that a table does not have."""
        return sorted(name for name in self.needs(texts) if table.find(name) is None)

    def for_prediction(self) -> Recipe:
        """The same without labels, weights and what else is not in data."""
        nothing: dict[str, Any] = {"target": None, "weight": None, "spectra": [], "event": []}
        return replace(self, **nothing, selection=None, pt=None, mass=None)

    def branches(self, table: Table, texts: Iterable[str] = ()) -> frozenset[str]:
        """What to read of a table for the recipe and further formulas.

        A weight may be missing, as it is in collision data; a DataError for any other branch.
        """
        wanted = [*self._keys, *texts]
        if self.weight and self.lacking(table, [self.weight]):
            wanted = [text for text in wanted if text != self.weight]
        for text in wanted:
            table.require(self.needs([text]), self.key(text))
        return self.needs(wanted)


def recipe_of(
    given: Mapping[str, Any],
    event: list[str],
    rows: str | None,
    links: Mapping[str, Mapping[str, str]] | None,
    sentinels: Iterable[float],
) -> Recipe:
    """The recipe of settings below ``data``; a ConfigError for unknown words in them."""
    inputs, target = given["inputs"], given["target"]
    if not isinstance(inputs, Mapping):
        inputs = {"flat": inputs}
    if unknown := [it for it in inputs if it not in ("particles", "flat")]:
        raise ConfigError(f"data.inputs: {unknown[0]} is unknown; there is: flat, particles")
    particles, flat = (
        texts(inputs.get(it), f"data.inputs.{it}" if "particles" in inputs else "data.inputs")
        for it in ("particles", "flat")
    )
    if not particles + flat:
        raise ConfigError("data.inputs is empty; name branches or formulas")
    more = mapping(given["constituents"], "data.constituents", OF_CONSTITUENTS)
    if "length" in more:
        more["length"] = number(more["length"], "data.constituents.length", 1, whole=True)
    more |= {it: texts(more[it], f"data.constituents.{it}") for it in more if it in LISTS}
    monitor = mapping(given["monitor"], "data.monitor", ("pt", "mass"))
    spectrum = mapping(given["reweight"], "data.reweight", ("by", "bins", "most"))
    linked = mapping(links, "data.links")
    return Recipe(
        particles=particles,
        flat=flat,
        derived={name: str(it) for name, it in mapping(given["derived"], "data.derived").items()},
        selection=given["selection"],
        target=target if isinstance(target, str) else texts(target, "data.target"),
        classes=texts(given["classes"], "data.classes"),
        weight=given["weight"],
        pt=monitor.get("pt"),
        mass=monitor.get("mass"),
        spectra=texts(spectrum.get("by"), "data.reweight.by"),
        event=event,
        rows=rows,
        links={name: mapping(it, f"data.links.{name}") for name, it in linked.items()},
        sentinels=numbers(sentinels, "data.sentinels"),
        **more,
    )
