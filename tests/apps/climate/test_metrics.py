"""Scores against cases counted by hand and against a loop over pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from apps.climate.metrics import Confusion, confusion, scores
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
    assert not metric.area_KK.any()


def test_ranks_are_summed() -> None:
    ranks = torch.ones(2, 3, 3, dtype=torch.float64)
    assert Confusion(3)._reductions["area_KK"](ranks).tolist() == [[2.0] * 3] * 3


def test_one_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.classes: expected at least two classes, got 1"):
        Confusion(1)
