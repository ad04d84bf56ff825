"""Scores against cases counted by hand and against a loop over pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from apps.climate.metrics import (
    Calibration,
    Confusion,
    Detection,
    calibration_error,
    confusion,
    detection_scores,
    scores,
)
from scadl_core.comm import World
from scadl_core.errors import ConfigError


def test_a_case_counted_by_hand() -> None:
    """Row 0 has area 1, row 1 area 0.5. One pixel is not labelled."""
    label_BHW = torch.tensor([[[0, 0, 1, 1], [1, 2, 2, -1]]])
    predicted_BHW = torch.tensor([[[0, 1, 1, 1], [0, 2, 1, 1]]])
    matrix_KK = confusion(predicted_BHW, label_BHW, torch.tensor([[[1.0], [0.5]]]), 3)
    assert matrix_KK.dtype is torch.float64
    assert matrix_KK.tolist() == [[1, 1, 0], [0.5, 2, 0], [0, 0.5, 0.5]]
    got = scores(matrix_KK, ["sea", "cyclone", "river"])
    assert got == pytest.approx(
        {
            "iou_sea": 1 / 2.5, "iou_cyclone": 2 / 4, "iou_river": 0.5,
            "precision_sea": 1 / 1.5, "precision_cyclone": 2 / 3.5, "precision_river": 1,
            "recall_sea": 1 / 2, "recall_cyclone": 2 / 2.5, "recall_river": 0.5,
            "f1_sea": 2 / 3.5, "f1_cyclone": 4 / 6, "f1_river": 1 / 1.5,
            "iou_mean": (1 / 2.5 + 2 / 4 + 0.5) / 3,
        }
    )  # fmt: skip


def test_a_class_without_anything_is_nan_and_not_in_the_mean() -> None:
    got = scores(torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), ["a", "b", "c"])
    assert all(math.isnan(got[f"{score}_c"]) for score in ("iou", "precision", "recall", "f1"))
    assert (got["iou_b"], got["precision_b"], got["f1_b"]) == (0, 0, 0)
    assert math.isnan(got["recall_b"])
    assert got["iou_mean"] == pytest.approx((3 / 4 + 0) / 2)


def test_batches_add_up_to_a_loop_over_pixels() -> None:
    rng = np.random.default_rng(0)
    label_BHW, predicted_BHW = rng.integers(-1, 4, (6, 5, 7)), rng.integers(0, 4, (6, 5, 7))
    area_BHW = rng.random((6, 5, 7)).astype(np.float32)
    expected_KK = np.zeros((4, 4))
    for b, h, w in np.ndindex(label_BHW.shape):
        if label_BHW[b, h, w] >= 0:
            expected_KK[label_BHW[b, h, w], predicted_BHW[b, h, w]] += area_BHW[b, h, w]
    metric = Confusion(4)
    for piece in (slice(0, 1), slice(1, 4), slice(4, 6)):
        metric.update(
            *(torch.from_numpy(field[piece]) for field in (predicted_BHW, label_BHW, area_BHW))
        )
    np.testing.assert_allclose(metric.compute().numpy(), expected_KK, rtol=1e-12)
    metric.reset()
    assert not metric.total.any()


def test_ranks_are_summed() -> None:
    ranks = torch.ones(2, 3, 3, dtype=torch.float64)
    assert Confusion(3)._reductions["total"](ranks).tolist() == [[2.0] * 3] * 3


def test_one_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.classes: expected at least two classes, got 1"):
        Confusion(1)


def test_objects_counted_by_hand() -> None:
    """Of class 1 one of two is found across the date line, of class 2 two false alarms."""
    label_HW = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 1], [0] * 8, [0, 0, 1, 1, 0, 0, -1, -1]])
    said_HW = torch.tensor([[1, 0, 2, 0, 0, 2, 0, 1], [0] * 8, [0, 0, 0, 0, 0, 0, 1, 1]])
    metric = Detection(3)
    metric.update(said_HW[None], label_HW[None], torch.ones(1, 3, 8), periodic=True)
    assert metric.compute().tolist() == [[0, 0, 0], [1, 2, 1], [0, 0, 2]]
    metric.update(said_HW[None], said_HW[None], torch.ones(1, 3, 8), periodic=False)
    assert metric.compute().tolist() == [[0, 0, 0], [4, 5, 4], [2, 2, 4]]
    got = detection_scores(metric.compute(), ["a", "b", "c"])
    assert got == {"pod_b": 4 / 5, "pod_c": 1, "far_b": 0, "far_c": 0.5}
    empty = detection_scores(torch.zeros(2, 3), ["a", "b"])
    assert all(math.isnan(value) for value in empty.values())


def test_calibration_counted_by_hand() -> None:
    """Of two pixels with probability 0.9 one is right; one with 0.62, of three areas, is right."""
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.62, 0.38], [0.2, 0.8]], dtype=torch.float64)
    logits_BKHW = p.log().T.reshape(1, 2, 4, 1)
    label_BHW, area_BHW = (
        torch.tensor([0, 1, 0, -1]).reshape(1, 4, 1),
        torch.tensor([1, 1, 3, 9.0]).reshape(1, 4, 1),
    )
    metric = Calibration(2)
    metric.update(logits_BKHW, label_BHW, area_BHW)
    expected = (abs(2 * 0.9 - 1) + abs(3 * 0.62 - 3)) / 5
    assert calibration_error(metric.compute()) == pytest.approx(expected, rel=1e-6)
    area_N, probability_N, true_N = metric.total[2].T  # of class 1
    assert area_N[[1, 5]].tolist() == [2, 3]
    assert probability_N[[1, 5]].tolist() == pytest.approx([0.2, 1.14], rel=1e-6)
    assert true_N[[1, 5]].tolist() == [1, 0]


def test_calibration_in_pieces_is_that_of_torchmetrics() -> None:
    rng = torch.Generator().manual_seed(0)
    logits_BKHW = 2 * torch.randn(6, 4, 5, 7, generator=rng)
    label_BHW = torch.randint(0, 4, (6, 5, 7), generator=rng)
    expected = multiclass_calibration_error(logits_BKHW.softmax(1), label_BHW, 4, n_bins=15)
    metric = Calibration(4)
    for piece in (slice(0, 1), slice(1, 4), slice(4, 6)):
        metric.update(logits_BKHW[piece], label_BHW[piece], torch.ones(6, 5, 7)[piece])
    assert calibration_error(metric.compute()) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_together_have_the_scores_of_one(
    size: int, run_ranks: Callable[..., list[Any]]
) -> None:
    """Of objects exactly, of probabilities to rounding; asked twice, as the figures do."""
    rng = torch.Generator().manual_seed(0)
    logits_BKHW = 2 * torch.randn(5, 3, 6, 8, generator=rng)
    label_BHW, area_BHW = torch.randint(-1, 3, (5, 6, 8), generator=rng), torch.rand(5, 6, 8)

    def score(part: slice) -> list[Any]:
        objects, calibration = Detection(3), Calibration(3)
        maps = logits_BKHW[part], label_BHW[part], area_BHW[part]
        objects.update(maps[0].argmax(1), *maps[1:], periodic=True)
        calibration.update(*maps)
        return [[it.compute().tolist(), it.compute().tolist()] for it in (objects, calibration)]

    def share() -> list[Any]:
        world = World.start()
        return score(slice(world.rank, None, world.size))

    objects, calibration = score(slice(None))
    for got in run_ranks(size, share):
        assert got[0] == objects
        np.testing.assert_allclose(got[1], calibration, rtol=1e-13, atol=1e-13)
