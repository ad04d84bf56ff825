"""Which sample is read when and by whom, exhaustively for small numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError
from scadl_core.workflow.loaders import Draw, Drawn, Loaders, ShardedBatches

CASES = [
    (samples, batch, size)
    for size in (1, 2, 4)
    for samples in range(1, 21)
    for batch in range(size, 9)
]


class Numbered:
    """Samples that say who they are and what they drew."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def read(self, index: int, rng: np.random.Generator | None) -> dict[str, Any]:
        return {"index": index, "drawn": -1.0 if rng is None else rng.random()}


def batches(
    samples: int, batch: int, rank: int, size: int, seed: int | None, epoch: int = 0
) -> list[list[Draw]]:
    sharded = ShardedBatches(samples, batch, World(rank, size), seed)
    sharded.set_epoch(epoch)
    found = list(sharded)
    assert len(found) == len(sharded)
    return found


@pytest.mark.parametrize("size", [1, 2, 4])
def test_evaluation_reads_every_sample_once(size: int) -> None:
    for samples, batch, _ in (case for case in CASES if case[2] == size):
        shares = [batches(samples, batch, rank, size, None) for rank in range(size)]
        read = [draw for share in shares for part in share for draw in part]
        assert sorted(read) == [Draw(0, n) for n in range(samples)], (samples, batch, size)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_common_is_the_number_of_batches_that_all_ranks_have(size: int) -> None:
    for samples, batch, _ in (case for case in CASES if case[2] == size):
        for seed in (0, None):
            if seed is not None and samples < size:
                continue  # refused, see below
            ranks = [
                ShardedBatches(samples, batch, World(rank, size), seed) for rank in range(size)
            ]
            lengths = [len(list(r)) for r in ranks]
            assert {r.common for r in ranks} == {min(lengths)}, (samples, batch, size, seed)
            if seed is not None:
                assert len(set(lengths)) == 1  # else a rank would wait for ever


