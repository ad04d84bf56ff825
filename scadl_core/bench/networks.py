"""The networks and data of `scadl bench admm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

DEPTHS = {"MLP, 8 layers": 8, "MLP, 16 layers": 16}


@dataclass(frozen=True)
class Case:
    """A network on the digits of scikit-learn (Alpaydin and Kaynak 1998), which need no download.

    Attributes:
        name: Of the network.
        blocks: It is cut into.
        iterations: All methods do so many, each on all 1257 samples.
        make: Makes the network from a seed.
        rate: Of Adam, in all methods.
    """

    name: str
    blocks: int
    iterations: int
    make: Callable[[int], nn.Sequential]
    rate: float = 1e-3

    @property
    def title(self) -> str:
        """For example "MLP, 8 layers, 2 blocks"."""
        return f"{self.name}, {self.blocks} blocks"


class Digits:
    """8 x 8 images, 1257 to train on and 540 to test on.

    Attributes:
        train: Images (1257, 1, 8, 8) in [0, 1] and classes.
        test: The same of the others.
    """

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        found = load_digits()
        images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
        classes = torch.tensor(found.target)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self.train = images[order[:1257]], classes[order[:1257]]
        self.test = images[order[1257:]], classes[order[1257:]]


def accuracy(output: Tensor, classes: Tensor) -> float:
    """Share of samples whose largest logit is that of their class."""
    return float((output.argmax(1) == classes).double().mean())


def mlp(
    depth: int, seed: int, inputs: int = 64, width: int = 64, outputs: int = 10
) -> nn.Sequential:
    """Linear layers with ReLU, Kaiming initialisation."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 2):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return _kaiming(nn.Sequential(*layers, nn.Linear(width, outputs)))


def cnn(seed: int) -> nn.Sequential:
    """Four convolutions and two linear layers."""
    torch.manual_seed(seed)
    convolutions: list[nn.Module] = []
    for before, after in ((1, 16), (16, 16), (16, 32), (32, 32)):
        convolutions += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        if before == after:
            convolutions.append(nn.MaxPool2d(2))
    ends = [nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
    return _kaiming(nn.Sequential(*convolutions, *ends))


def head(output: Tensor) -> nn.Module:
    """An auxiliary classifier for a block's output."""
    if output.dim() == 4:
        pooled = nn.AdaptiveAvgPool2d(2)
        return nn.Sequential(pooled, nn.Flatten(), nn.Linear(4 * output.shape[1], 10))
    return nn.Linear(output.shape[1], 10)


def _kaiming(network: nn.Sequential) -> nn.Sequential:
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
    return network


def _deep(depth: int) -> Callable[[int], nn.Sequential]:
    return lambda seed: mlp(depth, seed)


CASES = (
    Case("MLP, 8 layers", 2, 200, _deep(8)),
    Case("MLP, 8 layers", 4, 200, _deep(8)),
    Case("MLP, 16 layers", 4, 200, _deep(16)),
    Case("CNN", 2, 100, cnn),
)
QUICK = (Case("MLP, 8 layers", 2, 30, _deep(8)),)
