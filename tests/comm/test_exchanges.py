"""Exchanges of gradients between real ranks, against what is to be averaged.

One launch a size, whose results all tests read: ranks cost seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from scadl_core.comm import World
from scadl_core.comm.compressed import Compressed
from scadl_core.comm.gradients import Bfloat16, GradientExchange
from scadl_core.comm.lossy import Lossy
from scadl_core.comm.memory import Memory
from scadl_core.comm.powersgd import PowerSGD
from scadl_core.comm.quantised import Quantised
from scadl_core.comm.shares import shares
from scadl_core.compress import Absolute, decode, encode
from scadl_core.errors import ConfigError

LOSSY: dict[str, Callable[[World], Lossy]] = {
    "compressed": lambda world: Compressed(world, bound=0.5),
    "quantised": Quantised,
    "powersgd": lambda world: PowerSGD(world, rank=2, start=2),
}
EVERY: dict[str, Callable[[World], GradientExchange]] = {**LOSSY, "bf16": Bfloat16}
EXACT: dict[str, Callable[[World], GradientExchange | None]] = {
    "ddp": lambda world: None,
    "off": GradientExchange,
    "lossless": lambda world: Compressed(world, bound=0.0),
}


class Trainee:
    """A network on this rank's own data, in several buckets, other ones after the first step."""

    def __init__(self, exchange: GradientExchange | None) -> None:
        torch.manual_seed(0)
        layers = (nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
        self.model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.005)
        self.exchange = exchange
        if exchange is not None:
            exchange.attach(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)

    def backward(self, number: int, factor: float = 1.0) -> float:
        generator = torch.Generator().manual_seed(100 * number + World.start().rank)
        x_BI = torch.randn(8, 12, generator=generator)
        self.optimizer.zero_grad()
        loss = (self.model(x_BI) - (x_BI[:, :3].sin() + x_BI[:, 3:6])).square().mean()
        (factor * loss).backward()
        return loss.item()

    def train(self, numbers: range) -> list[float]:
        losses = []
        for number in numbers:
            losses.append(self.backward(number))
            self.optimizer.step()
        return losses

    @property
    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    @property
    def gradient(self) -> Tensor:
        return torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None])


class Given(nn.Module):
    """Parameters whose gradients are what is given."""

    SHAPES = ((700,), (2, 5), (1,), (40, 50), (3, 700))

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(s, dtype=dtype) for s in self.SHAPES)

    def forward(self, gradients: list[Tensor]) -> Tensor:
        products = [(w * g).sum() for w, g in zip(self.weights, gradients, strict=True)]
        return torch.stack(products).sum()


def given_model(exchange: GradientExchange, dtype: torch.dtype = torch.float64) -> Any:
    model = DistributedDataParallel(Given(dtype), bucket_cap_mb=0.01)
    exchange.attach(model)
    return model


def averaged(model: Any, gradients: list[Tensor]) -> list[Tensor]:
    """What the exchange makes of each rank's own gradients."""
    model.zero_grad()
    model(gradients).backward()
    return [p.grad.clone() for p in model.parameters()]


