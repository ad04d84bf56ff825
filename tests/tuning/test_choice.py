"""The choice flips with the hardware as theory says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scadl_core.admm.steptime import Link
from scadl_core.tuning import Curvature, Machine, Network, Plan, predict
from scadl_core.tuning.choice import Option, options, plans, shortlist
from scadl_core.tuning.network import Block, Codec, Kept

# A network of 50 MB of gradients and large layers, on a GPU-like rank.
NETWORK = Network(
    shapes=((2048, 2048),) * 3, fixed=0.0, per_sample=1e-3, update=1e-3, flops=5e7, saved=2e6,
    kept=Kept(6.0, 5e-4), blocks=(Block(2048, 2048, 2048 * 2048, flops=2e7, nbytes=8e3),) * 3,
    codecs={"off": Codec(1.0, 0.0), "bf16": Codec(2.0, 0.002),
            "compressed 0.015": Codec(5.0, 0.009), "compressed 1": Codec(25.0, 0.5),
            "powersgd 1": Codec(300.0, 0.9)},
)  # fmt: skip
FAST, SLOW = Link(1e-6, 1e12), Link(1e-4, 1.25e7)
MACHINE = Machine(
    ranks=4, link=FAST, matmul=1e13, stream=5e11, factor=(1e-4, 1e-12), encode=2e10, decode=2e10,
    memory=1e12,
)  # fmt: skip
KFAC = Plan(kfac=Curvature(factor_period=5, inverse_period=10))


PLAIN = Plan()


def best(
    machine: Machine, base: Plan = PLAIN, error: float = 0.01, network: Network = NETWORK
) -> Plan:
    return options(machine, network, base, 32, error)[0].plan


def test_a_fast_link_wants_plain_gradients() -> None:
    assert best(MACHINE) == Plan()


def test_a_slow_link_wants_compression() -> None:
    slow = replace(MACHINE, link=SLOW)
    assert best(slow).codec == "compressed 0.015"
    assert best(slow, error=1.0).codec == "powersgd 1"


def test_a_slow_codec_flips_it_back() -> None:
    slow = replace(MACHINE, link=Link(1e-4, 2e9), encode=1e7, decode=1e7)
    assert best(slow).codec in ("off", "bf16")
    assert best(replace(slow, encode=1e12, decode=1e12)).codec == "compressed 0.015"


def test_nothing_beyond_the_error_is_chosen() -> None:
    slow = replace(MACHINE, link=SLOW)
    for error in (0.0, 0.005, 0.01, 1.0):
        assert all(o.cost.error <= error for o in options(slow, NETWORK, KFAC, 32, error))
    assert best(slow, error=0.0).codec == "off"


def test_tight_memory_shards_the_factors() -> None:
    # With dear gradients and memory enough, everybody preconditions everything.
    ample = replace(MACHINE, link=Link(1e-3, 5e7), matmul=1e15, factor=(1e-6, 1e-15))
    network = replace(NETWORK, kept=None)
    chosen = best(ample, KFAC, 0.0, network).kfac
    assert chosen is not None and chosen.fraction == 1.0
    whole = predict(ample, network, replace(KFAC, accumulation=8), 32).memory
    tight = replace(ample, memory=whole - 1)
    chosen = best(tight, KFAC, 0.0, network).kfac
    assert chosen is not None and chosen.fraction < 1.0


def test_dear_products_shard_the_preconditioning() -> None:
    chosen = best(replace(MACHINE, matmul=1e11), KFAC).kfac
    assert chosen is not None and chosen.fraction == 0.25


def test_a_slow_link_keeps_factors_where_they_are() -> None:
    slow = replace(MACHINE, link=SLOW)
    chosen = best(slow, KFAC, error=float("inf")).kfac
    assert chosen is not None and chosen.local_factors
    chosen = best(slow, KFAC, error=0.2).kfac
    assert chosen is not None and not chosen.local_factors and chosen.compression == 0.1


def test_tight_memory_accumulates_or_compresses_activations() -> None:
    alone = MACHINE.with_ranks(1)
    all_of_it = predict(alone, NETWORK, Plan(), 32).memory
    assert best(alone) == Plan()
    chosen = best(replace(alone, memory=all_of_it - 1))
    assert chosen.accumulation > 1 or chosen.adaptive
    # Where each pass has a price of its own, compression is the cheaper way.
    dear = replace(NETWORK, fixed=1.0)
    found = options(replace(alone, memory=all_of_it - 1), dear, Plan(), 32, 0.01)
    assert found[0].plan.adaptive and found[0].plan.accumulation == 1


def test_no_plan_fits_into_nothing() -> None:
    assert options(replace(MACHINE, memory=1.0), NETWORK, Plan(), 32, 0.01) == []


def test_rare_inversions_where_they_are_dear() -> None:
    periods = []
    for cubic in (1e-14, 1e-11, 1e-9):
        kfac = best(replace(MACHINE, factor=(1e-6, cubic)), KFAC).kfac
        assert kfac is not None
        periods.append(kfac.inverse_period)
    assert periods == sorted(periods) and periods[0] == 10 and periods[-1] == 100


def test_every_plan_is_different_and_the_configured_one_is_there() -> None:
    for base in (Plan(), KFAC, Plan(bucket=7.0, accumulation=3)):
        found = list(plans(MACHINE, NETWORK, base, 32))
        assert len(found) == len(set(found))
        assert base in found
    assert all(p.comm == "off" for p in plans(MACHINE.with_ranks(1), NETWORK, Plan(), 32))


def test_the_shortlist_has_one_of_each_kind_first() -> None:
    found = options(replace(MACHINE, link=SLOW), NETWORK, Plan(), 32, 1.0)
    kinds = {(o.plan.codec, o.plan.adaptive) for o in found}
    chosen: list[Option] = shortlist(found, len(kinds))
    assert {(o.plan.codec, o.plan.adaptive) for o in chosen} == kinds
    assert chosen[0] == found[0]


@pytest.mark.parametrize("value", [None, 0.1])
def test_overrides_name_what_differs(value: float | None) -> None:
    assert Plan().overrides(Plan(), 16) == []
    plan = Plan("compressed", 0.015, 5.0, 2, True, Curvature(0.5, compression=value))
    assert plan.overrides(Plan(), 16) == [
        "comm=compressed", "comm.bound=0.015", "solver.bucket=5",
        "trainer.accumulate_grad_batches=2", "loader.batch_size=8", "memory=adaptive",
        "optimizer=kfac", "++optimizer.fraction=0.5", "++optimizer.local_factors=false",
        f"++optimizer.compression={'null' if value is None else value}",
        "optimizer.factor_period=5", "optimizer.inverse_period=10",
    ]  # fmt: skip
    assert Plan().overrides(Plan("bf16"), 16) == ["comm=off"]
