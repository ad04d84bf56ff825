"""The pick is the fastest that was measured, or what was configured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from scadl_core.errors import ConfigError
from scadl_core.tuning import Cost, Curvature, Network, Plan
from scadl_core.workflow.trials import Clock, Trial, plan_of
from scadl_core.workflow.tuner import Tried, choose, corrected

COST = Cost(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
OTHER = Plan("bf16")


def tried(plan: Plan, seconds: float | None) -> Tried:
    return Tried(plan, COST, None if seconds is None else Trial(seconds, 0.0))


@pytest.mark.parametrize(
    ("base", "other", "pick"), [(1.0, 0.9, OTHER), (1.0, 0.99, Plan()), (1.0, 1.2, Plan())]
)
def test_the_configured_plan_stays_in_doubt(base: float, other: float, pick: Plan) -> None:
    assert choose([tried(Plan(), base), tried(OTHER, other)], Plan()) == pick


def test_a_configured_plan_that_does_not_fit_is_not_picked() -> None:
    assert choose([tried(OTHER, 9.0), tried(Plan("quantised"), None)], Plan()) == OTHER


def test_what_a_step_takes_besides_is_added() -> None:
    network = Network(shapes=((10, 10),), fixed=0.1, per_sample=0.01, update=0.02)
    more = corrected(network, 0.3, 10)
    assert more.update == pytest.approx(0.32) and more.seconds(10) == network.seconds(10)
    less = corrected(network, -0.1, 10)
    assert less.seconds(10) == pytest.approx(0.1)


def test_a_clock_counts_optimizer_steps() -> None:
    clock = Clock()
    for step in (0, 1, 1, 2, 2, 3):  # two micro-batches a step
        clock.on_train_batch_end(SimpleNamespace(global_step=step))
    assert len(clock.ends) == 3
    clock.ends = [0.0, 5.0, 6.0, 7.5, 8.5]
    assert clock.median(2) == 1.0


def config(**parts: Any) -> Any:
    whole = {
        "solver": {"_target_": "scadl_core.workflow.gradient.GradientSolver", "bucket": 25},
        "trainer": {"accumulate_grad_batches": 1}, "memory": {}, "comm": {},
        "optimizer": {"_target_": "torch.optim.AdamW"},
    }  # fmt: skip
    return OmegaConf.create({**whole, **parts})


def test_plans_of_configurations() -> None:
    assert plan_of(config()) == Plan()
    compressed = {"_target_": "scadl_core.comm.compressed.Compressed", "bound": 0.5}
    powersgd = {"_target_": "scadl_core.comm.powersgd.PowerSGD", "rank": 2}
    assert plan_of(config(comm=compressed)) == Plan("compressed", 0.5)
    assert plan_of(config(comm=powersgd)) == Plan("powersgd", 2.0)
    bf16 = {"_target_": "scadl_core.comm.gradients.Bfloat16"}
    adaptive = {"_target_": "scadl_core.workflow.activations.ActivationMemory"}
    kfac = {"_target_": "scadl_core.optim.KFAC", "factor_period": 3, "lr": 0.1}
    found = plan_of(config(comm=bf16, memory=adaptive, optimizer=kfac))
    assert found == Plan("bf16", adaptive=True, kfac=Curvature(factor_period=3))
    with pytest.raises(ConfigError, match="solver=gradient"):
        plan_of(config(solver={"_target_": "scadl_core.workflow.admm.AdmmSolver"}))
