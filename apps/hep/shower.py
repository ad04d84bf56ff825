"""Simulated jets: what decays, how it showers, what a detector sees of it.

A toy that has what taggers live on: the masses and angles of exact decays, showers ordered in angle
in which gluons radiate more, displaced tracks of bottom quarks, soft particles that have nothing to
do with the jet, and finite resolution. Momenta in GeV, lengths in mm.

Suffixes: J jet, P particle (all jets one after another), 3 x, y, z, 4 energy, x, y, z.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rng = np.random.Generator
# Records: the jet, momentum, angle of the last splitting, whether a gluon, whether with a b quark.
PARTICLE = np.dtype(
    [("jet", "i8"), *((it, "f8") for it in ("pt", "eta", "phi", "angle")),
     ("gluon", "?"), ("bottom", "?")]
)  # fmt: skip
CONE, LIGHTEST_PT_GEV = 0.8, 0.5
GENERATIONS = 7  # of splittings
GLUON_RATE, QUARK_RATE = 0.85, 0.62  # of splitting; a gluon's colour charge is the larger
TWO_BODY = {  # mass and width of the parent in GeV, into gluons?, into bottom quarks?
    "Hbb": (125.0, 0.01, False, True),
    "Hgg": (125.0, 0.01, True, False),
    "Wqq": (80.4, 1.0, False, False),
    "Zqq": (91.2, 1.0, False, False),
}
TOP_GEV, TOP_WIDTH_GEV, W_GEV, BOTTOM_GEV = 172.5, 0.7, 80.4, 4.8


def wrap(phi: Floats) -> Floats:
    """An angle in [-pi, pi)."""
    return np.mod(phi + np.pi, 2 * np.pi) - np.pi


def boost(momentum_P4: Floats, velocity_P3: Floats) -> Floats:
    """Momenta in the frame in which their rest frame moves with a velocity, in units of light's."""
    squared = np.square(velocity_P3).sum(1)
    gamma = 1 / np.sqrt(1 - squared)
    along = (velocity_P3 * momentum_P4[:, 1:]).sum(1)
    stretch = np.divide(gamma - 1, squared, out=np.zeros_like(gamma), where=squared > 0) * along
    shift_P3 = (stretch + gamma * momentum_P4[:, 0])[:, None] * velocity_P3
    return np.column_stack([gamma * (momentum_P4[:, 0] + along), momentum_P4[:, 1:] + shift_P3])


def two_body(
    rng: Rng, parent_P4: Floats, mass: Floats, first: Floats, second: Floats
) -> tuple[Floats, Floats]:
    """An isotropic decay into two particles of given masses, exact in special relativity."""
    product = (mass**2 - (first + second) ** 2) * (mass**2 - (first - second) ** 2)
    size = np.sqrt(np.maximum(product, 0)) / (2 * mass)
    cosine, phi = rng.uniform(-1, 1, len(mass)), rng.uniform(0, 2 * np.pi, len(mass))
    sine = np.sqrt(1 - cosine**2)
    way_P3 = np.column_stack([sine * np.cos(phi), sine * np.sin(phi), cosine]) * size[:, None]
    there = np.column_stack([np.sqrt(size**2 + first**2), way_P3])
    back = np.column_stack([np.sqrt(size**2 + second**2), -way_P3])
    velocity_P3 = parent_P4[:, 1:] / parent_P4[:, :1]
    return boost(there, velocity_P3), boost(back, velocity_P3)


def four_momentum(pt: Floats, eta: Floats, phi: Floats, mass: Floats) -> Floats:
    """Shape P4, as the decays take it."""
    x, y, z = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    return np.column_stack([np.sqrt(x * x + y * y + z * z + mass**2), x, y, z])


def _records(**columns: Any) -> NDArray[Any]:
    found = np.empty(len(columns["jet"]), PARTICLE)
    for name, values in columns.items():
        found[name] = values
    return found


def partons(rng: Rng, process: str, pt: Floats, eta: Floats, phi: Floats) -> NDArray[Any]:
    """The decay products of the parents of some jets, or the one parton of a QCD jet."""
    count = len(pt)
    jet = np.arange(count)

    def resonance(mass: float, width: float) -> Floats:
        return mass + width * rng.standard_cauchy(count).clip(-6, 6)

    if process == "QCD":  # 8 % from bottom quarks, of the others 60 % gluons
        bottom = rng.random(count) < 0.08
        gluon = (rng.random(count) < 0.6) & ~bottom
        return _records(jet=jet, pt=pt, eta=eta, phi=phi, angle=CONE, gluon=gluon, bottom=bottom)
    if process == "Tbqq":
        mass, w_mass = resonance(TOP_GEV, TOP_WIDTH_GEV), resonance(W_GEV, 1.0)
        parent_P4, b_mass = four_momentum(pt, eta, phi, mass), np.full(count, BOTTOM_GEV)
        b_P4, w_P4 = two_body(rng, parent_P4, mass, b_mass, w_mass)
        pair = two_body(rng, w_P4, w_mass, 0 * pt, 0 * pt)
        products = [(b_P4, False, True), *((it_P4, False, False) for it_P4 in pair)]
    else:
        peak, width, gluons, bottoms = TWO_BODY[process]
        mass = resonance(peak, width)
        pair = two_body(rng, four_momentum(pt, eta, phi, mass), mass, 0 * pt, 0 * pt)
        products = [(it_P4, gluons, bottoms) for it_P4 in pair]
    return np.concatenate([_at(jet, *product) for product in products])


