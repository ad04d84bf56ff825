"""Formulas: what they give, against plain Python; and what none may say."""

from __future__ import annotations

import contextlib

import awkward as ak
import numpy as np
import pytest
import vector
from hypothesis import given
from hypothesis import strategies as st

from apps.hep.expressions import Expression
from apps.hep.functions import FUNCTIONS, deltaphi
from apps.hep.jagged import awkward, compact
from scadl_core.errors import ConfigError, DataError

VALUES = {
    "x": ak.Array([[1.0, 2.0], [], [3.0]]),
    "n": np.array([1, 2, 3]),
    "y": np.array([1.0, 2.0, 4.0]),
    "Aux.pt": np.array([5.0, 6.0, 7.0]),
    "w/odd#1": np.array([1.0, 1.0, 2.0]),
    "deep": ak.Array([[[1, 2], [3]], [], [[4]]]),
}
PLACES = {"file": "/data/HToBB_000.root", "tree": "signal"}
nan = float("nan")


def value(text: str):
    found = Expression(text, "data.derived.z")(lambda name: compact(VALUES[name]), PLACES)
    return ak.to_list(awkward(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y * 2 + 1", [3, 5, 9]),
        ("-y ** 2", [-1, -4, -16]),
        ("x * y", [[1, 2], [], [12]]),
        ("sum(x)", [3, 0, 3]),
        ("np.sum(x, axis=1)", [3, 0, 3]),
        ("ak.num(x, -1)", [2, 0, 1]),
        ("max(x)", [2, nan, 3]),
        ("x[0]", [1, nan, 3]),
        ("x[-1]", [2, nan, 3]),
        ("x[5]", [nan, nan, nan]),
        ("x[x > 1.5]", [[2], [], [3]]),
        ("num(x[x > y])", [1, 0, 0]),
        ("clip(x, 1.5, 2.5)", [[1.5, 2], [], [2.5]]),
        ("where(y > 1, y, 0)", [0, 2, 4]),
        ("1 < y < 3", [False, True, False]),
        ("not (y > 1) or n == 3", [True, False, True]),
        ("(n & 1) | 2", [3, 2, 3]),
        ("Aux.pt + 1", [6, 7, 8]),
        ("`w/odd#1` * y", [1, 2, 8]),
        ("deep[0]", [[1, 2], [], [4]]),
        ("np.pi * 0 + y", [1, 2, 4]),
        ("math.log(e_ / e_)", None),
        ('"HToBB" in file', True),
        ('"TTBar" not in file', True),
        ('tree == "sideband"', False),
        ("nan_to_num(x[0], nan=-1)", [1, -1, 3]),
        ("9 ** 2", 81),
    ],
)
def test_what_a_formula_gives(text: str, expected) -> None:
    if expected is None:
        assert Expression(text, "k").names == {"e_"}
    else:
        np.testing.assert_equal(value(text), expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.__class__", "attribute '__class__' is not allowed"),
        ("x.__class__.__mro__[1]", "'__class__' is not allowed"),
        ("().__class__", "is not allowed"),
        ("__import__('os').system('x')", "unknown function"),
        ("open('f')", "unknown function 'open'"),
        ("eval('1')", "unknown function 'eval'"),
        ("np.load('f')", "unknown function 'np.load'"),
        ("np.lib.format.open_memmap('f')", "unknown function"),
        ("getattr(x, 'y')", "unknown function 'getattr'"),
        ("x.sum()", "unknown function 'x.sum'; did you mean 'sum'"),
        ("lgo(x)", "unknown function 'lgo'; did you mean 'log'"),
        ("[i for i in x]", "is not allowed"),
        ("lambda: 1", "is not allowed"),
        ("x if y else 1", "is not allowed"),
        ("(y := 1)", "is not allowed"),
        ("x[0:1]", "is not allowed"),
        ("f'{x}'", "is not allowed"),
        ("'a' * 9", "is not allowed"),
        ("sum(*x)", "is not allowed"),
        ("sum(x, out=y)", "without a name"),
        ("sum(x", "is no formula"),
        ("x y", "is no formula"),
        ("", "is no formula"),
        ("1" * 3000, "more than 2000 characters"),
        ("-" * 1900 + "1", ""),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^data.derived.z") as refused:
        Expression(text, "data.derived.z")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x + deep[-1]", "cannot be computed"),
        ("sum(y)", "a value a constituent is needed, there is one a row"),
        ("y[0]", "a list a row is needed"),
        ("9 ** 9 ** 9 ** 9", "cannot be computed"),
        ("sum(x, axis=0)", "axis=1"),
    ],
)
def test_values_that_do_not_go_together(text: str, said: str) -> None:
    with pytest.raises(DataError, match=r"^data.derived.z: ") as refused:
        value(text)
    assert said in str(refused.value)


WORDS = "x y n ( ) [ ] + - * / ** , . log sum np. __ 'a' 1 0 : = @ in not ` ~"
words = st.sampled_from(WORDS.split(" "))


@given(st.lists(words, max_size=12))
def test_any_text_is_a_formula_or_a_mistake_of_its_writer(parts: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        Expression("".join(parts), "k")


FOUR = st.tuples(*[st.floats(-100, 100)] * 3, st.floats(0.1, 50))


@given(FOUR, FOUR)
def test_vectors_are_those_of_the_vector_package(one, two) -> None:
    a, b = (vector.obj(px=x, py=y, pz=z, mass=m) for x, y, z, m in (one, two))
    if min(a.pt, b.pt) < 1e-3:
        return
    momentum = [np.array([it]) for it in (a.px, a.py, a.pz, a.E)]
    np.testing.assert_allclose(FUNCTIONS["mass"](*momentum), a.mass, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(FUNCTIONS["pt"](*momentum[:2]), a.pt)
    np.testing.assert_allclose(FUNCTIONS["eta"](*momentum[:3]), a.eta, atol=1e-9)
    np.testing.assert_allclose(FUNCTIONS["rapidity"](*momentum[2:]), a.rapidity, atol=1e-9)
    turn = FUNCTIONS["deltar"](a.eta, a.phi, b.eta, b.phi)
    np.testing.assert_allclose(turn, a.deltaR(b), atol=1e-9)
    away = (deltaphi(a.phi, b.phi) - a.deltaphi(b) + 1) % (2 * np.pi) - 1
    np.testing.assert_allclose(away, 0, atol=1e-9)  # -pi and pi are one
