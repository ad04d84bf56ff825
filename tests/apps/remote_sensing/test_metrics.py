"""Scores against torchmetrics' and against their formulas; gaps never count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.functional import image as peer

from apps.remote_sensing.losses import ImageLoss, angle
from apps.remote_sensing.metrics import add, against_input, against_truth, cropped, scores
from apps.remote_sensing.model import bicubic
from apps.remote_sensing.sensor import Sensor
from scadl_core.errors import ConfigError
from tests.apps.remote_sensing.conftest import smooth

BANDS = ("blue", "green", "red")


def pair(size: int = 48) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(3)
    truth = smooth(1, 3, size, size)
    said = truth + 0.03 * rng.standard_normal(truth.shape, np.float32)
    everywhere = torch.ones(1, 3, size, size, dtype=torch.bool)
    return torch.from_numpy(said)[None].double(), torch.from_numpy(truth)[None].double(), everywhere


def test_scores_are_those_of_torchmetrics() -> None:
    said, truth, valid = pair()
    found = scores(against_truth(said, truth, valid, BANDS), BANDS, 4)
    expected = {
        "psnr": peer.peak_signal_noise_ratio(said, truth, data_range=1.0),
        "sam": torch.rad2deg(peer.spectral_angle_mapper(said, truth)),
        "ergas": peer.error_relative_global_dimensionless_synthesis(said, truth, ratio=4),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value), rel=1e-6), name
    # Its mean is over all places, with mirrored edges; ours over those whose window is inside.
    _, map_BCHW = peer.structural_similarity_index_measure(
        said, truth, data_range=1.0, return_full_image=True
    )
    inside = map_BCHW[..., 5:-5, 5:-5].mean()
    assert found["ssim"] == pytest.approx(float(inside), rel=1e-6)


def test_uiqi_is_its_formula() -> None:
    said, truth, valid = pair(20)
    found = scores(against_truth(said, truth, valid, BANDS), BANDS, 2)["uiqi"]
    values = []
    for x, y in zip(said[0].numpy(), truth[0].numpy(), strict=True):
        for row in range(13):
            for column in range(13):
                a, b = (it[row : row + 8, column : column + 8] for it in (x, y))
                covariance = ((a - a.mean()) * (b - b.mean())).mean()
                above = 4 * covariance * a.mean() * b.mean()
                values.append(above / ((a.var() + b.var()) * (a.mean() ** 2 + b.mean() ** 2)))
    assert found == pytest.approx(np.mean(values), rel=1e-6)


def test_what_is_in_gaps_never_counts() -> None:
    said, truth, valid = pair()
    valid[:, :, 10:20, 5:30] = False
    garbage = torch.where(valid, said, 1e6)
    sums = against_truth(said, truth, valid, BANDS)
    other = against_truth(garbage, torch.where(valid, truth, -7.0), valid, BANDS)
    for name, value in scores(sums, BANDS, 2).items():
        assert scores(other, BANDS, 2)[name] == pytest.approx(value, rel=1e-9), name
    for terms in ("l1", "charbonnier", "sam", "ssim"):
        loss = ImageLoss(terms, Sensor(2))
        values = [
            float(loss.value(loss.sums(it, truth, valid, truth, valid))) for it in (said, garbage)
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-9), terms


def test_sums_add_over_batches() -> None:
    said, truth, valid = (torch.cat([it, it.flip(2)]) for it in pair())
    valid[1, :, :7] = False
    whole = scores(against_truth(said, truth, valid, BANDS), BANDS, 3)
    parts = {}
    for part in range(2):
        at = slice(part, part + 1)
        parts = add(parts, against_truth(said[at], truth[at], valid[at], BANDS))
    assert scores(parts, BANDS, 3) == pytest.approx(whole, rel=1e-9)


def batch_of(truth: np.ndarray, sensor: Sensor) -> dict[str, torch.Tensor]:
    lr = torch.from_numpy(sensor.observe(truth))[None]
    hr = torch.from_numpy(truth)[None]
    return {
        "lr_CHW": lr,
        "hr_CHW": hr,
        "valid_CHW": torch.ones_like(hr, dtype=torch.bool),
        "lr_valid_CHW": torch.ones_like(lr, dtype=torch.bool),
    }


def test_truth_improves_interpolation_omits_and_invention_is_found() -> None:
    rng = np.random.default_rng(0)
    truth = smooth(5, 3, 128, 128) + 0.05 * rng.standard_normal((3, 128, 128), np.float32)
    sensor = Sensor(4)
    batch = batch_of(truth, sensor)
    plain = bicubic(batch["lr_CHW"], 4)
    invented = plain + 0.2 * torch.from_numpy(rng.standard_normal(truth.shape, np.float32))
    verdict = {
        "improvement": batch["hr_CHW"],
        "omission": plain,
        "hallucination": invented,
    }
    for name, image in verdict.items():
        sums = against_truth(*cropped(batch, image, 4), BANDS) | against_input(image, batch, sensor)
        found = scores(sums, BANDS, 4)
        assert found[name] == 1.0, name
        if name == "improvement":
            # All but the border, where the two know different things of what lies beyond.
            assert found["consistency_reflectance"] < 2e-3
            assert found["consistency_spatial"] < 0.01
        if name == "omission":
            assert found["synthesis"] < 1e-7
        if name == "hallucination":
            assert found["synthesis"] == pytest.approx(0.2 * np.sqrt(2 / np.pi), rel=0.02)


def test_the_angle_is_that_between_spectra() -> None:
    one = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    other = torch.tensor([1.0, 1.0, 0.0]).view(1, 3, 1, 1)
    assert float(angle(one, other)) == pytest.approx(np.pi / 4, rel=1e-6)
    assert float(angle(one * 0, other)) == 0
    slope = torch.autograd.functional.jacobian(lambda x: angle(x, one).sum(), one)
    assert torch.isfinite(slope).all()


def test_losses_add_with_their_weights() -> None:
    said, truth, valid = pair()
    lr = torch.nn.functional.avg_pool2d(truth, 2)
    there = torch.ones_like(lr, dtype=torch.bool)

    def value(terms: str) -> float:
        loss = ImageLoss(terms, Sensor(2))
        return float(loss.value(loss.sums(said, truth, valid, lr, there)))

    both = value("l1 + 0.1*sam+0.5*ssim + 2*consistency")
    parts = value("l1") + 0.1 * value("sam") + 0.5 * value("ssim") + 2 * value("consistency")
    assert both == pytest.approx(parts, rel=1e-9)
    assert value("l1") == pytest.approx(float((said - truth).abs().mean()), rel=1e-9)
    with pytest.raises(ConfigError, match="did you mean 'charbonnier'"):
        ImageLoss("charbonier", Sensor(2))
    with pytest.raises(ConfigError, match=r"task\.loss"):
        ImageLoss("l1 - sam", Sensor(2))