def drawn(seed: int, rank: int, exponents: list[int]) -> list[Tensor]:
    """Gradients of one rank: of very different sizes, with heavy tails and zeros."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    found = []
    for shape, exponent in zip(Given.SHAPES, exponents, strict=True):
        normal = torch.randn(shape, generator=generator, dtype=torch.float64)
        kept = torch.rand(shape, generator=generator) < 0.8
        found.append(10.0**exponent * normal**3 * kept)
    return found


EXPONENTS = st.lists(st.integers(-12, 3), min_size=5, max_size=5)
STEPS = st.lists(EXPONENTS, min_size=2, max_size=4)


def running_sums(world: World) -> dict[str, Any]:
    """Checks the laws of error feedback at every step, on gathered values, so that a failure is one
    on every rank.
    """
    compressed, quantised = Compressed(world), Quantised(world)
    models = {id(exchange): given_model(exchange) for exchange in (compressed, quantised)}
    worst = {"compressed": 0.0, "quantised": 0.0}

    def follow(exchange: Lossy, seed: int, steps: list[list[int]], limit: Any) -> float:
        exchange.memory, most = Memory(), 0.0
        total = [torch.zeros(s, dtype=torch.float64) for s in Given.SHAPES]
        scale = [torch.zeros(s, dtype=torch.float64) for s in Given.SHAPES]
        for number, exponents in enumerate(steps):
            before = world.gather(errors(exchange))
            mine = drawn(97 * seed + number, world.rank, exponents)
            sent = averaged(models[id(exchange)], mine)
            true, left = world.gather(mine), world.gather(errors(exchange))
            for k in range(len(total)):
                ranks = [rank[k] for rank in true]
                total[k] += sent[k] - torch.stack(ranks).mean(0)
                scale[k] += sent[k].abs() + sum(r.abs() for r in ranks)
                unsent = torch.stack([rank[k] for rank in left]).mean(0)
                assert bool(((total[k] + unsent).abs() <= 1e-13 * scale[k]).all())
                bound = limit(k, ranks, [rank[k] for rank in before])
                most = max(most, float(total[k].abs().max()) / bound)
        return most

    @settings(max_examples=8, derandomize=True, database=None)
    @given(st.integers(0, 10**6), STEPS, st.sampled_from([0.01, 0.5, 1.0, 3.0]))
    def compressed_law(seed: int, steps: list[list[int]], bound: float) -> None:
        compressed.bound, squares = bound, {}

        def limit(k: int, ranks: list[Tensor], before: list[Tensor]) -> float:
            found = []
            for rank, gradient in enumerate(ranks):
                square = float(gradient.square().mean())
                old = squares.get((rank, k))
                squares[rank, k] = square if old is None else 0.9 * old + 0.1 * square
                found.append(bound * math.sqrt(squares[rank, k]))
            return sum(found) / len(found) + math.hypot(*found) / len(found) + 1e-30

        worst["compressed"] = max(worst["compressed"], follow(compressed, seed, steps, limit))

    @settings(max_examples=8, derandomize=True, database=None)
    @given(st.integers(0, 10**6), STEPS)
    def quantised_law(seed: int, steps: list[list[int]]) -> None:
        def limit(k: int, ranks: list[Tensor], before: list[Tensor]) -> float:
            told = [float((g + e).abs().max()) for g, e in zip(ranks, before, strict=True)]
            return max(told) / (2 * (127 // world.size)) + 1e-30

        worst["quantised"] = max(worst["quantised"], follow(quantised, seed, steps, limit))

    compressed_law()
    quantised_law()
    assert compressed.messages is not None
    return {"worst": worst, "overflows": compressed.messages.overflows}


def errors(exchange: Lossy) -> list[Tensor]:
    kept = exchange.memory.kept.get("error", {})
    return [
        kept.get(f"weights.{k}", torch.zeros(math.prod(s), dtype=torch.float64)).view(s)
        for k, s in enumerate(Given.SHAPES)
    ]


def not_finite(world: World) -> dict[str, Any]:
    """Of gradients of which the last rank has an infinity and a NaN."""
    found = {}
    for name, make in EVERY.items():
        exchange = make(world)
        model = given_model(exchange, torch.float32)
        for number in range(3):
            averaged(model, [g.float() for g in drawn(number, world.rank, [0] * 5)])
        before, bad = repr(exchange.state_dict()), drawn(9, world.rank, [0] * 5)
        if world.rank == world.size - 1:
            bad[0][3], bad[3][1, 2] = math.inf, math.nan
        seen = averaged(model, [g.float() for g in bad])
        after = repr(exchange.state_dict())
        later = averaged(model, [g.float() for g in drawn(4, world.rank, [0] * 5)])
        found[name] = (
            [bool(torch.isfinite(g).all()) for g in seen],
            before == after or name == "powersgd",  # whose count of steps goes on
            all(bool(torch.isfinite(g).all()) for g in later),
        )
    return found


def resumed(world: World) -> dict[str, Any]:
    """Six steps at once, and with a stop after three, which makes new buckets."""
    found = {}
    for name, make in LOSSY.items():
        whole = Trainee(make(world))
        whole.train(range(6))
        first = Trainee(make(world))
        first.train(range(3))
        second = Trainee(make(world))
        assert second.exchange is not None and first.exchange is not None
        second.model.load_state_dict(first.model.state_dict())
        second.optimizer.load_state_dict(first.optimizer.state_dict())
        again = make(world)
        again.load_state_dicts(world.gather(first.exchange.state_dict()))
        second.exchange.__dict__.update(memory=again.memory)
        if isinstance(again, PowerSGD) and isinstance(second.exchange, PowerSGD):
            second.exchange.state.iter = again._steps
        second.train(range(3, 6))
        found[name] = (whole.weights, second.weights)
    return found


def scaled(world: World) -> tuple[Tensor, Tensor]:
    """The gradients of the third step, without and with a loss scale from then on."""
    found = []
    for factor in (1.0, 1024.0):
        exchange = Compressed(world, bound=0.5)
        trainee = Trainee(exchange)
        for number in range(3):
            exchange.loss_scale = factor if number == 2 else 1.0
            trainee.backward(number, exchange.loss_scale)
        found.append(trainee.gradient / factor)
    return found[0], found[1]


def sizes(world: World) -> dict[str, float]:
    """Ratios of bytes, of Gaussian gradients of 2 MB."""
    found = {}
    for name, make in {**EVERY, "compressed": Compressed}.items():
        exchange = make(world)
        model = DistributedDataParallel(nn.Linear(512, 1024, bias=False))
        exchange.attach(model)
        generator = torch.Generator().manual_seed(world.rank)
        for _ in range(4):
            model.zero_grad()
            before = exchange.sent_bytes
            model(torch.randn(700, 512, generator=generator)).sin().sum().backward()
        found[name] = 4 * 512 * 1024 / (exchange.sent_bytes - before)
    return found


def broken(world: World) -> str:
    exchange = Quantised(world)
    trainee = Trainee(exchange)

    def fail(bucket: Any) -> Tensor:
        raise RuntimeError("the link is down")

    exchange.average = fail  # type: ignore[method-assign]
    try:
        trainee.backward(0)
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def everything() -> dict[str, Any]:
    torch.set_num_threads(1)
    world = World.start()
    found: dict[str, Any] = {"exact": {}, "losses": {}}
    for name, make in EXACT.items():
        trainee = Trainee(make(world))
        trainee.train(range(4))
        found["exact"][name] = trainee.weights
    for name, make in {"off": GradientExchange, **EVERY}.items():
        trainee = Trainee(make(world))
        losses = trainee.train(range(40))
        found["losses"][name] = sum(losses[-8:]) / 8
        found[f"weights {name}"] = trainee.weights
    for part in (running_sums, not_finite, resumed, scaled, sizes, broken):
        found[part.__name__] = part(world)
    return found


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest, run_ranks: Any) -> list[dict[str, Any]]:
    """What each rank found. The codec's kernels take seconds to load, behind a fork nothing."""
    for dtype in (torch.float32, torch.float64):
        decode(encode(torch.ones(40, dtype=dtype), Absolute(1.0), predictor="none"))
    found: list[dict[str, Any]] = run_ranks(request.param, everything, timeout=240)
    return found


