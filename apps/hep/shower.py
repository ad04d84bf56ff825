"""Simulated jets: what decays, how it showers, what a detector sees of it.

A toy that has what taggers live on: the masses and angles of exact decays, showers ordered in angle
in which gluons radiate more, displaced tracks of bottom quarks, soft particles that have nothing to
do with the jet, and finite resolution. Momenta in GeV, lengths in mm.

Suffixes: J jet, P particle (all jets one after another), 4 energy, x, y, z.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rng = np.random.Generator

CONE = 0.8  # jet radius
LIGHTEST_PT_GEV = 0.5
GENERATIONS = 7  # of splittings
GLUON_RATE, QUARK_RATE = 0.85, 0.62  # of splitting; a gluon's colour charge is the larger
HEAVY = {  # two-body decays: mass and width of the parent in GeV, of gluons?, of bottom quarks?
    "Hbb": (125.0, 0.01, False, True),
    "Hgg": (125.0, 0.01, True, False),
    "Wqq": (80.4, 1.0, False, False),
    "Zqq": (91.2, 1.0, False, False),
}
TOP_GEV, TOP_WIDTH_GEV, W_GEV, BOTTOM_GEV = 172.5, 0.7, 80.4, 4.8
PDG = {"QCD": 21, "Hbb": 25, "Hgg": 25, "Wqq": 24, "Zqq": 23, "Tbqq": 6}  # of the parent


@dataclass
class Particles:
    """Particles of many jets: which jet, momentum by (pt, eta, phi), angle of the last splitting,
    whether gluons, whether they carry a bottom quark; each P.
    """

    jet: NDArray[np.int64]
    pt: Floats
    eta: Floats
    phi: Floats
    angle: Floats
    gluon: NDArray[np.bool_]
    bottom: NDArray[np.bool_]

    def __add__(self, other: Particles) -> Particles:
        pairs = ((getattr(self, it.name), getattr(other, it.name)) for it in fields(self))
        return Particles(*(np.concatenate(pair) for pair in pairs))

    def __getitem__(self, chosen: NDArray) -> Particles:
        return Particles(*(getattr(self, it.name)[chosen] for it in fields(self)))


def wrap(phi: Floats) -> Floats:
    """An angle in [-pi, pi)."""
    return np.mod(phi + np.pi, 2 * np.pi) - np.pi


def boost(momentum_P4: Floats, velocity_P3: Floats) -> Floats:
    """Momenta in the frame in which their rest frame moves with a velocity, in units of light's."""
    squared = np.square(velocity_P3).sum(1)
    gamma = 1 / np.sqrt(1 - squared)
    along = (velocity_P3 * momentum_P4[:, 1:]).sum(1)
    stretch = np.divide(gamma - 1, squared, out=np.zeros_like(gamma), where=squared > 0) * along
    energy = gamma * (momentum_P4[:, 0] + along)
    shift_P3 = (stretch + gamma * momentum_P4[:, 0])[:, None] * velocity_P3
    return np.column_stack([energy, momentum_P4[:, 1:] + shift_P3])


def two_body(
    rng: Rng, parent_P4: Floats, mass: Floats, first: Floats, second: Floats
) -> tuple[Floats, Floats]:
    """An isotropic decay into two particles of given masses, exact in special relativity."""
    product = (mass**2 - (first + second) ** 2) * (mass**2 - (first - second) ** 2)
    size = np.sqrt(np.maximum(product, 0)) / (2 * mass)
    cosine, phi = rng.uniform(-1, 1, len(mass)), rng.uniform(0, 2 * np.pi, len(mass))
    sine = np.sqrt(1 - cosine**2)
    way_P3 = np.column_stack([sine * np.cos(phi), sine * np.sin(phi), cosine]) * size[:, None]
    velocity_P3 = parent_P4[:, 1:] / parent_P4[:, :1]
    there = np.column_stack([np.sqrt(size**2 + first**2), way_P3])
    back = np.column_stack([np.sqrt(size**2 + second**2), -way_P3])
    return boost(there, velocity_P3), boost(back, velocity_P3)


def four_momentum(pt: Floats, eta: Floats, phi: Floats, mass: Floats) -> Floats:
    """Shape P4, as the decays take it."""
    x, y, z = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    return np.column_stack([np.sqrt(x * x + y * y + z * z + mass**2), x, y, z])


def _resonance(rng: Rng, mass: float, width: float, count: int) -> Floats:
    return mass + width * rng.standard_cauchy(count).clip(-6, 6)


def partons(rng: Rng, process: str, pt: Floats, eta: Floats, phi: Floats) -> Particles:
    """The decay products of the parents of some jets, or the one parton of a QCD jet."""
    count = len(pt)
    jet, no = np.arange(count), np.zeros(count, bool)
    if process == "QCD":  # 8 % from bottom quarks, of the others 60 % gluons
        bottom = rng.random(count) < 0.08
        gluon = (rng.random(count) < 0.6) & ~bottom
        return Particles(jet, pt, eta, phi, np.full(count, CONE), gluon, bottom)
    if process == "Tbqq":
        mass = _resonance(rng, TOP_GEV, TOP_WIDTH_GEV, count)
        w_mass, b_mass = _resonance(rng, W_GEV, 1.0, count), np.full(count, BOTTOM_GEV)
        b_P4, w_P4 = two_body(rng, four_momentum(pt, eta, phi, mass), mass, b_mass, w_mass)
        quarks = two_body(rng, w_P4, w_mass, 0 * pt, 0 * pt)
        products = [(b_P4, no, ~no), *((it, no, no) for it in quarks)]
    else:
        peak, width, gluon, bottom = HEAVY[process]
        mass = _resonance(rng, peak, width, count)
        pair = two_body(rng, four_momentum(pt, eta, phi, mass), mass, 0 * pt, 0 * pt)
        products = [(it, no | gluon, no | bottom) for it in pair]
    found = [_at(jet, it_P4, gluon, bottom) for it_P4, gluon, bottom in products]
    return sum(found[1:], found[0])


