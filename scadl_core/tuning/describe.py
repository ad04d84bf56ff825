"""Measures a network: the times of its passes, what they save, its layers and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from scadl_core.comm import World
from scadl_core.memory import CompressedActivations
from scadl_core.memory.accounting import SavedBytes
from scadl_core.optim.layers import find_layers
from scadl_core.tuning.codecs import measure_codecs
from scadl_core.tuning.network import Block, Kept, Network

_LOOKS = 2  # steps in which compressed activations look at the gradients first
_LARGEST_FACTOR = 4096  # as in scadl_core.optim.KFAC
_POSITIONS = 256


class Batch(NamedTuple):
    """A batch to measure with.

    Attributes:
        samples: On this rank.
        loss: Runs the forward pass and returns the loss.
    """

    samples: int
    loss: Callable[[], Tensor]


class Pass(NamedTuple):
    """Seconds of a step's two passes, of the slowest rank."""

    forward: float
    backward: float


def describe(
    module: nn.Module, batches: Sequence[Batch], optimizer: Optimizer, world: World, steps: int = 8
) -> Network:
    """The network as the cost model sees it; every rank calls it at the same time.

    The module's weights change: give it one that is not needed any more.

    Args:
        module: In training mode, on its device; not wrapped.
        batches: One or two, of different sizes, the larger one first.
        optimizer: Of the module's parameters; that inside of K-FAC.
        world: The processes, which share cores and memory while each measures the same.
        steps: Of which the fastest counts: what other programs disturb is no property of it.
    """
    large = batches[0]
    passes = [_passes(module, batch.loss, world, steps) for batch in batches]
    update = max(world.gather(_update(optimizer, steps)))
    fixed, per_sample = _line([(b.samples, sum(p)) for b, p in zip(batches, passes, strict=True)])
    with SavedBytes(module) as saved:
        loss = large.loss()
    torch.autograd.backward(loss)
    parameters = [p for p in module.parameters() if p.grad is not None]
    gradients = [p.grad for p in parameters if p.grad is not None]
    blocks, flops = _blocks(module, large)
    return Network(
        shapes=tuple((p.shape[0], p[0].numel() if p.dim() > 1 else 0) if p.dim() else (1, 0)
                     for p in parameters),
        fixed=fixed, per_sample=per_sample,
        forward=passes[0].forward / (sum(passes[0]) or 1.0), update=update,
        state=_state(optimizer, parameters), flops=flops,
        saved=saved.bytes / large.samples,
        kept=_kept(module, large, sum(passes[0]), world),
        blocks=blocks, codecs=measure_codecs(gradients, world.size),
    )  # fmt: skip


def _passes(module: nn.Module, loss: Callable[[], Tensor], world: World, steps: int) -> Pass:
    forward, backward = [], []
    for _ in range(steps + 1):
        module.zero_grad()
        world.barrier()
        began = perf_counter()
        value = loss()
        _wait(value)
        middle = perf_counter()
        torch.autograd.backward(value)
        _wait(value)
        forward.append(middle - began)
        backward.append(perf_counter() - middle)
    ranks = world.gather(Pass(min(forward[1:]), min(backward[1:])))
    return max(ranks, key=sum)


def _update(optimizer: Optimizer, steps: int) -> float:
    found = []
    for _ in range(steps + 1):
        began = perf_counter()
        optimizer.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(perf_counter() - began)
    return min(found[1:])


def _state(optimizer: Optimizer, parameters: Sequence[Tensor]) -> float:
    """Elements that the optimizer keeps, over those of the parameters."""
    kept = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    return sum(t.numel() for t in kept) / max(1, sum(p.numel() for p in parameters))


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds = fixed + per_sample times samples, neither negative."""
    large, seconds = points[0]
    if len(points) == 1 or points[1][0] == large:
        return 0.0, seconds / large
    slope = (seconds - points[1][1]) / (large - points[1][0])
    slope = min(max(slope, 0.0), seconds / large)
    return seconds - slope * large, slope


def _kept(module: nn.Module, batch: Batch, plain: float, world: World) -> Kept | None:
    """Of steps in which the gradients are not looked at, as most are not."""
    compressed = CompressedActivations(module, every=_LOOKS)
    seconds = []
    for _ in range(7 * _LOOKS):
        module.zero_grad()
        began = perf_counter()
        with compressed:
            loss = batch.loss()
        torch.autograd.backward(loss)
        _wait(loss)
        seconds.append(perf_counter() - began)
    more = max(world.gather(max(0.0, min(seconds[_LOOKS + 1 :: _LOOKS]) - plain)))
    ratio = min(world.gather(compressed.ledger.ratio))
    return Kept(ratio, more / batch.samples) if ratio > 1 else None


def _blocks(module: nn.Module, batch: Batch) -> tuple[tuple[Block, ...], float]:
    """The layers that K-FAC knows, and the operations of a sample's step."""
    coverage = find_layers(module, "auto", _LARGEST_FACTOR)
    outputs: dict[nn.Module, int] = {}

    def note(layer: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs[layer] = outputs.get(layer, 0) + output.numel()

    handles = [layer.register_forward_hook(note) for layer, _ in coverage.modules]
    try:
        counter = FlopCounterMode(display=False)
        with counter:
            torch.autograd.backward(batch.loss())
    finally:
        for handle in handles:
            handle.remove()
    found = []
    for owner, layers in coverage.modules:
        for layer in layers:
            groups, rows, columns = layer.shape
            # A module like attention has several layers, and one output for all.
            numel = outputs.get(owner, 0) / len(layers) / batch.samples
            positions = numel / (groups * rows)
            sizes = [0 if side is None or side.is_diagonal else side.size
                     for side in (layer.input_side, layer.gradient_side)]  # fmt: skip
            elements = groups * rows * columns
            seen = 1.0 if layer.reduced else min(positions, _POSITIONS)
            found.append(
                Block(sizes[0], sizes[1], elements, groups, seen, 2.0 * elements * positions,
                      4.0 * numel)
            )  # fmt: skip
    return tuple(found), counter.get_total_flops() / batch.samples


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
