"""Formulas over branches, as a person writes them into a configuration: ``log(pt / jet_pt)``.

The text is parsed, never executed: only the syntax below is taken, names are branches or derived
variables, and what is called is in ``functions.FUNCTIONS`` (``np.``, ``ak.``, ``math.`` before a
function may be left out). ``x[0]`` is the first entry of each row's list, NaN where there is none,
``x[x > 30]`` those above; ``and``, ``or``, ``not`` work as ``&``, ``|``, ``~``. A branch whose name
Python would not read goes into backquotes. ``"ttbar" in file`` and ``tree == "signal"`` ask where a
row comes from.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import awkward as ak
import numpy as np

from apps.hep.functions import CONSTANTS, FUNCTIONS, jagged
from apps.hep.jagged import by_awkward, elementwise
from scadl_core.errors import ConfigError, DataError, nearest

LONGEST = 2000  # characters
_PREFIXES = ("np", "numpy", "ak", "awkward", "math")
_PLACES = ("file", "tree")


def _signed(value: Any) -> Any:
    """Counts as numbers that may become negative: of ``uint32`` 0, ``nJet - 1`` is 4294967295."""
    kind = getattr(value, "dtype", np.dtype(bool))
    return value.astype(np.int64) if kind.kind == "u" and kind.itemsize < 8 else value


def _minus(one: Any, other: Any = 0) -> Any:
    return _signed(one) - _signed(other)


_BINARY = {
    ast.Add: operator.add, ast.Sub: _minus, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Pow: operator.pow,
}  # fmt: skip
_COMPARISONS = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_BOOLEAN = {ast.And: np.logical_and, ast.Or: np.logical_or}
_UNARY = {ast.USub: lambda value: -_signed(value), ast.UAdd: operator.pos}
_APPLY: dict[type[ast.AST], Callable[..., Any]] = {
    kind: elementwise(function)
    for kind, function in {**_BINARY, **_COMPARISONS, **_BOOLEAN, **_UNARY}.items()
}
_invert = elementwise(np.logical_not)
_both = elementwise(np.logical_and)
Lookup = Callable[[str], Any]


class Expression:
    """A parsed formula.

    Args:
        text: The formula, or the name of a branch.
        key: Where it stands, for messages.

    Attributes:
        names: Branches and derived variables that it needs.

    Raises:
        ConfigError: It is no formula, or has what is not allowed in one.
    """

    def __init__(self, text: str, key: str) -> None:
        self.text, self.key, self._quoted = str(text).strip(), key, dict[str, str]()
        if len(self.text) > LONGEST:
            raise ConfigError(f"{key}: a formula of more than {LONGEST} characters")
        source = re.sub(r"`([^`]*)`", self._quote, self.text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # refused below, if odd
                self._tree = ast.parse(source.strip(), mode="eval").body
            self.names = frozenset(self._check(self._tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", None) or error
            raise ConfigError(
                f"{key}: {self.text!r} is no formula ({reason}); a branch with an unusual name "
                "goes into backquotes"
            ) from None

    def _quote(self, found: re.Match[str]) -> str:
        name = f"_quoted_{len(self._quoted)}"
        self._quoted[name] = found[1]
        return f" {name} "

    def __call__(self, lookup: Lookup, places: Mapping[str, str]) -> Any:
        """The value for some rows.

        Args:
            lookup: Gives the values of a branch or derived variable: one, or a list, a row.
            places: What ``file`` and ``tree`` are.

        Raises:
            DataError: The values do not go together.
        """
        try:
            with np.errstate(all="ignore"):  # infinities and NaN are found, counted and reported
                return self._value(self._tree, lookup, places)
        except DataError as error:
            raise DataError(f"{self.key}: {self.text}: {error}") from None
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            reason = " ".join(str(error).split())[:120]
            raise DataError(
                f"{self.key}: {self.text} cannot be computed ({reason}); are its parts of one "
                "collection?"
            ) from None

    def _refuse(self, what: str, known: Any = ()) -> ConfigError:
        return ConfigError(f"{self.key}: {self.text!r}: {what}{nearest(what, known) * bool(known)}")

    def _dotted(self, node: ast.expr) -> str | None:
        """The name of a branch, which may have dots in it; None for anything else."""
        if isinstance(node, ast.Name):
            return self._quoted.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (before := self._dotted(node.value)):
            if node.attr.startswith("__"):
                raise self._refuse(f"attribute {node.attr!r} is not allowed in a formula")
            return f"{before}.{node.attr}"
        return None

    def _function(self, node: ast.Call) -> Callable[..., Any]:
        name = (self._dotted(node.func) or "").split(".")
        plain = name[-1] if len(name) == 1 or name[:-1] in ([it] for it in _PREFIXES) else ""
        if plain not in FUNCTIONS:
            called = ".".join(name) or ast.unparse(node.func)
            known = nearest(name[-1], FUNCTIONS)
            raise ConfigError(f"{self.key}: {self.text!r}: unknown function {called!r}{known}")
        return FUNCTIONS[plain]

    def _check(self, node: ast.expr) -> set[str]:
        """The names that a part needs; a ConfigError if it has what is not allowed."""
        if isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            return set()
        if (name := self._dotted(node)) is not None:
            return set() if self._constant(name) is not None else {name}
        if isinstance(node, ast.Call):
            self._function(node)
            if any(it.arg not in ("axis", "nan") for it in node.keywords):
                raise self._refuse("arguments are given without a name, but for axis and nan")
            parts = [*node.args, *(it.value for it in node.keywords)]
        elif isinstance(node, ast.Compare) and self._place(node):
            parts = []
        else:
            parts = self._parts(node)
        return set().union(*(self._check(part) for part in parts))

    def _parts(self, node: ast.expr) -> list[ast.expr]:
        match node:
            case ast.BinOp(left, how, right) if type(how) in _BINARY:
                return [left, right]
            case ast.UnaryOp(how, operand) if not isinstance(how, type(None)):
                return [operand]
            case ast.BoolOp(_, values):
                return values
            case ast.Compare(left, how, others) if all(type(it) in _COMPARISONS for it in how):
                return [left, *others]
            case ast.Subscript(value, index) if not isinstance(index, ast.Slice | ast.Tuple):
                return [value, index]
        raise self._refuse(f"{ast.unparse(node)!r} is not allowed in a formula")

    @staticmethod
    def _constant(name: str) -> float | None:
        before, _, last = name.rpartition(".")
        return CONSTANTS.get(last) if before in _PREFIXES else None

    def _place(self, node: ast.Compare) -> tuple[str, str, bool, bool] | None:
        """Of ``"text" in file`` and the like: which place, the text, whether as a part, whether
        not.
        """
        if len(node.ops) != 1:
            return None
        sides = [node.left, node.comparators[0]]
        texts = [it.value for it in sides if isinstance(it, ast.Constant)]
        names = [it.id for it in sides if isinstance(it, ast.Name) and it.id in _PLACES]
        if len(texts) != 1 or len(names) != 1 or not isinstance(texts[0], str):
            return None
        inside, how = isinstance(node.ops[0], ast.In | ast.NotIn), node.ops[0]
        if not isinstance(how, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
            return None
        return names[0], texts[0], inside, isinstance(how, ast.NotIn | ast.NotEq)

    def _value(self, node: ast.expr, lookup: Lookup, places: Mapping[str, str]) -> Any:
        def value(part: ast.expr) -> Any:
            return self._value(part, lookup, places)

        if isinstance(node, ast.Constant):
            return node.value
        if (name := self._dotted(node)) is not None:
            constant = self._constant(name)
            return lookup(name) if constant is None else constant
        if isinstance(node, ast.Call):
            named = {str(it.arg): value(it.value) for it in node.keywords}
            return self._function(node)(*map(value, node.args), **named)
        if isinstance(node, ast.Compare):
            return self._compared(node, value, places)
        if isinstance(node, ast.Subscript):
            return _entry(value(node.value), value(node.slice))
        if isinstance(node, ast.BoolOp):
            return reduce(_APPLY[type(node.op)], map(value, node.values))
        if isinstance(node, ast.UnaryOp):
            return _APPLY.get(type(node.op), _invert)(value(node.operand))
        assert isinstance(node, ast.BinOp)
        left, right = value(node.left), value(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
            return float(left) ** right  # of whole numbers a power might have no end
        return _APPLY[type(node.op)](left, right)

    def _compared(self, node: ast.Compare, value: Any, places: Mapping[str, str]) -> Any:
        if place := self._place(node):
            where, text, inside, negated = place
            return (text in places[where] if inside else text == places[where]) is not negated
        sides = [value(it) for it in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return reduce(_both, (_APPLY[type(how)](a, b) for how, a, b in pairs))


def _entry(values: Any, which: Any) -> Any:
    """The entry of a number in each row's list, or those for which a list of booleans is true."""
    values = jagged(values, "a list a row")
    if isinstance(which, int):
        return by_awkward(_at)(values, which)
    return by_awkward(operator.getitem)(values, jagged(which, "a condition a constituent"))


def _at(values: ak.Array, which: int) -> ak.Array:
    if which < 0:
        values, which = values[:, ::-1], -which - 1
    first = ak.firsts(values[:, which:], axis=1)
    return ak.fill_none(first, np.nan) if first.ndim == 1 else ak.fill_none(first, [], axis=0)
