"""Scores against torchmetrics'."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics import functional as peers

from apps.graphs.metrics import confusion, probabilities, reliability, roc_auc, scores

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("classes", [2, 5])
def test_of_classes(classes: int) -> None:
    said = probabilities("classes", RNG.normal(size=(300, classes)))
    label = RNG.integers(0, classes, 300)
    found = scores("classes", said, label, [str(it) for it in range(classes)])
    inputs = torch.tensor(said), torch.tensor(label)
    expected = {
        "accuracy": peers.classification.multiclass_accuracy(*inputs, classes, average="micro"),
        "accuracy_balanced": peers.classification.multiclass_accuracy(*inputs, classes),
        "f1_macro": peers.classification.multiclass_f1_score(*inputs, classes),
        "ece": peers.classification.multiclass_calibration_error(*inputs, classes, n_bins=10),
    }
    if classes == 2:
        expected["roc_auc"] = peers.classification.binary_auroc(inputs[0][:, 1], inputs[1])
    assert found == pytest.approx({it: float(value) for it, value in expected.items()}, abs=1e-6)
    matrix = peers.classification.multiclass_confusion_matrix(*inputs, classes)
    np.testing.assert_array_equal(confusion(said, label), matrix)
    assert reliability(said, label)[0].sum() == 300


def test_of_several_labels_some_unknown() -> None:
    said, label = RNG.random((200, 3)), RNG.integers(0, 2, (200, 3)).astype(float)
    found = scores("multilabel", said, label, "abc")
    inputs = torch.tensor(said), torch.tensor(label).long()
    of = peers.classification
    assert found["f1_micro"] == pytest.approx(
        float(of.multilabel_f1_score(*inputs, 3, average="micro"))
    )
    assert found["f1_macro"] == pytest.approx(float(of.multilabel_f1_score(*inputs, 3)))
    assert found["roc_auc"] == pytest.approx(float(of.multilabel_auroc(*inputs, 3)))
    assert found["accuracy"] == pytest.approx(float(of.multilabel_accuracy(*inputs, 3)))
    more_said, more = (
        np.concatenate([said, said]),
        np.concatenate([label, np.full((200, 3), np.nan)]),
    )
    assert scores("multilabel", more_said, more, "abc") == pytest.approx(found)


def test_of_numbers() -> None:
    label = RNG.normal(size=(50, 2))
    said = label + RNG.normal(size=(50, 2))
    found = scores("regression", said, label, "ab")
    assert found["r2"] == pytest.approx(
        float(peers.r2_score(torch.tensor(said), torch.tensor(label)))
    )
    assert found["rmse"] == pytest.approx(np.sqrt(np.square(said - label).mean()))
    assert found["mae"] == pytest.approx(np.abs(said - label).mean())


def test_classes_that_are_not_there() -> None:
    assert np.isnan(roc_auc(np.array([0.1, 0.9]), np.array([True, True])))
    found = scores("classes", np.eye(3)[[0, 1, 1]], np.array([0, 1, 0]), "abc")
    assert found["accuracy_balanced"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["f1_macro"] == pytest.approx((2 / 3 + 2 / 3) / 2)
