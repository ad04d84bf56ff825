"""From a bound to the constants of a law, once an array.

The linear law's step is a little smaller than twice the bound, so that the rounding of x / step and
of s * step seldom costs a row; its tolerance is the last number below the bound, so that an error
which floating point sees as within it is within it in exact arithmetic: rounding is monotonic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from scadl_core.compress.formats import Format

SHRINK = 1 - 2.0**-9
# Outside, products with step or its inverse could leave the normal numbers.
SMALLEST_FLOAT_BOUND, LARGEST_FLOAT_BOUND = 2.0**-100, 2.0**100
SMALLEST_DOUBLE_BOUND, LARGEST_DOUBLE_BOUND = 2.0**-900, 2.0**900
KINDS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
LOGARITHMIC = 4


class Law(NamedTuple):
    """How values become codes; the kernels' constants.

    Attributes:
        kind: 0 to 3: linear, for float32, float64, float16, bfloat16. 4: logarithmic.
        predictor: 0 none, 1 the element before, 2 the element before and those a row above.
        width: Elements a row of the array, for predictor 2; below 1024.
        dithered: Whether there is noise; then the predictor is 0.
        seed: Of the noise, 32 bits.
        inverse: 1 / step, linear.
        step: The distance of two values, linear.
        tolerance: The largest error that may be seen, linear.
        shift: How many bits of a pattern are dropped, logarithmic.
        base: The smallest pattern that is coded, logarithmic.
        sign_bit: Of a pattern.
        infinity: The pattern of infinity.
    """

    kind: int
    predictor: int
    width: int
    dithered: bool
    seed: int
    inverse: float
    step: float
    tolerance: float
    shift: int
    base: int
    sign_bit: np.uint64
    infinity: int

    @property
    def is_exact(self) -> bool:
        """Whether every bit is kept."""
        return self.kind == LOGARITHMIC and self.shift == 0


def linear_law(form: Format, bound: float, seed: int | None, least: int) -> Law:
    """The law for ``|x - x'| <= bound``.

    Args:
        form: Type of the elements.
        bound: In the units of the array; too small for the type it makes the law exact.
        seed: Of the dither; None for none.
        least: Smallest pattern of a magnitude above zero.
    """
    double = form.name == "float64"
    limits = (
        (SMALLEST_DOUBLE_BOUND, LARGEST_DOUBLE_BOUND)
        if double
        else (SMALLEST_FLOAT_BOUND, LARGEST_FLOAT_BOUND)
    )
    if bound < limits[0]:
        return logarithmic_law(form, 0.0, least)
    bound = min(bound, limits[1])
    number = np.float64 if double else np.float32
    held = number(bound)
    if float(held) > bound:
        held = np.nextafter(held, number(0))
    shrunk = number(float(held) * SHRINK)
    return Law(
        kind=KINDS[form.name],
        predictor=0,
        width=1,
        dithered=seed is not None,
        seed=(seed or 0) & 0xFFFFFFFF,
        inverse=float(number(0.5) / shrunk),
        step=float(number(2) * shrunk),
        tolerance=float(np.nextafter(held, number(0))),
        shift=0,
        base=0,
        sign_bit=np.uint64(form.sign_bit),
        infinity=form.infinity,
    )


def logarithmic_law(form: Format, bound: float, least: int) -> Law:
    """The law for ``|x - x'| <= bound * |x|``; exact where the type has no bits to spare.

    Args:
        form: Type of the elements.
        bound: Below 1.
        least: Smallest pattern of a magnitude above zero.
    """
    units = math.floor(math.ldexp(bound, form.mantissa))
    shift = min(units.bit_length(), form.mantissa) if units else 0
    smallest_normal = 1 << form.mantissa
    return Law(
        kind=LOGARITHMIC,
        predictor=0,
        width=1,
        dithered=False,
        seed=0,
        inverse=0.0,
        step=0.0,
        tolerance=0.0,
        shift=shift,
        base=max(least, smallest_normal) if shift else least,
        sign_bit=np.uint64(form.sign_bit),
        infinity=form.infinity,
    )
