"""Which plans there are, and which of those that are admissible is predicted to be the fastest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from scadl_core.tuning.costs import Cost, precondition, predict
from scadl_core.tuning.machine import Machine
from scadl_core.tuning.network import Network
from scadl_core.tuning.plan import Curvature, Plan, parse_codec

BUCKETS_MIB = (5.0, 25.0, 100.0)
_MOST_ACCUMULATION = 8
_WORTH = 0.02  # of a step's time: for less, nothing is changed
_SHARE_OF_INVERSES = 0.1  # of forward and backward pass, above which inversions become rarer
_PERIODS = (1, 2, 5, 10)


class Option(NamedTuple):
    """A plan and what it is predicted to cost."""

    plan: Plan
    cost: Cost


def plans(machine: Machine, network: Network, base: Plan, samples: int) -> Iterator[Plan]:
    """All plans that compute the same as a configured one, but for the error of what is sent.

    Local steps with averages of the weights are no part of them: the trainer averages gradients.

    Args:
        machine: Where.
        network: What.
        base: As configured. K-FAC stays K-FAC, and another optimizer what it is.
        samples: Of a step on one rank.
    """
    alone = machine.ranks == 1
    codecs = [base.codec] if alone else list(network.codecs)
    buckets = (base.bucket,) if alone else BUCKETS_MIB
    micro = [base.accumulation * 2**k for k in range(4)]
    micro = [m for m in micro if m == base.accumulation or _divides(m, samples)]
    kept = (base.adaptive,) if network.kept is None else (False, True)
    curvatures = [None] if base.kfac is None else _curvatures(machine, network, base.kfac, samples)
    for codec in codecs:
        name, number = parse_codec(codec)
        for bucket in dict.fromkeys((base.bucket, *buckets)):
            for accumulation in micro:
                for adaptive in kept:
                    for kfac in curvatures:
                        yield Plan(name, number, bucket, accumulation, adaptive, kfac)


def options(
    machine: Machine, network: Network, base: Plan, samples: int, error: float
) -> list[Option]:
    """Admissible plans, the best first; those that need too much memory or lose too much left out.

    Of plans within 2 % of the fastest, the one that changes least comes first.

    Args:
        machine: Where.
        network: What.
        base: As configured.
        samples: Of a step on one rank.
        error: The largest error of a gradient, relative to its norm.

    Returns:
        Options; none where not even the smallest plan fits.
    """
    found = [Option(p, predict(machine, network, p, samples))
             for p in plans(machine, network, base, samples)]  # fmt: skip
    found = [o for o in found if o.cost.memory <= machine.memory and o.cost.error <= error]
    found.sort(key=lambda option: option.cost.seconds)
    if found:
        limit = (1 + _WORTH) * found[0].cost.seconds
        near = [option for option in found if option.cost.seconds <= limit]
        near.sort(key=lambda option: (option.plan.changes(base), option.cost.seconds))
        found[: len(near)] = near
    return found


def shortlist(found: list[Option], count: int) -> list[Option]:
    """The best of each codec and of each way to keep activations first: what their predictions have
    in common is wrong for all of a kind.

    Args:
        found: Options, the best first.
        count: How many to take.
    """
    first: dict[tuple[str, bool], Option] = {}
    for option in found:
        first.setdefault((option.plan.codec, option.plan.adaptive), option)
    ranked = [*first.values(), *(o for o in found if o not in first.values())]
    return ranked[:count]


def _divides(micro: int, samples: int) -> bool:
    return micro <= _MOST_ACCUMULATION and samples % micro == 0


def _curvatures(
    machine: Machine, network: Network, base: Curvature, samples: int
) -> list[Curvature]:
    """Every fraction and way to send factors; inversions as often as configured, or rarer where
    they would take more than a tenth of forward and backward pass.
    """
    ranks = machine.ranks
    fractions = [workers / ranks for workers in range(1, ranks + 1) if ranks % workers == 0]
    ways = {(base.local_factors, base.compression), (False, None), (False, 0.1), (True, None)}
    found = []
    for fraction in fractions:
        for local, compression in sorted(ways, key=str):
            kfac = replace(base, fraction=fraction, local_factors=local, compression=compression)
            found.append(_rarer(machine, network, kfac, samples))
    return list(dict.fromkeys([base, *found]))


def _rarer(machine: Machine, network: Network, kfac: Curvature, samples: int) -> Curvature:
    never = precondition(machine, network, replace(kfac, inverse_period=10**9), samples)
    for times in _PERIODS:
        candidate = replace(kfac, inverse_period=kfac.inverse_period * times)
        share = precondition(machine, network, candidate, samples)
        extra = share.busy + share.network - never.busy - never.network
        if extra <= _SHARE_OF_INVERSES * network.seconds(samples):
            return candidate
    return candidate
