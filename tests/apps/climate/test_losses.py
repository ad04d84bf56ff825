"""The losses against PyTorch's, against hand-written ones, and their law: they add up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from apps.climate.losses import SegmentationLoss, class_weights
from scadl_core.errors import ConfigError

WEIGHTS_K = [0.2, 2.0, 0.8]
NAMES = ("cross_entropy", "focal", "jaccard", "cross_entropy+jaccard", "focal + jaccard")


def batch(seed: int, maps: int = 3, lowest: int = -1) -> tuple[Tensor, Tensor, Tensor]:
    """Logits BKHW, labels BHW with some -1, areas BHW."""
    rng = torch.Generator().manual_seed(seed)
    logits_BKHW = 3 * torch.randn(maps, 3, 4, 5, generator=rng, dtype=torch.float64)
    label_BHW = torch.randint(lowest, 3, (maps, 4, 5), generator=rng)
    return logits_BKHW, label_BHW, torch.rand(maps, 4, 5, generator=rng, dtype=torch.float64)


def loss_of(name: str, fields: tuple[Tensor, Tensor, Tensor], **options: float) -> Tensor:
    loss = SegmentationLoss(name, WEIGHTS_K, **options)
    return loss.value(loss.sums(*fields))


def pixels(fields: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities NK, one-hot truth NK and areas N of the valid pixels."""
    logits_BKHW, label_BHW, area_BHW = fields
    valid = label_BHW >= 0
    p_NK = logits_BKHW.softmax(1).permute(0, 2, 3, 1)[valid]
    return (
        p_NK,
        functional.one_hot(label_BHW[valid], 3).double(),
        area_BHW[valid],
    )


def test_cross_entropy_is_pytorchs() -> None:
    logits_BKHW, label_BHW, area_BHW = batch(0)
    weight = torch.tensor(WEIGHTS_K, dtype=torch.float64)
    expected = functional.cross_entropy(logits_BKHW, label_BHW, weight=weight, ignore_index=-1)
    got = loss_of("cross_entropy", (logits_BKHW, label_BHW, torch.ones_like(area_BHW)))
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0)


def test_cross_entropy_is_weighted_by_area() -> None:
    """Two copies of a map weigh as much as one of twice the area."""
    logits_BKHW, label_BHW, area_BHW = batch(1, maps=2)
    copied = tuple(torch.cat([field, field[:1]]) for field in (logits_BKHW, label_BHW, area_BHW))
    double = torch.tensor([2.0, 1.0], dtype=torch.float64)[:, None, None]
    for name in NAMES:
        torch.testing.assert_close(
            loss_of(name, copied), loss_of(name, (logits_BKHW, label_BHW, area_BHW * double))
        )


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_is_the_papers(gamma: float) -> None:
    fields = batch(2)
    p_NK, truth_NK, area_N = pixels(fields)
    p_N, weight_N = (
        (p_NK * truth_NK).sum(1),
        truth_NK @ torch.tensor(WEIGHTS_K, dtype=torch.float64) * area_N,
    )
    expected = -(weight_N * (1 - p_N) ** gamma * p_N.log()).sum() / weight_N.sum()
    torch.testing.assert_close(loss_of("focal", fields, gamma=gamma), expected, rtol=1e-6, atol=0)


def test_focal_of_gamma_zero_is_cross_entropy() -> None:
    torch.testing.assert_close(
        loss_of("focal", batch(3), gamma=0.0), loss_of("cross_entropy", batch(3))
    )


def test_jaccard_is_one_minus_soft_iou() -> None:
    fields = batch(4)
    p_NK, truth_NK, area_N = pixels(fields)
    both_K, sum_K = area_N @ (p_NK * truth_NK), area_N @ (p_NK + truth_NK)
    torch.testing.assert_close(loss_of("jaccard", fields), (1 - both_K / (sum_K - both_K)).mean())


