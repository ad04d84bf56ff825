"""The problem: an ordered chain of blocks, coupled by p_{l+1} = q_l, of which the last carries the
loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.admm.balance import partition
from scadl_core.errors import ConfigError, nearest

Loss = Callable[[Tensor, Any], Tensor]
Make = Callable[[], nn.Module]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Sum over samples of the cross-entropy of logits (B, K, ...) and classes (B, ...)."""
    return functional.cross_entropy(output, target, reduction="sum")


def squared(output: Tensor, target: Tensor) -> Tensor:
    """Half the sum of the squared errors, any shape."""
    return 0.5 * (output - target).square().sum()


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "squared": squared}


class Problem:
    """minimise R(f_L(...f_1(x)); y), with a copy of each block's input as a variable of its own.

    In three lines::

        net = nn.Sequential(...)
        fitted = fit(Problem(net, "cross_entropy", blocks=4), Data.of(x, y))
        net(x)  # is trained

    Args:
        network: A Sequential, which is cut into blocks; or the blocks: modules, or functions that
            make them, of which a rank then calls only those of its own blocks. A block gives and
            takes a tensor (B, ...) or a tuple of them.
        loss: "cross_entropy", "squared", or a function of (output, target) that gives the *sum*
            over the samples of a batch.
        blocks: How many blocks a Sequential is cut into, with about as many parameters each; None:
            one a layer that has a weight matrix.
        heads: For the hybrid rule, a module (or a function that makes it) a block but the last,
            from the block's output to something that the loss takes.

    Raises:
        ConfigError: Nothing to train, or more blocks than layers.
    """

    def __init__(
        self,
        network: nn.Module | Sequence[nn.Module | Make],
        loss: str | Loss,
        blocks: int | None = None,
        heads: Sequence[nn.Module | Make] = (),
    ) -> None:
        if isinstance(network, nn.Module):
            if not isinstance(network, nn.Sequential):
                raise ConfigError(
                    f"ADMM: {type(network).__name__} does not say how it can be cut; give an "
                    "nn.Sequential, or a list of blocks whose composition is the network"
                )
            self.blocks: list[nn.Module | Make] = list(cut(network, blocks))
        else:
            self.blocks = list(network)
        if not self.blocks:
            raise ConfigError("ADMM: a problem needs at least one block")
        if isinstance(loss, str) and loss not in LOSSES:
            raise ConfigError(f"ADMM: no loss is called {loss!r}{nearest(loss, LOSSES)}")
        self.loss: Loss = LOSSES[loss] if isinstance(loss, str) else loss
        self.heads = list(heads)
        if heads and len(heads) != len(self.blocks) - 1:
            raise ConfigError(
                f"ADMM: expected a head for each of the first {len(self.blocks) - 1} blocks, got "
                f"{len(heads)}"
            )

    def __len__(self) -> int:
        return len(self.blocks)

    def make(self, index: int, seed: int) -> tuple[nn.Module, nn.Module | None]:
        """A block and its head; what a function makes depends on (seed, index) alone."""
        head = self.heads[index] if index < len(self.heads) else None
        with torch.random.fork_rng():
            torch.manual_seed(seed * 100_003 + index)
            return _made(self.blocks[index]), None if head is None else _made(head)


def _made(it: nn.Module | Make) -> nn.Module:
    return it if isinstance(it, nn.Module) else it()


def cut(network: nn.Sequential, blocks: int | None = None) -> list[nn.Sequential]:
    """Cuts a Sequential into consecutive parts that share its modules.

    Args:
        network: Its modules in order.
        blocks: How many parts, of about equal numbers of parameters; None: one a layer.

    Raises:
        ConfigError: It has fewer layers with a weight matrix.
    """
    layers = _layers(network)
    if not layers:
        raise ConfigError("ADMM: the network has no layer with a weight matrix to train")
    if blocks is None:
        return [nn.Sequential(*layer) for layer in layers]
    if not 1 <= blocks <= len(layers):
        raise ConfigError(f"ADMM: blocks: expected 1 to {len(layers)} (layers), got {blocks}")
    costs = [float(sum(p.numel() for module in it for p in module.parameters())) for it in layers]
    return [
        nn.Sequential(*(module for layer in layers[part.start : part.stop] for module in layer))
        for part in partition(costs, blocks)
    ]


def _layers(network: nn.Sequential) -> list[list[nn.Module]]:
    """A layer ends with its activation, or before the next weight; pooling and the like after an
    activation belong to the layer that follows.
    """
    layers: list[list[nn.Module]] = [[]]
    weighted = closed = False
    for module in network:
        heavy = any(parameter.dim() > 1 for parameter in module.parameters())
        if weighted and (closed or heavy):
            layers.append([])
            weighted = closed = False
        layers[-1].append(module)
        weighted |= heavy
        closed = weighted and is_activation(module)
    if not weighted and len(layers) > 1:  # what follows the last layer
        layers[-2:] = [layers[-2] + layers[-1]]
        weighted = True
    return layers if weighted else []


def is_activation(module: nn.Module) -> bool:
    """Whether it is one of PyTorch's elementwise non-linearities."""
    return type(module).__module__ == "torch.nn.modules.activation" and not any(
        parameter.dim() > 1 for parameter in module.parameters()
    )
