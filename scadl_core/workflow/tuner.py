"""Picks the fastest plan of a run: predicts all, tries a few, keeps the configured one in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig

from scadl_core.comm import World
from scadl_core.errors import ConfigError
from scadl_core.tuning import Cost, Machine, Network, Plan, predict
from scadl_core.tuning.choice import Option, options, shortlist
from scadl_core.workflow.trials import Bench, Trial, plan_of

DRIFT = 0.25  # of the configured plan's measured time from its prediction: the network is corrected
WORTH = 0.02  # a pick that is not faster by more is none


@dataclass(frozen=True)
class Tried:
    """A plan, predicted and measured.

    Attributes:
        plan: The plan.
        predicted: Its cost.
        measured: None where it was not tried.
    """

    plan: Plan
    predicted: Cost
    measured: Trial | None = None


@dataclass(frozen=True)
class Tuning:
    """What a tuning found.

    Attributes:
        base: The configured plan.
        tried: The plans that were measured, the configured one first.
        considered: How many were admissible.
        pick: The fastest, or the configured one.
        overrides: That make the pick out of the configuration; none for the configured plan.
    """

    base: Plan
    tried: list[Tried]
    considered: int
    pick: Plan
    overrides: list[str]


def tune(
    compose: Callable[[Sequence[str]], DictConfig], machine: Machine, world: World,
    *, count: int = 4, steps: int = 8, error: float = 0.01,
) -> Tuning:  # fmt: skip
    """Picks a plan; every rank calls it.

    Args:
        compose: The configuration of the run with further overrides.
        machine: What the probe measured, with the memory that may be taken.
        world: The processes of the run.
        count: Plans to try beside the configured one.
        steps: Of each trial.
        error: The largest error of a gradient, relative to its norm.

    Raises:
        ConfigError: No plan stays within the memory.
    """
    config = compose([])
    base, bench = plan_of(config), Bench(config, world)
    # Where a rank is a little faster it would decide otherwise: all take the first one's numbers.
    network = world.broadcast(bench.network())
    network = _with_codec(network, base)
    own = Tried(base, predict(machine, network, base, bench.samples), bench.measure(config, steps))
    assert own.measured is not None
    own_seconds = world.broadcast(own.measured.seconds)
    if abs(own_seconds / own.predicted.seconds - 1) > DRIFT:
        network = corrected(network, own_seconds - own.predicted.seconds, bench.samples)
        own = replace(own, predicted=predict(machine, network, base, bench.samples))
    found = options(machine, network, base, bench.samples, error)
    if not found:
        least = min(predict(machine, network, p, bench.samples).memory for p in _smallest(base))
        raise ConfigError(
            f"no plan stays within {machine.memory / 2**30:.2f} GiB a rank; about "
            f"{least / 2**30:.2f} GiB are needed: raise memory= or take a smaller loader.batch_size"
        )
    others = shortlist([option for option in found if option.plan != base], count)
    tried = [own, *(_try(bench, compose, option, base, steps) for option in others)]
    fits = own.predicted.memory <= machine.memory and own.predicted.error <= error
    best = choose(tried if fits else tried[1:], base)
    pick = world.broadcast(best)
    batch_size = int(config.loader.batch_size) * base.accumulation
    return Tuning(base, tried, len(found), pick, pick.overrides(base, batch_size))


def choose(tried: Sequence[Tried], base: Plan) -> Plan:
    """The plan that was measured to be the fastest; the configured one unless another is faster by
    more than 2 %.

    Args:
        tried: Measured plans.
        base: The configured one.
    """
    seconds = {it.plan: it.measured.seconds for it in tried if it.measured is not None}
    best = min(seconds, key=lambda plan: seconds[plan])
    if base in seconds and seconds[best] > (1 - WORTH) * seconds[base]:
        return base
    return best


def corrected(network: Network, missing: float, samples: int) -> Network:
    """The network with what a step takes besides: reading, logging, callbacks.

    Args:
        network: As it was measured by itself.
        missing: Seconds of a step that it did not tell; negative where it told too many.
        samples: Of a step on one rank.
    """
    if missing >= 0:
        return replace(network, update=network.update + missing)
    compute = network.seconds(samples)
    scale = max(0.1, 1 + missing / compute)
    return replace(network, fixed=network.fixed * scale, per_sample=network.per_sample * scale)


def _with_codec(network: Network, base: Plan) -> Network:
    """A bound of the user's own is taken for its nearest neighbour among those measured."""
    if base.codec in network.codecs:
        return network
    alike = {name: codec for name, codec in network.codecs.items() if name.startswith(base.comm)}
    nearest = min(alike, key=lambda name: abs(float(name.split()[1]) - (base.value or 0.0)))
    return replace(network, codecs={**network.codecs, base.codec: alike[nearest]})


def _smallest(base: Plan) -> list[Plan]:
    return [replace(base, adaptive=adaptive, accumulation=8 * base.accumulation)
            for adaptive in (False, True)]  # fmt: skip


def _try(
    bench: Bench, compose: Callable[[Sequence[str]], DictConfig], option: Option, base: Plan,
    steps: int,
) -> Tried:  # fmt: skip
    size = int(bench.config.loader.batch_size) * base.accumulation
    config = compose(option.plan.overrides(base, size))
    return Tried(option.plan, option.cost, bench.measure(config, steps))