@pytest.mark.parametrize("size", [2, 4])
def test_a_training_batch_does_not_depend_on_the_number_of_ranks(size: int) -> None:
    for samples, batch, _ in (c for c in CASES if c[2] == size and c[0] >= size):
        for epoch in range(2):
            whole = batches(samples, batch, 0, 1, 3, epoch)
            shares = [batches(samples, batch, rank, size, 3, epoch) for rank in range(size)]
            assert len(whole) == max(1, samples // batch)
            for step, expected in enumerate(whole):
                parts = [share[step] for share in shares]
                assert all(parts), "every rank has samples in every step"
                assert sorted(draw for part in parts for draw in part) == sorted(expected)


def test_training_orders_are_permutations_of_seed_and_epoch() -> None:
    orders = {
        (seed, epoch): [draw.sample for b in batches(20, 4, 0, 1, seed, epoch) for draw in b]
        for seed in range(3)
        for epoch in range(3)
    }
    assert all(sorted(order) == list(range(20)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 9


def test_a_last_smaller_batch_is_left_out_of_training() -> None:
    assert [len(b) for b in batches(11, 4, 0, 1, 0)] == [4, 4]
    assert [len(b) for b in batches(11, 4, 0, 1, None)] == [4, 4, 3]
    assert [len(b) for b in batches(3, 4, 0, 1, 0)] == [3]  # else there would be none


@pytest.mark.parametrize("size", [1, 2, 4])
def test_going_on_inside_an_epoch_is_its_tail(size: int) -> None:
    for samples, batch, _ in (c for c in CASES if c[2] == size and c[0] >= size):
        for rank in range(size):
            full = [batches(samples, batch, rank, size, 1, epoch) for epoch in (2, 3)]
            for done in range(len(full[0]) + 1):
                sharded = ShardedBatches(samples, batch, World(rank, size), 1)
                sharded.start_at(2, done)
                assert list(sharded) == full[0][done:]
                sharded.set_epoch(3)
                assert list(sharded) == full[1]


def test_augmentation_is_a_function_of_seed_epoch_and_sample() -> None:
    def drawn(seed: int | None, *where: int) -> float:
        return float(Drawn(Numbered(9), seed)[Draw(*where)]["drawn"])

    assert drawn(0, 1, 2) == drawn(0, 1, 2)
    assert len({drawn(s, e, i) for s in range(2) for e in range(3) for i in range(4)}) == 24
    assert drawn(None, 1, 2) == -1.0


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_give_stacked_batches(workers: int) -> None:
    loaders = Loaders(batch_size=4, workers=workers, seed=0, world=World())
    training = list(loaders.training(Numbered(10)))
    expected = [[draw.sample for draw in b] for b in batches(10, 4, 0, 1, 0)]
    assert [b["index"].tolist() for b in training] == expected
    evaluation = torch.cat([b["index"] for b in loaders.evaluation(Numbered(10))])
    assert evaluation.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("batch_size", "workers", "samples", "message"),
    [
        (3, 0, 9, "loader.batch_size: expected at least one sample a rank (4 ranks), got 3"),
        (4, -1, 9, "loader.workers: expected 0 or more, got -1"),
        (
            4,
            0,
            3,
            "the training split has 3 samples for 4 ranks; start fewer ranks or widen data.split",
        ),
    ],
)
def test_refusals(batch_size: int, workers: int, samples: int, message: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        Loaders(batch_size, workers, 0, World(0, 4)).training(Numbered(samples))
    assert str(caught.value) == message


class Together(Numbered):
    """Samples that are read a batch at a time, in an order of their own: even ones first."""

    def order(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        number = rng.permutation(self.count)
        return np.concatenate([number[number % 2 == 0], number[number % 2 == 1]])

    def batch(self, indices: list[int], key: int | None) -> dict[str, np.ndarray[Any, Any]]:
        return {"index": np.array(indices), "together": np.full(len(indices), len(indices))}


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_are_read_together_keep_their_own_order(workers: int) -> None:
    loaders = Loaders(4, workers, 3, World())
    training = loaders.training(Together(10))
    found = torch.cat([batch["index"] for batch in training])
    assert len(set(found.tolist())) == len(found) == 8
    assert (found[:5] % 2 == 0).all()
    assert (found[5:] % 2 == 1).all()
    evaluation = [list(loaders.evaluation(Together(10))) for _ in range(2)]
    assert [batch["together"][0].item() for batch in evaluation[0]] == [4, 4, 2]
    read = [torch.cat([batch["index"] for batch in every]).tolist() for every in evaluation]
    assert read[0] == read[1]
    assert sorted(read[0]) == list(range(10))


class Whole(Numbered):
    """Samples that make whole batches."""

    def batch(self, indices: list[int], key: int | None) -> dict[str, Any]:
        return {"indices": indices, "key": key}


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_may_make_whole_batches(workers: int) -> None:
    """With a key for what they draw that is the epoch's, and none in evaluations."""
    loaders = Loaders(4, workers, seed=3, world=World())
    training, keys = loaders.training(Whole(8)), []
    for epoch in (0, 1, 0):
        training.batch_sampler.set_epoch(epoch)
        found = list(training)
        assert sorted(index for batch in found for index in batch["indices"]) == list(range(8))
        assert len({batch["key"] for batch in found}) == 1
        keys.append(found[0]["key"])
    assert keys[0] == keys[2] != keys[1]
    evaluated = list(loaders.evaluation(Whole(6)))
    assert evaluated == [{"indices": [0, 1, 2, 3], "key": None}, {"indices": [4, 5], "key": None}]


def test_an_evaluation_without_a_sample_for_each_rank_is_refused() -> None:
    loaders = Loaders(4, 0, 0, World(1, 4))
    with pytest.raises(DataError, match="evaluated has 3 samples for 4 ranks; start fewer ranks"):
        loaders.evaluation(Numbered(3))
    assert len(loaders.evaluation(Numbered(4))) == 1