Found = list[dict[str, Any]]


def test_off_and_lossless_are_plain_training_to_the_bit(ranks: Found) -> None:
    for rank in ranks:
        for name in ("off", "lossless"):
            assert torch.equal(rank["exact"][name], ranks[0]["exact"]["ddp"]), name


def test_all_ranks_have_the_same_weights(ranks: Found) -> None:
    for name in EVERY:
        for rank in ranks[1:]:
            assert torch.equal(rank[f"weights {name}"], ranks[0][f"weights {name}"]), name


def test_training_gets_as_far_as_plain_training(ranks: Found) -> None:
    losses = {n: sum(rank["losses"][n] for rank in ranks) / len(ranks) for n in ("off", *EVERY)}
    assert losses["off"] < 0.4
    for name in ("compressed", "quantised", "bf16"):
        assert losses[name] == pytest.approx(losses["off"], rel=0.1), name
    assert losses["powersgd"] < 2 * losses["off"]


def test_what_was_sent_is_what_was_to_be_sent_but_for_the_bound(ranks: Found) -> None:
    """The sums are checked at every step within; here, that the bounds are reached and held."""
    for rank in ranks:
        for name, worst in rank["running_sums"]["worst"].items():
            assert 0.1 < worst <= 1 + 1e-6, name
    assert sum(rank["running_sums"]["overflows"] for rank in ranks) > 0


