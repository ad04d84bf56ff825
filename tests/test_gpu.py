"""The GPU against the CPU, where there is one: `make gpu-check` prints the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from apps.climate.losses import SegmentationLoss
from apps.climate.model import UNet
from scadl_core.memory import SavedBytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU on this machine"),
]


def step(
    network: nn.Module, device: str, dtype: torch.dtype
) -> tuple[float, list[torch.Tensor], int]:
    """Loss, gradients (on the CPU) and saved bytes of one step on a fixed batch."""
    network = network.to(device, dtype)
    network.zero_grad()
    rng = torch.Generator().manual_seed(0)
    image_BCHW = torch.randn(2, 4, 48, 72, generator=rng, dtype=torch.float64).to(device, dtype)
    label_BHW = torch.randint(-1, 3, (2, 48, 72), generator=rng).to(device)
    loss = SegmentationLoss("cross_entropy+jaccard", [1.0, 1.0, 1.0])
    area_BH = torch.rand(2, 48, generator=rng).to(device)
    with SavedBytes(network) as saved:
        value = loss.value(loss.sums(network(image_BCHW), label_BHW, area_BH))
        value.backward()
    gradients = [p.grad.double().cpu().clone() for p in network.parameters() if p.grad is not None]
    return float(value), gradients, saved.bytes


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_network_and_loss(
    dtype: torch.dtype, tolerance: float, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    network = UNet(4, 3, width=8)
    loss, gradients, saved = step(network, "cpu", dtype)
    loss_gpu, gradients_gpu, saved_gpu = step(network, "cuda", dtype)
    errors = [
        float((gpu - cpu).norm() / cpu.norm())
        for cpu, gpu in zip(gradients, gradients_gpu, strict=True)
    ]
    with capsys.disabled():
        name = torch.cuda.get_device_name(0)
        print(
            f"\n{name} {dtype}: loss differs by {abs(loss - loss_gpu):.1e}, gradients by "
            f"{max(errors):.1e}"
        )
        print(f"activations kept: CPU {saved}, GPU {saved_gpu} bytes")
    assert abs(loss - loss_gpu) <= tolerance * abs(loss)
    assert max(errors) <= tolerance


def test_training_and_evaluation(
    scadl: Callable[..., object], tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    import json
    from pathlib import Path

    for device in ("gpu", "cpu"):
        result = scadl(
            "train", "climate", *tiny, f"run.dir={device}", f"trainer.accelerator={device}"
        )
        assert result.status == 0  # type: ignore[attr-defined]
    metrics = {
        device: json.loads(Path(device, "metrics.json").read_text()) for device in ("gpu", "cpu")
    }
    with capsys.disabled():
        for name in ("test/loss", "test/iou_mean"):
            print(f"{name}: GPU {metrics['gpu'][name]:.4f}, CPU {metrics['cpu'][name]:.4f}")
    assert metrics["gpu"]["test/loss"] == pytest.approx(metrics["cpu"]["test/loss"], rel=0.05)