def _at(jet: NDArray, momentum_P4: Floats, gluon: bool, bottom: bool) -> NDArray[Any]:
    _, x, y, z = momentum_P4.T
    pt = np.hypot(x, y)
    place = {"eta": np.arcsinh(z / np.maximum(pt, 1e-9)), "phi": np.arctan2(y, x)}
    angle = np.minimum(0.5, 60.0 / np.maximum(pt, 30))  # narrow, as the parent is fast
    return _records(jet=jet, pt=pt, **place, angle=angle, gluon=gluon, bottom=bottom)


def shower(rng: Rng, found: NDArray[Any]) -> NDArray[Any]:
    """Splits partons in two, again and again, at ever smaller angles."""
    for _ in range(GENERATIONS):
        hardness = np.clip(np.log(np.maximum(found["pt"], 1e-9)) / 4, 0, 1.15)
        rate = np.where(found["gluon"], GLUON_RATE, QUARK_RATE) * hardness
        splits = (rng.random(len(rate)) < rate) & (found["pt"] > 2.0)
        parent, soft = found[splits], found[splits]
        count = len(parent)
        softest = np.clip(1 / parent["pt"], 0.01, 0.49)
        share = 0.5 * np.exp(-rng.random(count) * np.log(0.5 / softest))  # uniform in its logarithm
        angle = np.maximum(parent["angle"] * np.exp(-rng.exponential(0.75, count)), 0.004)
        around = rng.uniform(0, 2 * np.pi, count)
        parent["angle"] = soft["angle"] = angle
        for name, turn in (("eta", angle * np.cos(around)), ("phi", angle * np.sin(around))):
            soft[name] += (1 - share) * turn
            parent[name] -= share * turn
        soft["pt"] *= share
        parent["pt"] *= 1 - share
        soft["gluon"] = rng.random(count) < 0.8
        soft["bottom"] &= rng.random(count) < 0.35
        found[splits] = parent
        found = np.concatenate([found, soft])
    return found


def underlying(rng: Rng, eta_J: Floats, phi_J: Floats) -> NDArray[Any]:
    """Soft particles spread over the cone, on average six a jet."""
    jet = np.repeat(np.arange(len(eta_J)), rng.poisson(6, len(eta_J)))
    count = len(jet)
    radius, around = CONE * np.sqrt(rng.random(count)), rng.uniform(0, 2 * np.pi, count)
    place = {
        "eta": eta_J[jet] + radius * np.cos(around),
        "phi": phi_J[jet] + radius * np.sin(around),
    }
    pt = rng.exponential(0.9, count) + LIGHTEST_PT_GEV
    return _records(jet=jet, pt=pt, **place, angle=0, gluon=False, bottom=False)


def detect(
    rng: Rng, found: NDArray[Any], eta_J: Floats, phi_J: Floats
) -> tuple[NDArray[Any], dict[str, NDArray]]:
    """What is measured of the particles in the cone, hardest first in each jet.

    Returns:
        The particles; and of each ``kind`` (0 charged hadron, 1 neutral hadron, 2 photon, 3
        electron, 4 muon), ``charge``, and impact parameters ``d0val``, ``dzval`` with their errors.
    """
    found["eta"] += rng.normal(0, 0.012, len(found))  # granularity
    found["phi"] += rng.normal(0, 0.012, len(found))
    jet = found["jet"]
    away = np.hypot(found["eta"] - eta_J[jet], wrap(found["phi"] - phi_J[jet]))
    found = found[(found["pt"] > LIGHTEST_PT_GEV) & (away < CONE)]
    count = len(found)
    kind = rng.choice(5, count, p=(0.6, 0.1, 0.27, 0.015, 0.015))
    is_track = np.isin(kind, (0, 3, 4))
    charge = np.where(is_track, rng.choice((-1.0, 1.0), count), 0.0)
    resolution = np.select([is_track, kind == 2], [0.01, 0.03], 0.12)
    found["pt"] *= np.maximum(1 + resolution * rng.standard_normal(count), 0.3)
    order = np.lexsort((-found["pt"], found["jet"]))
    found, kind, charge, is_track = found[order], kind[order], charge[order], is_track[order]
    error = np.hypot(0.012, 0.05 / found["pt"])
    sign = rng.choice((-1, 1, 1), count)
    flies = found["bottom"] & is_track & (found["pt"] > 1)
    flight = np.where(flies, rng.exponential(0.1, count) * sign, 0.0)
    seen: dict[str, NDArray] = {"kind": kind, "charge": charge}
    for name, share, wide in (("d0", 1.0, 1.0), ("dz", 0.8, 1.4)):
        values = share * flight + wide * error * rng.standard_normal(count)
        seen |= {f"{name}val": values * is_track, f"{name}err": wide * error * is_track}
    return found, seen