def test_what_is_not_finite_is_so_on_all_ranks_and_remembered_on_none(ranks: Found) -> None:
    for rank in ranks:
        for name, (finite, unchanged, later) in rank["not_finite"].items():
            assert not finite[0] and not finite[3], name
            assert unchanged and later, name


def test_a_resumed_training_is_the_same_to_the_bit(ranks: Found) -> None:
    for rank in ranks:
        for name, (whole, second) in rank["resumed"].items():
            if name == "powersgd" and len(ranks) > 2:
                # The order in which a ring adds depends on where in a bucket a number lies.
                torch.testing.assert_close(whole, second)
            else:
                assert torch.equal(whole, second), name


def test_errors_follow_the_scale_of_the_loss(ranks: Found) -> None:
    for rank in ranks:
        torch.testing.assert_close(*rank["scaled"], rtol=1e-5, atol=1e-8)


def test_bytes(ranks: Found) -> None:
    for rank in ranks:
        assert rank["sizes"]["bf16"] == 2
        assert rank["sizes"]["quantised"] == pytest.approx(4, rel=0.001)
        assert rank["sizes"]["powersgd"] == pytest.approx(1024 * 512 / (2 * (1024 + 512)))
        assert rank["sizes"]["compressed"] > 10


def test_an_error_in_the_exchange_is_raised_by_the_backward_pass(ranks: Found) -> None:
    assert all("the link is down" in rank["broken"] for rank in ranks)


def test_on_other_ranks_the_same_is_left_to_send() -> None:
    def state(*values: float) -> dict[str, Any]:
        error_N = torch.tensor(values, dtype=torch.float32)
        kept = {"error": {"w": error_N}, "square": {"w": error_N[0].clone()}}
        return {"kept": kept, "scale": 2.0}

    memory = Memory()
    memory.load_state_dicts([state(1, 2), state(3, 6)], rank=2, size=4)
    assert memory.kept["error"]["w"].tolist() == [2, 4]
    assert float(memory.kept["square"]["w"]) == 2
    memory.rescale(4.0)
    assert memory.kept["error"]["w"].tolist() == [4, 8]
    assert float(memory.kept["square"]["w"]) == 8


@given(st.lists(st.integers(1, 5000), max_size=8), st.integers(1, 9))
def test_every_element_is_averaged_by_one_rank(sizes: list[int], count: int) -> None:
    numbers = [7 * k for k in range(len(sizes))]
    owners = [[0] * size for size in sizes]
    found = shares(sizes, numbers, count)
    for share in found:
        for piece in share:
            for element in range(piece.start, piece.stop):
                owners[piece.place][element] += 1
    assert len(found) == count
    assert all(owner == 1 for parameter in owners for owner in parameter)
    # Of another bucket, the same.
    alone = [shares([s], [n], count) for s, n in zip(sizes, numbers, strict=True)]
    for rank in range(count):
        cut = [(k, p.start, p.stop) for k in range(len(sizes)) for p in alone[k][rank]]
        assert cut == [tuple(piece) for piece in found[rank]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Compressed(World(), bound=-1), "comm.bound: expected a number of at least 0"),
        (lambda: Compressed(World(), momentum=1), r"comm.momentum: expected a number in \[0, 1\)"),
        (lambda: Compressed(World(), zstd=20), "comm.zstd: expected null or a level from 1 to 19"),
        (lambda: PowerSGD(World(), rank=0), "comm.rank: expected at least 1, got 0"),
        (lambda: PowerSGD(World(), start=1), "comm.start: expected at least 2"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(("size", "bits"), [(2, 8), (16, 8), (32, 16), (1000, 16)])
def test_sums_of_integers_fit(size: int, bits: int) -> None:
    exchange = Quantised(World(size=size))
    assert torch.iinfo(exchange.dtype).bits == bits
    assert exchange.levels >= 7 and size * exchange.levels <= torch.iinfo(exchange.dtype).max
