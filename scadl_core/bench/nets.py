"""Networks and data on which optimizers are compared; all made here, or part of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Problem:
    """What is trained.

    Attributes:
        name: For tables.
        network: Makes it, with random weights.
        inputs: All samples.
        labels: Classes, of samples or of their positions.
        batch: Samples a step.
        steps: In a round of timing.
    """

    name: str
    network: Callable[[], nn.Module]
    inputs: Tensor
    labels: Tensor
    batch: int
    steps: int


def problems() -> list[Problem]:
    """A multilayer perceptron and a convolutional network on digits, a U-Net on fields."""
    images, labels = _digits()
    fields, classes = _fields()
    return [
        Problem("digits MLP", _perceptron, images.flatten(1), labels, 128, 20),
        Problem("digits ConvNet", _convolutional, images, labels, 128, 10),
        Problem("32 x 32 U-Net", lambda: UNet(4, 3, 16), fields, classes, 16, 10),
    ]


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))[:1500]
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None]
    return images[order], torch.tensor(data.target)[order]


def _fields(samples: int = 256, size: int = 32) -> tuple[Tensor, Tensor]:
    """Normal noise; a class is where the local mean of a product of two channels is high or low."""
    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(samples, 4, size, size, generator=generator)
    mean = nn.functional.avg_pool2d(fields[:, :1] * fields[:, 1:2], 5, 1, 2)[:, 0]
    return fields, (mean > 0.15).long() + 2 * (mean < -0.15).long()


def _perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in (inputs, outputs):
        convolution = nn.Conv2d(size, outputs, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Two levels down and up.

    Args:
        inputs: Channels.
        classes: Of each position.
        width: Channels of the first level.
    """

    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.down1, self.down2 = _block(inputs, width), _block(width, 2 * width)
        self.middle = _block(2 * width, 4 * width)
        self.up2, self.up1 = _block(6 * width, 2 * width), _block(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes, H, W) of (N, inputs, H, W); H and W are multiples of 4."""
        pool, grow = nn.functional.max_pool2d, nn.functional.interpolate
        first = self.down1(x)
        second = self.down2(pool(first, 2))
        up = self.middle(pool(second, 2))
        up = self.up2(torch.cat([grow(up, scale_factor=2.0), second], 1))
        up = self.up1(torch.cat([grow(up, scale_factor=2.0), first], 1))
        logits: Tensor = self.head(up)
        return logits
