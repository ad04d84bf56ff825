"""Picks the fastest plan of a run: predicts all, tries a few, keeps the configured one in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig

from scadl_core.comm import World
from scadl_core.errors import ConfigError
from scadl_core.tuning import Cost, Machine, Network, Plan, predict
from scadl_core.tuning.choice import options, shortlist
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

    def or_faster(self, trial: Trial) -> Tried:
        """The same plan with another trial of it, where that was faster."""
        known = self.measured
        return self if known and known.seconds <= trial.seconds else replace(self, measured=trial)


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
    network, own = _anchored(bench, machine, base, steps)
    found = options(machine, network, base, bench.samples, error)
    if not found:
        raise _too_tight(machine, network, base, bench.samples)
    others = shortlist([option for option in found if option.plan != base], count)
    size = int(config.loader.batch_size) * base.accumulation
    configs = [compose(option.plan.overrides(base, size)) for option in others]
    first = [bench.measure(it, steps) for it in configs]
    # Other programs disturb for a while: of each plan the better of two rounds counts.
    again = [bench.measure(it, steps) for it in (config, *configs)]
    tried = [own, *(Tried(*it, trial) for it, trial in zip(others, first, strict=True))]
    tried = [it.or_faster(trial) for it, trial in zip(tried, again, strict=True)]
    fits = own.predicted.memory <= machine.memory and own.predicted.error <= error
    pick = world.broadcast(choose(tried if fits else tried[1:], base))
    return Tuning(base, tried, len(found), pick, pick.overrides(base, size))


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


def _anchored(bench: Bench, machine: Machine, base: Plan, steps: int) -> tuple[Network, Tried]:
    """The network, and the configured plan; corrected where its time is not what was predicted."""
    # Where a rank is a little faster it would decide otherwise: all take the first one's numbers.
    network = _with_codec(bench.world.broadcast(bench.network()), base)
    trial = bench.measure(bench.config, steps)
    cost = predict(machine, network, base, bench.samples)
    missing = trial.seconds - cost.seconds
    if abs(missing) > DRIFT * cost.seconds:
        network = corrected(network, missing, bench.samples)
        cost = predict(machine, network, base, bench.samples)
    return network, Tried(base, cost, trial)


def _too_tight(machine: Machine, network: Network, base: Plan, samples: int) -> ConfigError:
    ways = [replace(base, adaptive=adaptive, accumulation=8 * base.accumulation)
            for adaptive in (False, True)]  # fmt: skip
    least = min(predict(machine, network, plan, samples).memory for plan in ways)
    return ConfigError(
        f"no plan stays within {machine.memory / 2**20:.1f} MiB a rank; about "
        f"{least / 2**20:.1f} MiB are needed: raise --memory or take a smaller loader.batch_size"
    )


def _with_codec(network: Network, base: Plan) -> Network:
    """A bound of the user's own is taken for its nearest neighbour among those measured."""
    if base.codec in network.codecs:
        return network
    alike = {name: codec for name, codec in network.codecs.items() if name.startswith(base.comm)}
    nearest = min(alike, key=lambda name: abs(float(name.split()[1]) - (base.value or 0.0)))
    return replace(network, codecs={**network.codecs, base.codec: alike[nearest]})
