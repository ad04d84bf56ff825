"""Scores against scikit-learn, weights of either sign, and against values worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from sklearn import metrics as sk

from apps.hep import metrics
from apps.hep.metrics import Scored

CLASSES = ["QCD", "Hbb", "Wqq", "Tbqq"]


def rows(seed: int, negative: float, ties: bool = False, count: int = 3000) -> Scored:
    rng = np.random.default_rng(seed)
    label_R = rng.integers(0, 4, count)
    logit_RK = rng.normal(size=(count, 4)) + 1.2 * np.eye(4)[label_R]
    p_RK = np.exp(logit_RK) / np.exp(logit_RK).sum(1, keepdims=True)
    p_RK = np.round(p_RK, 1) + 0.01 if ties else p_RK
    sign_R = np.where(rng.random(count) < negative, -1, 1)
    weight_R = sign_R * rng.lognormal(0, 0.5, count)
    return Scored(p_RK, label_R, weight_R, rng.uniform(500, 1000, count), rng.gamma(4, 30, count))


def area(true_R, score_R, weight_R) -> float:
    """By scikit-learn's curve; its own area refuses one that turns back."""
    fpr, tpr, _ = sk.roc_curve(true_R, score_R, sample_weight=weight_R, drop_intermediate=False)
    return float(np.trapezoid(tpr, fpr))


@pytest.mark.parametrize("negative", [0.0, 0.2])
@pytest.mark.parametrize("ties", [False, True])
def test_scores_are_those_of_scikit_learn(negative: float, ties: bool) -> None:
    found = rows(1, negative, ties)
    ours, pairs = metrics.pair_aucs(found, CLASSES), []
    for a, b in itertools.combinations(range(4), 2):
        pair = np.isin(found.label_R, (a, b))
        both = [
            area(found.label_R[pair] == it, found.probability_RK[pair, it], found.weight_R[pair])
            for it in (a, b)
        ]
        if not negative:
            direct = sk.roc_auc_score(
                found.label_R[pair] == a,
                found.probability_RK[pair, a],
                sample_weight=found.weight_R[pair],
            )
            assert both[0] == pytest.approx(direct, abs=1e-12)
        pairs.append(np.mean(both))
        assert ours[f"auc_{CLASSES[a]}_{CLASSES[b]}"] == pytest.approx(pairs[-1], abs=1e-12)
    assert ours["auc_macro"] == pytest.approx(np.mean(pairs), abs=1e-12)
    said = found.probability_RK.argmax(1)
    expected = sk.accuracy_score(found.label_R, said, sample_weight=found.weight_R)
    assert metrics.accuracy(found) == pytest.approx(expected, abs=1e-12)


