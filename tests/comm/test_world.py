"""Collectives at 1, 2 and 4 ranks, against what the same values give in one process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from scadl_core.comm import World
from scadl_core.comm.world import Traffic
from scadl_core.errors import DataError, LaunchError, RunError, ScadlError

Ranks = Callable[..., list[Any]]
SIZES = pytest.mark.parametrize("size", [1, 2, 4])


def raised(function: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(ScadlError) as caught:
        function()
    return type(caught.value).__name__, str(caught.value)


@SIZES
def test_values_reach_every_rank(size: int, run_ranks: Ranks) -> None:
    def exchange() -> dict[str, Any]:
        world = World.start()
        assert World.start() is world
        world.barrier()
        return {
            "rank": (world.rank, world.size, world.local_rank, world.local_size),
            "place": (world.is_first, world.node_rank, world.num_nodes, world.launcher),
            "gather": world.gather({"of": world.rank}),
            "broadcast": world.broadcast(["of", world.rank]),
            "any": [world.any(world.rank == n) for n in range(world.size + 1)],
            "first": world.first(lambda: f"read by {world.rank}"),
            "together": world.together(lambda: world.rank * 10),
        }

    for rank, got in enumerate(run_ranks(size, exchange)):
        assert got == {
            "rank": (rank, size, rank, size),
            "place": (rank == 0, 0, 1, "torchrun"),
            "gather": [{"of": other} for other in range(size)],
            "broadcast": ["of", 0],
            "any": [True] * size + [False],
            "first": "read by 0",
            "together": rank * 10,
        }


@SIZES
def test_a_mistake_on_one_rank_is_raised_on_all(size: int, run_ranks: Ranks) -> None:
    last = size - 1

    def fail() -> list[tuple[str, str]]:
        world = World.start()

        def broken_on_last() -> None:
            if world.rank == last:
                raise DataError(f"rank {world.rank} cannot read x.nc")

        def broken_on_all() -> None:
            raise RunError(f"rank {world.rank}")

        return [
            raised(lambda: world.together(broken_on_last)),
            raised(lambda: world.together(broken_on_all)),
            raised(lambda: world.first(broken_on_all)),
        ]

    expected = [
        ("DataError", f"rank {last} cannot read x.nc"),
        ("RunError", "rank 0"),
        ("RunError", "rank 0"),
    ]
    assert run_ranks(size, fail) == [expected] * size


def loss_of(sums: torch.Tensor) -> torch.Tensor:
    """A ratio, as of weighted losses, and a term that is not linear."""
    return sums[0] / sums[1] + sums[0].square() / 7


def sums_of(weight_N: torch.Tensor, data_BN: torch.Tensor) -> torch.Tensor:
    value_B = (data_BN @ weight_N).tanh()
    return torch.stack([value_B.sum(), value_B.exp().sum()])


@SIZES
def test_a_loss_of_global_sums_has_the_gradient_of_the_whole_batch(
    size: int, run_ranks: Ranks
) -> None:
    data_BN = torch.randn(4 * size, 3, generator=torch.Generator().manual_seed(0)).double()

    def gradients() -> tuple[list[float], list[float], float, int]:
        world = World.start()
        own_BN = data_BN[world.rank :: size]
        found = []
        for reduce in (world.global_sum, _torch_all_reduce):
            weight_N = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
            loss = loss_of(reduce(sums_of(weight_N, own_BN)))
            loss.backward()
            assert weight_N.grad is not None
            total_N = torch.tensor(world.gather(weight_N.grad.tolist())).double().sum(0)
            found.append((total_N / size).tolist())  # what data-parallel training averages
        return found[0], found[1], loss.item(), world.traffic.sent_bytes

    weight_N = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    loss = loss_of(sums_of(weight_N, data_BN))
    loss.backward()
    assert weight_N.grad is not None
    for ours, torchs, value, sent_bytes in run_ranks(size, gradients):
        assert value == pytest.approx(loss.item(), rel=1e-12)
        assert ours == pytest.approx(weight_N.grad.tolist(), rel=1e-6)
        assert ours == pytest.approx(torchs, rel=1e-12)
        assert sent_bytes == (2 * 8 if size > 1 else 0)


def _torch_all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    if not torch.distributed.is_initialized():
        return tensor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.distributed.nn.functional import all_reduce

        return all_reduce(tensor)


def test_the_argument_of_a_sum_stays_as_it_is(run_ranks: Ranks) -> None:
    def total() -> tuple[list[float], list[float]]:
        mine = torch.tensor([1.0, 2.0])
        return World.start().global_sum(mine).tolist(), mine.tolist()

    assert run_ranks(2, total) == [([2.0, 4.0], [1.0, 2.0])] * 2


def test_traffic_is_payload_bytes() -> None:
    traffic = Traffic()
    traffic.count(torch.zeros(3, 5, dtype=torch.float16))
    traffic.count(torch.zeros((), dtype=torch.float64))
    assert traffic.sent_bytes == 3 * 5 * 2 + 8


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPU affinity here")
def test_ranks_of_a_host_share_its_cores(run_ranks: Ranks) -> None:
    def threads() -> int:
        torch.set_num_threads(7)
        World.start()
        return torch.get_num_threads()

    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert run_ranks(2, threads, {"OMP_NUM_THREADS": None}) == [share] * 2
    assert run_ranks(2, threads, {"OMP_NUM_THREADS": "7"}) == [7] * 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPU affinity here")
def test_ranks_bound_to_cores_of_their_own_use_all_of_them(run_ranks: Ranks) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core")

    def threads() -> int:
        os.sched_setaffinity(0, {cores[int(os.environ["RANK"])]})
        World.start()
        return torch.get_num_threads()

    assert run_ranks(2, threads, {"OMP_NUM_THREADS": None}) == [1] * 2


def test_ranks_that_cannot_meet_say_where(
    monkeypatch: pytest.MonkeyPatch, run_ranks: Ranks
) -> None:
    def meet() -> tuple[str, str]:
        def refuse(*_: Any, **__: Any) -> None:
            raise RuntimeError("connection refused")

        monkeypatch.setattr(torch.distributed, "init_process_group", refuse)
        return raised(World.start)

    for kind, message in run_ranks(2, meet):
        assert kind == LaunchError.__name__
        assert "2 processes could not meet at 127.0.0.1:" in message
        assert message.endswith("can be reached from the others and that the port is free")


def test_a_collective_of_rank_0_alone_is_an_error_and_no_hang() -> None:
    world = World()
    for collective in (
        lambda: world.gather(1),
        lambda: world.gather_first(1),
        lambda: world.broadcast(1),
        lambda: world.any(True),
        lambda: world.global_sum(torch.ones(1)),
        lambda: world.first(lambda: 1),
    ):
        with pytest.raises(RuntimeError, match="by rank 0 alone"):
            world.first(collective)  # type: ignore[arg-type]
    assert world.first(lambda: World().gather(1)) == [1]  # another world is another matter
    assert world.gather(1) == [1]
