"""scadl tune APP, scadl plan APP: what a step costs, in which plan, here or on another machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from scadl_core.cli.arguments import Words, read_words
from scadl_core.comm import World
from scadl_core.config.compose import compose_run, parse, require
from scadl_core.errors import ConfigError, nearest
from scadl_core.files import write_text
from scadl_core.memory.budget import parse_budget
from scadl_core.record.plots import scaling
from scadl_core.record.report import readable_bytes
from scadl_core.tuning import Curvature, Machine, Network, Plan, predict
from scadl_core.tuning.costs import largest_batch
from scadl_core.tuning.presets import preset
from scadl_core.tuning.probe import probe
from scadl_core.tuning.simulate import METHODS, curves, table
from scadl_core.workflow.trials import Bench, device_of, plan_of
from scadl_core.workflow.tuner import Tuning, tune

_FLAGS: dict[str, Any] = {
    "error": 0.01,  # the largest error of a gradient that a plan may make
    "memory": None,  # that a rank may take, such as 6GiB
    "steps": 8,  # of each trial
    "plans": 4,  # to try
    "out": None,  # folder of what is written
}
_SIMULATED: dict[str, Any] = {"nodes": 16, "gpus_per_node": 4, "link": "slingshot", "gpu": "a100"}


@dataclass(frozen=True)
class Asked:
    """What was typed.

    Attributes:
        given: The app and its overrides.
        flags: ``--error``, ``--memory``, ``--steps``, ``--plans``, ``--out``.
        simulated: None, or the machine behind ``--simulate``.
        again: Whether the machine is measured again.
    """

    given: Words
    flags: dict[str, Any]
    simulated: dict[str, Any] | None
    again: bool

    def compose(self, more: Sequence[str] = ()) -> DictConfig:
        """The configuration; what a plan chooses takes the place of what was typed."""
        tuned = [o.key_or_group for o in parse(more)]
        parts = tuple(f"{key}." for key in tuned if "." not in key)
        typed = [(o.key_or_group, str(o.input_line)) for o in self.given.parsed]
        kept = [word for key, word in typed if key not in tuned and not key.startswith(parts)]
        config = compose_run(self.given.app, [*kept, *more], self.given.config_dir)
        require(config)
        return config


def read(verb: str, words: Sequence[str]) -> Asked:
    """Takes the words behind a verb apart.

    Args:
        verb: For messages.
        words: What was typed.

    Raises:
        ConfigError: An unknown flag, or a value that is none.
    """
    rest, flags, simulated, again = [], dict(_FLAGS), None, False
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--simulate":
            simulated = dict(_SIMULATED)
        elif word == "--again":
            again = True
        elif name.startswith("--") and name[2:] in _FLAGS:
            flags[name[2:]] = value = value if equals else next(left, "")
            if not value:
                raise ConfigError(f"{name} needs a value: {name}={_FLAGS[name[2:]] or '...'}")
        elif simulated is not None and name in _SIMULATED:
            simulated[name] = value
        elif name.startswith("--") and name not in ("--config-dir",):
            known = [*(f"--{flag}" for flag in _FLAGS), "--simulate", "--again", "--config-dir"]
            raise ConfigError(f"unknown flag {name!r}{nearest(name, known)}")
        else:
            rest.append(word)
    for name, kind in (("error", float), ("steps", int), ("plans", int)):
        flags[name] = _number(f"--{name}", flags[name], kind)
    if simulated is not None:
        for name in ("nodes", "gpus_per_node"):
            simulated[name] = _number(name, simulated[name], int)
    return Asked(read_words(verb, rest), flags, simulated, again)


def run_tune(words: Sequence[str], console: Console) -> None:
    """Picks a plan, prints the table, writes the configuration; with ``--simulate`` draws curves.

    Args:
        words: What follows the verb.
        console: Where to print.
    """
    asked = read("tune", words)
    config, world = asked.compose(), World.start()
    if asked.simulated is not None:
        _simulate(asked, config, world, console)
        return
    machine = _machine(asked, config, world)
    found = tune(
        asked.compose, machine, world, count=asked.flags["plans"], steps=asked.flags["steps"],
        error=asked.flags["error"],
    )  # fmt: skip
    if not world.is_first:
        return
    console.print(_table(found))
    if not found.overrides:
        console.print("the configured plan is the fastest that was found: nothing to change")
        return
    folder = Path(asked.flags["out"] or f"tuned/{asked.given.app.name}").expanduser()
    path = folder / "experiment" / "tuned.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page(found))
    console.print(f"the same by hand: {' '.join(found.overrides)}")
    console.print(f"written: {path}; scadl train {asked.given.app.name} --config-dir {folder} "
                  "experiment=tuned", soft_wrap=True)  # fmt: skip


def run_plan(words: Sequence[str], console: Console) -> None:
    """Prints what a step costs, with and without each power, without training.

    Args:
        words: What follows the verb.
        console: Where to print.
    """
    asked = read("plan", words)
    config, world = asked.compose(), World.start()
    machine = _machine(asked, config, world)
    base, bench = plan_of(config), Bench(config, world)
    network = world.broadcast(bench.network())
    if asked.simulated is not None:
        network = network.on(machine)
    if world.is_first:
        console.print(_costs(machine, network, powers(base, network), bench.samples))


def powers(base: Plan, network: Network) -> dict[str, Plan]:
    """A configured plan, and the same with each power.

    Args:
        base: As configured.
        network: Whose codecs and layers decide what there is.
    """
    kfac = base.kfac or Curvature()
    found = {
        "as configured": base,
        "comm=bf16": replace(base, comm="bf16", value=None),
        "comm=compressed comm.bound=0.015": replace(base, comm="compressed", value=0.015),
        "comm=compressed": replace(base, comm="compressed", value=1.0),
        "memory=adaptive": replace(base, adaptive=True),
        "optimizer=kfac": replace(base, kfac=kfac),
        "all three": replace(base, comm="compressed", value=1.0, adaptive=True, kfac=kfac),
    }
    if network.kept is None:
        del found["memory=adaptive"]
    return {name: plan for name, plan in found.items() if name == "as configured" or plan != base}


def page(found: Tuning) -> str:
    """The pick as a page of the group ``experiment``: an ordinary Hydra override."""
    groups: list[Any] = []
    values: dict[str, Any] = {}
    for override in parse(found.overrides):
        key, value = override.key_or_group, override.value()
        if "." not in key:
            groups.append({f"override /{key}": value})
            continue
        part, name = key.split(".")
        values.setdefault(part, {})[name] = value
    body = yaml.safe_dump({"defaults": groups}, sort_keys=False) if groups else ""
    body += yaml.safe_dump(values, sort_keys=False) if values else ""
    return f"# @package _global_\n# Written by scadl tune: {found.pick}\n{body}"


def _machine(asked: Asked, config: DictConfig, world: World) -> Machine:
    if asked.simulated is not None:
        machine = preset(**asked.simulated)
    else:
        machine = probe(world, device_of(config, world), asked.again)
    budget = parse_budget(asked.flags["memory"], device_of(config, world))
    return machine if budget is None else replace(machine, memory=float(budget))


def _simulate(asked: Asked, config: DictConfig, world: World, console: Console) -> None:
    machine, bench = _machine(asked, config, world), Bench(config, world)
    network = world.broadcast(bench.network()).on(machine)
    points = list(curves(machine, network, bench.samples, METHODS))
    if not world.is_first:
        return
    words = " ".join(f"{name}={value}" for name, value in (asked.simulated or {}).items())
    shown = Table("method", "ranks", "step ms", "samples/s", "efficiency", "sent", "memory",
                  title=f"predicted: {words}", title_justify="left")  # fmt: skip
    for point in points:
        shown.add_row(point.method, str(point.ranks), f"{1e3 * point.seconds:.3f}",
                      f"{point.throughput:.4g}", f"{point.efficiency:.3f}",
                      readable_bytes(point.sent), _bytes(point.memory))  # fmt: skip
    console.print(shown)
    folder = Path(asked.flags["out"] or f"tuned/{asked.given.app.name}").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(",".join(row) + "\n" for row in table(points))
    write_text(folder / "scaling.csv", lines)
    scaling([(p.method, p.ranks, p.throughput) for p in points], folder / "scaling.png")
    console.print(f"written: {folder / 'scaling.csv'}, {folder / 'scaling.png'}")


def _costs(machine: Machine, network: Network, plans: dict[str, Plan], samples: int) -> Table:
    shown = Table("power", "step ms", "compute", "exchange", "K-FAC", "sent", "memory",
                  "largest batch a rank", "gradient error", title_justify="left",
                  title=f"predicted, {machine.ranks} ranks, {samples} samples a rank")  # fmt: skip
    for name, plan in plans.items():
        cost = predict(machine, network, plan, samples)
        most = largest_batch(machine, network, plan)
        parts = (cost.seconds, cost.compute, cost.exchange, cost.kfac)
        shown.add_row(
            name, *(f"{1e3 * part:.1f}" for part in parts), readable_bytes(cost.sent),
            readable_bytes(cost.memory), "-" if most is None else str(most), f"{cost.error:.1%}",
        )  # fmt: skip
    return shown


def _table(found: Tuning) -> Table:
    title = f"{found.considered} admissible plans; those that were tried"
    shown = Table("plan", "predicted ms", "measured ms", "memory", "sent a step", "gradient error",
                  title=title, title_justify="left")  # fmt: skip
    for it in found.tried:
        mark = " <- pick" if it.plan == found.pick else ""
        measured = "-" if it.measured is None else f"{1e3 * it.measured.seconds:.1f}"
        sent = 0.0 if it.measured is None else it.measured.sent
        shown.add_row(
            f"{it.plan}{mark}", f"{1e3 * it.predicted.seconds:.1f}", measured,
            readable_bytes(it.predicted.memory), readable_bytes(sent),
            f"{it.predicted.error:.2%}",
        )  # fmt: skip
    return shown


def _bytes(value: float) -> str:
    return "-" if math.isnan(value) else readable_bytes(value)


def _number(name: str, value: Any, kind: type[float] | type[int]) -> Any:
    try:
        found = kind(value)
    except (TypeError, ValueError):
        found = kind(0)
    if not found > 0:
        raise ConfigError(f"{name}: expected a number above 0, got {value!r}")
    return found
