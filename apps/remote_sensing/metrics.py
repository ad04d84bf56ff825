"""How good a high-resolution image is: against the truth, and against the low-resolution image.

All are sums over valid pixels of the whole split, so that batches and ranks do not matter; what is
without a truth never counts. The range is 1, the value of white.

Suffixes: B batch, C band, H row, W column, K tap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from apps.remote_sensing.losses import (
    SSIM_C1,
    SSIM_C2,
    angle,
    gaussian_window,
    observe,
    similarity,
)
from apps.remote_sensing.model import bicubic
from apps.remote_sensing.phase import shift_between
from apps.remote_sensing.sensor import Sensor

UIQI_WINDOW = 8  # Wang and Bovik 2002, doi:10.1109/97.995823
LUMA = {"red": 0.299, "green": 0.587, "blue": 0.114}  # ITU-R BT.601
PATCH = 4  # low-resolution pixels of the squares that are judged correct or not
TINY = 1e-12
CERTAIN = 1e-4  # by how much interpolation has to be wrong for that, in units of white
VERDICTS = ("improvement", "omission", "hallucination")

Sums = dict[str, Tensor]


def cropped(batch: Mapping[str, Tensor], sr_BCHW: Tensor, crop: int) -> tuple[Tensor, ...]:
    """Prediction, truth and validity without their borders, in float64."""
    sides = [slice(crop, -crop) if min(sr_BCHW.shape[2:]) > 2 * crop else slice(None)] * 2
    index = (..., *(sides if crop else [slice(None)] * 2))
    return sr_BCHW[index].double(), batch["hr_CHW"][index].double(), batch["valid_CHW"][index]


def against_truth(sr: Tensor, hr: Tensor, valid: Tensor, bands: Sequence[str]) -> Sums:
    """Sums for PSNR, SSIM, SAM, ERGAS and UIQI, of what :func:`cropped` gives."""
    pixels = (0, 2, 3)
    error = torch.where(valid, sr - hr, 0.0)
    sums = {
        "squares_C": error.square().sum(pixels),
        "count_C": valid.sum(pixels).double(),
        "truth_C": torch.where(valid, hr, 0.0).sum(pixels),
    }
    whole_BHW = valid.all(1)
    sums["angle"] = _sum_and_count(angle(sr, hr), whole_BHW)
    found, there = similarity(sr, hr, valid, gaussian_window(), SSIM_C1, SSIM_C2)
    sums["ssim_2C"] = torch.stack([(found * there).sum(pixels), there.sum(pixels).double()])
    window_K = torch.full((UIQI_WINDOW,), 1 / UIQI_WINDOW, dtype=torch.float64)
    found, there = similarity(sr, hr, valid, window_K, TINY, TINY)
    sums["uiqi"] = _sum_and_count(found, there)
    luma_C = _luma(bands, sr)
    grey = [(it * luma_C[:, None, None]).sum(1, keepdim=True) for it in (sr, hr)]
    whole_B1HW = whole_BHW[:, None]
    sums["luma_squares"] = _sum_and_count((grey[0] - grey[1]).square(), whole_B1HW)
    found, there = similarity(*grey, whole_B1HW, gaussian_window(), SSIM_C1, SSIM_C2)
    sums["luma_ssim"] = _sum_and_count(found, there)
    return sums


def against_input(sr_BCHW: Tensor, batch: Mapping[str, Tensor], sensor: Sensor) -> Sums:
    """Sums of consistency, synthesis and correctness, in the manner of opensr-test (Aybar et al.
    2024, doi:10.1109/LGRS.2024.3401394).

    Consistency compares what the sensor would see of the prediction with what it saw. A square
    counts as improvement where the prediction is nearer to the truth than to the interpolated
    input, and nearer than that is; as omission where it stays nearer to the interpolated input; as
    hallucination where it is as far from both as these are apart, or farther.
    """
    scale, lr = sensor.scale, batch["lr_CHW"].double()
    hr, valid = batch["hr_CHW"].double(), batch["valid_CHW"]
    sr, plain = sr_BCHW.double(), bicubic(lr, scale)
    squares = functional.avg_pool2d(valid.double(), scale) > 1 - 0.5 / scale**2
    there = batch["lr_valid_CHW"] & squares
    seen = observe(sensor, torch.where(valid, sr, plain))
    sums = {
        "reflectance": _sum_and_count((seen - lr).abs(), there),
        "spectral": _sum_and_count(angle(seen, lr), there.all(1)),
        "synthesis": _sum_and_count((sr - plain).abs(), valid),
        "spatial": _shifts(seen, lr, there),
    }
    size = PATCH * scale
    weight = functional.avg_pool2d(valid.double().mean(1, keepdim=True), size)
    far, gained, left = (
        functional.avg_pool2d(torch.where(valid, (a - b).abs(), 0.0).mean(1, keepdim=True), size)
        for a, b in ((plain, hr), (sr, hr), (sr, plain))
    )
    judged = (weight > 1 - 0.5 / size**2) & (far > CERTAIN)
    better = (gained < left) & (gained < far)
    same = ~better & (left < far)
    verdicts = [judged & better, judged & same, judged & ~better & ~same]
    sums["verdicts"] = torch.stack([it.sum() for it in verdicts]).double()
    return sums


def scores(sums: Sums, bands: Sequence[str], scale: int) -> dict[str, float]:
    """Scores by name: PSNR in dB, angles in degrees, ERGAS, and shares."""
    mse_C = sums["squares_C"] / sums["count_C"]
    mean_C = sums["truth_C"] / sums["count_C"]
    ergas = 100 / scale * (mse_C / mean_C.square()).mean().sqrt()  # Wald 2000
    ssim_C = sums["ssim_2C"][0] / sums["ssim_2C"][1]
    found = {
        "psnr": _decibel(mse_C.mean()),
        "psnr_luma": _decibel(_mean(sums["luma_squares"])),
        "ssim": float(ssim_C.mean()),
        "ssim_luma": float(_mean(sums["luma_ssim"])),
        "ergas": float(ergas),
        "uiqi": float(_mean(sums["uiqi"])),
    }
    if len(bands) > 1:
        found["sam"] = math.degrees(_mean(sums["angle"]))
    for name, mse, ssim in zip(bands, mse_C, ssim_C, strict=True):
        found |= {f"psnr_{_word(name)}": _decibel(mse), f"ssim_{_word(name)}": float(ssim)}
    if "verdicts" not in sums:
        return found
    found["consistency_reflectance"] = float(_mean(sums["reflectance"]))
    found["consistency_spectral"] = math.degrees(_mean(sums["spectral"]))
    found["consistency_spatial"] = float(_mean(sums["spatial"]))
    found["synthesis"] = float(_mean(sums["synthesis"]))
    shares = sums["verdicts"] / sums["verdicts"].sum()
    return found | dict(zip(VERDICTS, shares.tolist(), strict=True))


def add(total: Sums, more: Sums) -> Sums:
    """The sums of both; an empty total is none."""
    return {name: total[name] + it for name, it in more.items()} if total else dict(more)


def _sum_and_count(values: Tensor, there: Tensor) -> Tensor:
    return torch.stack([torch.where(there, values, 0.0).sum(), there.sum()]).double()


def _mean(sum_and_count: Tensor) -> Tensor:
    return sum_and_count[0] / sum_and_count[1]


def _decibel(mse: Tensor) -> float:
    return float(-10 * torch.log10(mse))


def _luma(bands: Sequence[str], like: Tensor) -> Tensor:
    names = [name.casefold() for name in bands]
    weights = [LUMA.get(name, 0.0) for name in names]
    if not set(LUMA) <= set(names):
        weights = [1 / len(names)] * len(names)
    return like.new_tensor(weights)


def _shifts(seen: Tensor, lr: Tensor, there: Tensor) -> Tensor:
    """Distances between images, in low-resolution pixels, summed, and how many images."""
    mean = [torch.where(there, it, torch.nan).mean(1).cpu().numpy() for it in (seen, lr)]
    pairs = [math.hypot(*shift_between(*pair)) for pair in zip(*mean, strict=True)]
    return lr.new_tensor([sum(pairs), len(pairs)])


def _word(name: str) -> str:
    return "_".join(name.casefold().split())
