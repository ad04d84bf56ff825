"""Batches: in which order, on which rank, by which process, with which weights."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scadl_core.comm import World
from scadl_core.workflow.loaders import Loaders
from tests.apps.hep.made import everything, make, table, write


def test_a_shuffled_order_has_every_row_once_and_reads_in_turn(jetclass: Any) -> None:
    """In memory for a few chunks only: the same rows, each chunk decoded about once an epoch."""
    whole, streamed = jetclass(), jetclass(chunk_rows=20, cache_GiB=2e-4)
    assert not streamed.samples("train")._is_small
    samples = streamed.samples("train")
    order = samples.order(np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(len(samples)))
    again = samples.order(np.random.default_rng(0))
    np.testing.assert_array_equal(order, again)
    decoded: list[int] = []
    inner = streamed._read
    streamed._read = lambda chunk: decoded.append(chunk) or inner(chunk)  # type: ignore[method-assign]
    found = [samples.batch(order[start : start + 32]) for start in range(0, len(order), 32)]
    labels = np.concatenate([it["label_B"] for it in found])
    assert len(decoded) <= 1.5 * len(streamed.chunks)
    expected = collections.Counter(everything(whole, "train")["label_B"].tolist())
    assert collections.Counter(labels.tolist()) == expected
    mixed = np.mean([len(set(it["label_B"].tolist())) for it in found])
    assert mixed > 2, "batches are of several files"


def test_files_of_different_sizes_are_decoded_about_once(tmp_path: Path) -> None:
    """What long lanes have more than short ones does not wait until no chunk is in memory."""
    for number in range(24):
        write(tmp_path / f"{number:02}.root", **table(30 if number % 3 else 300, number))
    data = make(tmp_path, split={"val": 0.1, "test": 0.1})
    data.room_bytes = float(data.survey["nbytes"][0]) / 3
    samples = data.samples("train")
    order = samples.order(np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(len(samples)))
    decoded: list[int] = []
    inner = data._read
    data._read = lambda chunk: decoded.append(chunk) or inner(chunk)  # type: ignore[method-assign]
    for start in range(0, len(order), 16):
        samples.batch(order[start : start + 16])
    assert len(decoded) <= 1.5 * len(data.chunks)


def test_a_rank_reads_its_share_of_a_streamed_set(jetclass: Any) -> None:
    data = jetclass(chunk_rows=5, cache_GiB=5e-4)
    assert not data.samples("train")._is_small
    order = data.samples("train").order(np.random.default_rng(0))
    first = data.samples("train")._first_C
    chunk = np.searchsorted(first, order, side="right") - 1
    shares = [set(chunk[: len(chunk) // 2 // 16 * 16][rank::4].tolist()) for rank in range(4)]
    overlap = sum(len(a & b) for n, a in enumerate(shares) for b in shares[n + 1 :])
    assert overlap == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_give_the_same_whatever_workers_and_ranks(jetclass: Any, workers: int) -> None:
    data = jetclass()
    batches = []
    for rank in range(2):
        world = World(rank=rank, size=2)
        loader = Loaders(64, workers, 5, world).training(data.samples("train"))
        loader.batch_sampler.set_epoch(3)
        batches.append([it["weight_B"].numpy() for it in loader])
    alone = Loaders(64, 0, 5, World()).training(data.samples("train"))
    alone.batch_sampler.set_epoch(3)
    for whole, *parts in zip((it["weight_B"].numpy() for it in alone), *batches, strict=True):
        np.testing.assert_array_equal(whole[0::2], parts[0])
        np.testing.assert_array_equal(whole[1::2], parts[1])


def test_reweighting_makes_the_spectrum_of_each_class_flat(tmp_path: Path) -> None:
    columns = table(4000)
    columns["pt"] = np.random.default_rng(1).exponential(100, 4000)
    edges = [0, 50, 100, 150, 200, 1000]
    reweight = {"by": ["pt"], "bins": [edges], "most": 100}
    data = make(write(tmp_path / "a.root", **columns), reweight=reweight, monitor={"pt": "pt"})
    found = everything(data, "train")
    weight = found["weight_B"] * found["factor_B"]
    for label in (0, 1):
        of = found["label_B"] == label
        heights, _ = np.histogram(found["pt_B"][of], edges, weights=weight[of])
        np.testing.assert_allclose(heights, heights.mean(), rtol=1e-6)
    totals = [weight[found["label_B"] == label].sum() for label in (0, 1)]
    assert totals[0] == pytest.approx(totals[1])
    assert np.all(everything(make(tmp_path / "a.root"), "train")["factor_B"] == 1)
