"""The sensor model against its definition: what becomes of waves, constants, noise and gaps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from apps.remote_sensing.losses import observe
from apps.remote_sensing.phase import shift_between
from apps.remote_sensing.sensor import Sensor
from scadl_core.errors import ConfigError
from tests.apps.remote_sensing.conftest import smooth


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("mtf", [0.1, 0.25, 0.4])
def test_a_wave_at_the_nyquist_frequency_is_damped_by_the_mtf(scale: int, mtf: float) -> None:
    size = 40 * scale
    # Crests lie on centres of coarse pixels, so that sampling shows the whole amplitude.
    place = np.arange(size) - (scale - 1) / 2
    wave = np.cos(np.pi * place / scale).astype(np.float32)
    seen = Sensor(scale, mtf).observe(np.broadcast_to(wave, (1, size, size)).copy())
    inner = seen[0, 10:-10, 10:-10]
    expected = mtf * np.where(np.arange(40) % 2, -1, 1)[10:-10]
    np.testing.assert_allclose(inner, np.broadcast_to(expected, inner.shape), atol=6e-4)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_what_is_even_stays_even_and_nothing_moves(scale: int) -> None:
    flat = np.full((2, 12 * scale, 9 * scale), 0.3, np.float32)
    np.testing.assert_allclose(Sensor(scale, [0.2, 0.3]).observe(flat), 0.3, rtol=1e-6)
    ramp = np.broadcast_to((np.arange(40 * scale) + 0.5) / scale, (1, 40 * scale, 40 * scale))
    seen = Sensor(scale).observe(ramp.astype(np.float32))
    np.testing.assert_allclose(seen[0, 5, 8:-8], np.arange(8, 32) + 0.5, rtol=1e-5)


@pytest.mark.parametrize("shift", [(0.0, 0.0), (0.3, -0.4), (1.0, 0.5), (-0.77, 0.13)])
def test_a_shift_is_found_again_by_phase_correlation(shift: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    fine = smooth(1, 1, 256, 256) + 0.1 * rng.standard_normal((1, 256, 256), np.float32)
    here, there = (Sensor(4, shift=it).observe(fine)[0] for it in ((0.0, 0.0), shift))
    np.testing.assert_allclose(shift_between(here, there), shift, atol=0.03)
    moved = np.roll(there, (5, -7), (0, 1))
    np.testing.assert_allclose(shift_between(moved, here), (5 - shift[0], -7 - shift[1]), atol=0.1)


def test_images_without_content_are_not_shifted() -> None:
    flat = np.ones((20, 20))
    assert shift_between(flat, flat) == (0, 0)
    assert shift_between(np.full((20, 20), np.nan), flat) == (0, 0)
    assert shift_between(flat[:4], flat[:4]) == (0, 0)


def test_a_pixel_with_a_gap_is_a_gap_and_its_neighbours_do_not_see_it() -> None:
    fine = np.full((2, 40, 40), 0.5, np.float32)
    fine[0, 17, 22] = np.nan
    seen = Sensor(4).observe(fine)
    expected = np.zeros((2, 10, 10), bool)
    expected[0, 4, 5] = True
    np.testing.assert_array_equal(np.isnan(seen), expected)
    np.testing.assert_allclose(seen[~expected], 0.5, rtol=1e-6)


def test_noise_has_the_strength_that_was_asked_for() -> None:
    level, sensor = np.array([0.2]), Sensor(snr=50)
    for signal in (0.0, 0.2, 0.6):
        image = np.full((1, 300, 300), signal, np.float32)
        noise = sensor.add_noise(image, level, np.random.default_rng(0)) - image
        expected = 0.2 / 50 * np.sqrt(0.5 + 0.5 * signal / 0.2)
        assert noise.std() == pytest.approx(expected, rel=0.01)
        assert abs(noise.mean()) < 4 * expected / 300
    assert Sensor(snr=None).add_noise(image, level, np.random.default_rng(0)) is image


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_the_differentiable_sensor_is_the_same_one(scale: int) -> None:
    sensor = Sensor(scale, [0.2, 0.3, 0.25], shift=(0.2, -0.1))
    fine = smooth(2, 3, 20 * scale, 24 * scale)
    seen = observe(sensor, torch.from_numpy(fine)[None].double())[0].numpy()
    inside = (..., slice(5, -5), slice(5, -5))
    np.testing.assert_allclose(seen[inside], sensor.observe(fine)[inside], atol=2e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"scale": 5}, "data.scale: expected 2, 3 or 4, got 5"),
        ({"mtf": 1.5}, "data.sensor.mtf"),
        ({"mtf": [0.2, 0.0]}, "data.sensor.mtf"),
        ({"snr": -1}, "data.sensor.snr"),
        ({"shift": [3, 0]}, "data.sensor.shift"),
    ],
)
def test_an_impossible_sensor_is_refused(words: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        Sensor(**words)