def _at(jet: NDArray, momentum_P4: Floats, gluon: NDArray, bottom: NDArray) -> Particles:
    _, x, y, z = momentum_P4.T
    pt = np.hypot(x, y)
    eta, phi = np.arcsinh(z / np.maximum(pt, 1e-9)), np.arctan2(y, x)
    angle = np.minimum(0.5, 60.0 / np.maximum(pt, 30))  # narrow, as the parent is fast
    return Particles(jet, pt, eta, phi, angle, gluon, bottom)


def shower(rng: Rng, found: Particles) -> Particles:
    """Splits partons in two, again and again, at ever smaller angles."""
    for _ in range(GENERATIONS):
        rate = np.where(found.gluon, GLUON_RATE, QUARK_RATE) * np.clip(
            np.log(np.maximum(found.pt, 1e-9)) / 4, 0, 1.15
        )
        splits = (rng.random(len(rate)) < rate) & (found.pt > 2.0)
        parent = found[splits]
        count = len(parent.pt)
        softest = np.clip(1 / parent.pt, 0.01, 0.49)
        share = 0.5 * np.exp(-rng.random(count) * np.log(0.5 / softest))  # uniform in its logarithm
        angle = np.maximum(parent.angle * np.exp(-rng.exponential(0.75, count)), 0.004)
        around = rng.uniform(0, 2 * np.pi, count)
        along_eta, along_phi = angle * np.cos(around), angle * np.sin(around)
        found.pt[splits] = parent.pt * (1 - share)
        found.eta[splits] = parent.eta - share * along_eta
        found.phi[splits] = parent.phi - share * along_phi
        found.angle[splits] = angle
        found = found + Particles(
            parent.jet,
            parent.pt * share,
            parent.eta + (1 - share) * along_eta,
            parent.phi + (1 - share) * along_phi,
            angle,
            rng.random(count) < 0.8,
            parent.bottom & (rng.random(count) < 0.35),
        )
    return found


def underlying(rng: Rng, eta_J: Floats, phi_J: Floats) -> Particles:
    """Soft particles spread over the cone, on average six a jet."""
    jet = np.repeat(np.arange(len(eta_J)), rng.poisson(6, len(eta_J)))
    count = len(jet)
    radius, around = CONE * np.sqrt(rng.random(count)), rng.uniform(0, 2 * np.pi, count)
    eta, phi = eta_J[jet] + radius * np.cos(around), phi_J[jet] + radius * np.sin(around)
    pt, no = rng.exponential(0.9, count) + LIGHTEST_PT_GEV, np.zeros(count, bool)
    return Particles(jet, pt, eta, phi, np.zeros(count), no, no)


@dataclass
class Tracks:
    """What a detector adds to :class:`Particles`: kind (0 charged hadron, 1 neutral hadron,
    2 photon, 3 electron, 4 muon), charge, impact parameters and their errors in mm; each P.
    """

    kind: NDArray[np.int64]
    charge: Floats
    d0: Floats
    d0_error: Floats
    dz: Floats
    dz_error: Floats


def detect(rng: Rng, found: Particles, eta_J: Floats, phi_J: Floats) -> tuple[Particles, Tracks]:
    """What is measured of the particles in the cone, hardest first in each jet."""
    found.eta = found.eta + rng.normal(0, 0.012, len(found.eta))  # granularity
    found.phi = found.phi + rng.normal(0, 0.012, len(found.phi))
    away = np.hypot(found.eta - eta_J[found.jet], wrap(found.phi - phi_J[found.jet]))
    found = found[(found.pt > LIGHTEST_PT_GEV) & (away < CONE)]
    count = len(found.pt)
    kind = rng.choice(5, count, p=(0.6, 0.1, 0.27, 0.015, 0.015))
    is_track = np.isin(kind, (0, 3, 4))
    charge = np.where(is_track, rng.choice((-1.0, 1.0), count), 0.0)
    resolution = np.select([is_track, kind == 2], [0.01, 0.03], 0.12)
    found.pt = found.pt * np.maximum(1 + resolution * rng.standard_normal(count), 0.3)
    found = found[order := np.lexsort((-found.pt, found.jet))]
    kind, charge, is_track = kind[order], charge[order], is_track[order]
    error = np.hypot(0.012, 0.05 / found.pt)
    sign = rng.choice((-1, 1, 1), count)
    flies = found.bottom & is_track & (found.pt > 1)
    flight = np.where(flies, rng.exponential(0.1, count) * sign, 0.0)
    d0, dz = (
        np.where(is_track, share * flight + wide * error * rng.standard_normal(count), 0.0)
        for share, wide in ((1.0, 1.0), (0.8, 1.4))
    )
    errors = (np.where(is_track, wide * error, 0.0) for wide in (1.0, 1.4))
    d0_error, dz_error = errors
    return found, Tracks(kind, charge, d0, d0_error, dz, dz_error)
