"""What gradient-free training is compared with: backpropagation, and decoupled greedy learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import backward

from scadl_core.admm.data import Data
from scadl_core.admm.problem import Loss

MakeOptimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]


def backpropagation(
    blocks: Sequence[nn.Module], loss: Loss, data: Data, iterations: int, optimizer: MakeOptimizer
) -> None:
    """Trains the chain of blocks as one network; the loss is the mean over a batch."""
    network = nn.Sequential(*blocks)
    steps = optimizer(list(network.parameters()))
    for _, visit in zip(range(iterations), data.visits(), strict=False):
        steps.zero_grad()
        backward(loss(network(visit.inputs), visit.targets) / len(visit.inputs))
        steps.step()


def decoupled_greedy(
    blocks: Sequence[nn.Module], heads: Sequence[nn.Module], loss: Loss, data: Data,
    iterations: int, optimizer: MakeOptimizer,
) -> None:  # fmt: skip
    """Every block by the loss of its own head, from the block before's output of the iteration
    before (Belilovsky et al. 2020, arXiv:1901.08164).

    Args:
        blocks: In order.
        heads: Of all blocks but the last.
        loss: Sum over samples; every block sees targets.
        data: Its samples.
        iterations: Visits of batches.
        optimizer: Of each block with its head.
    """
    ends = [*heads, nn.Identity()]
    steps = [
        optimizer([*block.parameters(), *head.parameters()])
        for block, head in zip(blocks, ends, strict=True)
    ]
    outputs: dict[int, list[Tensor]] = {}
    for _, visit in zip(range(iterations), data.visits(), strict=False):
        if visit.batch not in outputs:
            with torch.no_grad():
                outputs[visit.batch] = forward(blocks, visit.inputs)
        inputs = [visit.inputs, *outputs[visit.batch][:-1]]
        for index, (block, head) in enumerate(zip(blocks, ends, strict=True)):
            steps[index].zero_grad()
            output = block(inputs[index])
            backward(loss(head(output), visit.targets) / len(output))
            steps[index].step()
            outputs[visit.batch][index] = output.detach()


def forward(blocks: Sequence[nn.Module], inputs: Tensor) -> list[Tensor]:
    """The output of every block."""
    outputs: list[Tensor] = []
    for block in blocks:
        inputs = block(inputs)
        outputs.append(inputs)
    return outputs
