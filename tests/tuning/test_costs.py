"""The cost of a step against sums done by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scadl_core.admm.steptime import Link
from scadl_core.tuning import Curvature, Machine, Network, Plan, predict
from scadl_core.tuning.costs import Share, buckets, exchange, largest_batch, memory, overlapped
from scadl_core.tuning.network import Block, Codec, Kept

MIB = 2**20
NETWORK = Network(
    shapes=((1024, 1024), (1024, 0)), fixed=0.01, per_sample=0.001, forward=0.4, update=0.005,
    state=2.0, flops=1e9, saved=1e6, kept=Kept(4.0, 0.0005),
    blocks=(Block(1024, 1024, 1024 * 1024),),
    codecs={"off": Codec(1.0, 0.0), "bf16": Codec(2.0, 0.001), "quantised": Codec(4.0, 0.02),
            "compressed 0.015": Codec(5.0, 0.009), "compressed 1": Codec(20.0, 0.5)},
)  # fmt: skip
MACHINE = Machine(
    ranks=2, link=Link(1e-3, 1e8), matmul=1e11, stream=1e12, factor=(1e-3, 1e-10), encode=1e9,
    decode=2e9, memory=1e9,
)  # fmt: skip


def test_alone_a_step_is_computing() -> None:
    cost = predict(MACHINE.with_ranks(1), NETWORK, Plan(), 10)
    assert cost.seconds == pytest.approx(0.01 + 0.01 + 0.005)
    assert (cost.sent, cost.exchange, cost.error) == (0, 0, 0)


def test_accumulated_micro_batches_repeat_what_is_fixed() -> None:
    cost = predict(MACHINE.with_ranks(1), NETWORK, Plan(accumulation=2), 10)
    assert cost.seconds == pytest.approx(2 * (0.01 + 0.005) + 0.005)


def test_compressed_activations_take_their_codec() -> None:
    cost = predict(MACHINE.with_ranks(1), NETWORK, Plan(adaptive=True), 10)
    assert cost.seconds == pytest.approx(0.025 + 10 * 0.0005)


def test_buckets_are_all_of_the_gradients() -> None:
    total = NETWORK.gradient_bytes
    assert total == 4 * (1024 * 1024 + 1024)
    assert buckets(NETWORK, Plan()) == [MIB, total - MIB]
    assert buckets(NETWORK, Plan(bucket=2.0)) == [2 * MIB, 2 * MIB, total - 4 * MIB]


def test_a_bucket_waits_for_its_gradients_and_for_the_one_before() -> None:
    # Forward 1 s, backward 2 s; each bucket is half of it and 3 s on the network.
    shares = [Share(0.0, 3.0, 1.0), Share(0.0, 3.0, 1.0)]
    assert overlapped(3.0, 1 / 3, shares) == pytest.approx(2 + 3 + 3)
    quick = [Share(0.0, 0.5, 1.0), Share(0.0, 0.5, 1.0)]
    assert overlapped(3.0, 1 / 3, quick) == pytest.approx(3.5)


def test_a_codec_delays_the_backward_pass() -> None:
    shares = [Share(1.0, 0.0, 1.0), Share(1.0, 0.0, 1.0)]
    assert overlapped(3.0, 1 / 3, shares) == pytest.approx(3 + 2)


def test_plain_messages_by_hand() -> None:
    size = NETWORK.gradient_bytes
    share = exchange(MACHINE, NETWORK, Plan(), size)
    assert share.network == pytest.approx(2 * 1e-3 + size / 1e8)  # 2 (P - 1)/P = 1
    assert share.sent == pytest.approx(size)


def test_compressed_messages_by_hand() -> None:
    plan, size = Plan("compressed", 1.0), 1e8
    share = exchange(MACHINE, NETWORK, plan, size)
    assert share.sent == pytest.approx(size / 20)
    assert share.network == pytest.approx(2 * (1e-3 + 0.5 * size / 20 / 1e8))
    codec = 1.5 * size / 1e9 + 2.5 * size / 2e9
    assert share.busy == pytest.approx(codec + 14 * size / 1e12)


def test_sent_bytes_of_a_step() -> None:
    plain = predict(MACHINE, NETWORK, Plan(), 10)
    assert plain.sent == pytest.approx(NETWORK.gradient_bytes)
    for plan, ratio in ((Plan("bf16"), 2), (Plan("quantised"), 4), (Plan("compressed", 1.0), 20)):
        assert plain.sent / predict(MACHINE, NETWORK, plan, 10).sent == pytest.approx(ratio)


def test_kfac_by_hand_on_one_rank() -> None:
    kfac = Curvature(factor_period=5, inverse_period=10)
    alone = MACHINE.with_ranks(1)
    cost = predict(alone, NETWORK, Plan(kfac=kfac), 10)
    inversion = 2 * (1e-3 + 1e-10 * 1024**3) / 10
    products = 2 * 1024 * 1024 * (1024 + 1024) / 1e11
    gram = 10 * 2 * 1024**2 / 1e11 / 5
    assert cost.kfac == pytest.approx(inversion + products + gram)


def test_fewer_workers_keep_less_and_send_gradients() -> None:
    machine = MACHINE.with_ranks(4)
    many, few = (
        predict(machine, NETWORK, Plan(kfac=Curvature(fraction=fraction)), 10)
        for fraction in (1.0, 0.25)
    )
    factors = 2 * 4 * 1024**2  # as squares of float32
    assert many.memory - few.memory == pytest.approx(0.75 * factors)
    assert few.sent - predict(machine, NETWORK, Plan(), 10).sent > 0


def test_memory_by_hand() -> None:
    size = NETWORK.gradient_bytes
    alone = MACHINE.with_ranks(1)
    assert memory(alone, NETWORK, Plan(), 10) == pytest.approx(4 * size + 1e7)
    assert memory(MACHINE, NETWORK, Plan(), 10) == pytest.approx(5 * size + 1e7)
    lossy = Plan("compressed", 1.0, accumulation=2, adaptive=True)
    assert memory(MACHINE, NETWORK, lossy, 10) == pytest.approx(6 * size + 5 * 1e6 / 4)


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    for plan in (Plan(), Plan(adaptive=True), Plan(accumulation=4)):
        most = largest_batch(MACHINE, NETWORK, plan)
        assert most is not None
        assert memory(MACHINE, NETWORK, plan, most * plan.accumulation) <= MACHINE.memory
        assert memory(MACHINE, NETWORK, plan, (most + 1) * plan.accumulation) > MACHINE.memory
    assert largest_batch(replace(MACHINE, memory=math.inf), NETWORK, Plan()) is None
    assert largest_batch(replace(MACHINE, memory=1.0), NETWORK, Plan()) == 0


@pytest.mark.parametrize(
    ("kfac", "error"),
    [
        (Curvature(), 0.0),
        (Curvature(compression=0.1), 1 / 9),
        (Curvature(local_factors=True), math.inf),
    ],
)
def test_errors_of_factors(kfac: Curvature, error: float) -> None:
    assert predict(MACHINE, NETWORK, Plan(kfac=kfac), 10).error == pytest.approx(error)


@given(st.sampled_from(list(NETWORK.codecs)), st.floats(1e6, 1e12), st.integers(1, 64))
def test_a_faster_link_is_never_slower(codec: str, bandwidth: float, ranks: int) -> None:
    name, _, value = codec.partition(" ")
    plan = Plan(name, float(value) if value else None)
    machine = replace(MACHINE, ranks=ranks, link=Link(1e-5, bandwidth))
    faster = replace(machine, link=Link(1e-5, 2 * bandwidth))
    before, after = (predict(m, NETWORK, plan, 10).seconds for m in (machine, faster))
    assert after <= before * (1 + 1e-12)
    assert after >= predict(MACHINE.with_ranks(1), NETWORK, Plan(), 10).seconds