def test_without_weights_the_macro_auc_is_that_of_hand_and_till() -> None:
    found = rows(2, 0.0)
    found.weight_R = np.ones(len(found.label_R))
    expected = sk.roc_auc_score(found.label_R, found.probability_RK, multi_class="ovo")
    assert metrics.pair_aucs(found, CLASSES)["auc_macro"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("negative", [0.0, 0.1])
def test_rejections_are_read_off_scikit_learns_curve(negative: float) -> None:
    found = rows(3, negative)
    pair, score_R = metrics.discriminant(found, 1)
    fpr, tpr, _ = sk.roc_curve(
        pair.label_R == 1, score_R, sample_weight=pair.weight_R, drop_intermediate=False
    )
    said = {
        (name, at): (value, error) for name, at, value, error in metrics.rejections(found, CLASSES)
    }
    weight_R = found.weight_R[found.label_R == 0]
    effective = weight_R.sum() ** 2 / np.square(weight_R).sum()
    for wanted in metrics.EFFICIENCIES:
        first = int(np.argmax(tpr >= wanted))
        passing = np.interp(wanted, tpr[first - 1 : first + 1], fpr[first - 1 : first + 1])
        value, error = said["Hbb", wanted]
        assert value == pytest.approx(1 / passing, rel=1e-12)
        assert error == pytest.approx(
            np.sqrt(passing * (1 - passing) / effective) / passing**2, rel=1e-9
        )


def test_the_error_of_a_rejection_is_its_spread() -> None:
    rng, values, errors = np.random.default_rng(0), [], []
    for _ in range(300):
        score_R = np.concatenate([rng.normal(1, 1, 4000), rng.normal(0, 1, 400)])
        curve = metrics.roc(np.arange(4400) < 4000, score_R, np.ones(4400))
        value, error = metrics.rejection(metrics.at_efficiency(curve, 0.5)[0], 400)
        values.append(value)
        errors.append(error)
    assert np.median(errors) == pytest.approx(np.std(values), rel=0.25)


def test_a_background_that_is_gone_is_given_one_row() -> None:
    value, error = metrics.rejection(0.0, 200.0)
    assert value == pytest.approx(200)
    assert error == pytest.approx(200, rel=0.01)


def test_rows_that_cancel_are_as_good_as_none() -> None:
    """What negative weights are for: a pair of opposite weights changes no score."""
    found, rng = rows(4, 0.0), np.random.default_rng(1)
    twice = rng.integers(0, len(found.label_R), 500)
    more = [np.concatenate([v, v[twice], v[twice]]) for v in vars(found).values()]
    both = Scored(*more)
    both.weight_R[len(found.label_R) :] = np.repeat([0.7, -0.7], 500)
    one, other = metrics.scores(found, CLASSES), metrics.scores(both, CLASSES)
    for name in ("accuracy", "auc_macro", "auc_QCD_Hbb"):
        assert one[name] == pytest.approx(other[name], abs=1e-12)


def test_sculpting_of_the_mass() -> None:
    """By scipy's distance; none where the score does not know the mass, one bit where it is it."""
    first, second = np.array([3.0, 1, 0, 2]), np.array([1.0, 1, 4, 2])
    expected = jensenshannon(first, second, base=2) ** 2
    assert metrics.jensen_shannon(first, second) == pytest.approx(expected, abs=1e-12)
    rng, count = np.random.default_rng(5), 20_000
    label_R, mass_R = rng.integers(0, 2, count), rng.uniform(0, 100, count)
    for score_R, low, high in ((rng.random(count), 0, 0.01), (mass_R / 100, 0.9, 1)):
        p_RK = np.stack([1 - score_R, score_R], 1)
        found = Scored(p_RK, label_R, np.ones(count), mass_R, mass_R)
        assert low <= metrics.mass_sculpting(found, 1) <= high


def test_nothing_to_judge_is_nan() -> None:
    found = rows(6, 0.0)[np.zeros(0, int)]
    assert np.isnan(metrics.accuracy(found))
    assert np.isnan(metrics.pair_aucs(found, CLASSES)["auc_macro"])
    of_one = rows(6, 0.0)
    of_one = of_one[of_one.label_R < 2]
    scores = metrics.scores(of_one, CLASSES)
    assert np.isfinite(
        [scores["auc_QCD_Hbb"], scores["auc_macro"], scores["rejection_Hbb_at_50"]]
    ).all()
    assert np.isnan([scores["auc_QCD_Wqq"], scores["rejection_Wqq_at_50"], scores["sic_Wqq"]]).all()


def test_calibration_of_probabilities_that_are_right() -> None:
    rng = np.random.default_rng(7)
    p_R = rng.uniform(0.5, 1, 50_000)
    label_R = (rng.random(50_000) < p_R).astype(int)
    found = Scored(np.stack([1 - p_R, p_R], 1), label_R, np.ones(50_000), p_R, p_R)
    assert metrics.scores(found, ["a", "b"])["ece"] < 0.01
    found.label_R = 1 - label_R
    assert metrics.scores(found, ["a", "b"])["ece"] == pytest.approx(0.5, abs=0.01)