def test_jaccard_of_a_perfect_prediction_is_zero_and_a_class_of_weight_zero_is_left_out() -> None:
    _, label_BHW, area_BHW = batch(5, lowest=0)
    label_BHW = label_BHW.clamp_max(1)  # class 2 does not occur
    perfect_BKHW = 100 * functional.one_hot(label_BHW, 3).permute(0, 3, 1, 2).double()
    loss = SegmentationLoss("jaccard", class_weights([0.5, 0.5, 0.0]))
    assert float(loss.value(loss.sums(perfect_BKHW, label_BHW, area_BHW))) == pytest.approx(
        0, abs=1e-9
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), cut=st.integers(1, 4))
def test_sums_add_up_over_ranks(name: str, seed: int, cut: int) -> None:
    loss, whole = SegmentationLoss(name, WEIGHTS_K), batch(seed, maps=5)
    parts = [
        loss.sums(*(field[piece] for field in whole)) for piece in (slice(cut), slice(cut, None))
    ]
    torch.testing.assert_close(loss.value(parts[0] + parts[1]), loss.value(loss.sums(*whole)))


def test_a_sum_of_losses_is_the_sum() -> None:
    expected = loss_of("cross_entropy", batch(6)) + loss_of("jaccard", batch(6))
    torch.testing.assert_close(loss_of("cross_entropy+jaccard", batch(6)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_right(name: str) -> None:
    logits_BKHW, label_BHW, area_BHW = batch(7, maps=1)
    assert torch.autograd.gradcheck(
        lambda logits: loss_of(name, (logits, label_BHW, area_BHW)), logits_BKHW.requires_grad_()
    )


@pytest.mark.parametrize("name", NAMES)
def test_without_a_valid_pixel_the_loss_and_its_slope_are_zero(name: str) -> None:
    logits_BKHW, label_BHW, area_BHW = batch(8)
    logits_BKHW.requires_grad_()
    loss = loss_of(name, (logits_BKHW, torch.full_like(label_BHW, -1), area_BHW))
    loss.backward()
    assert float(loss.detach()) == 0
    assert not logits_BKHW.grad.any()


@pytest.mark.parametrize("name", NAMES)
def test_sure_logits_give_finite_slopes(name: str) -> None:
    logits_BKHW = (
        torch.tensor([200.0, -200.0, 0.0])
        .reshape(1, 3, 1, 1)
        .expand(1, 3, 2, 2)
        .clone()
        .requires_grad_()
    )
    loss_of(
        name, (logits_BKHW, torch.tensor([[[0, 1], [2, -1]]]), torch.ones(1, 2)), gamma=0.5
    ).backward()
    assert torch.isfinite(logits_BKHW.grad).all()


def test_bfloat16_is_computed_with_in_float32() -> None:
    logits_BKHW, label_BHW, area_BHW = batch(9)
    low = logits_BKHW.bfloat16()
    got = loss_of("cross_entropy", (low, label_BHW, area_BHW))
    assert got.dtype is torch.float32
    torch.testing.assert_close(
        got, loss_of("cross_entropy", (low.float(), label_BHW, area_BHW)), rtol=0, atol=0
    )


def test_class_weights() -> None:
    fraction_K = [0.81, 0.16, 0.04, 0.0]
    for how, expected_K in {
        "none": [1, 1, 1, 0],
        "inverse_sqrt": [1 / 0.9, 1 / 0.4, 1 / 0.2, 0],
        "inverse": [1 / 0.81, 1 / 0.16, 1 / 0.04, 0],
    }.items():
        mean = sum(expected_K) / 3
        assert class_weights(fraction_K, how) == pytest.approx(
            [weight / mean for weight in expected_K]
        )
    assert class_weights([0.5, 0.5], [1, 3]) == [0.5, 1.5]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: SegmentationLoss("jacard", WEIGHTS_K),
            "task.loss: .*'jacard'; did you mean 'jaccard'?",
        ),
        (
            lambda: SegmentationLoss("focal", WEIGHTS_K, gamma=-1),
            "task.gamma: expected 0 or more, got -1",
        ),
        (
            lambda: class_weights([1.0], "inverse_sqr"),
            "task.class_weights: .* did you mean 'inverse_sqrt'",
        ),
        (lambda: class_weights([0.5, 0.5], [1.0]), "task.class_weights: expected 2 numbers"),
        (
            lambda: class_weights([0.5, 0.5], [1.0, -1.0]),
            "task.class_weights: expected 2 numbers of at least 0",
        ),
    ],
)
def test_wrong_arguments_are_named(attempt: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attempt()
