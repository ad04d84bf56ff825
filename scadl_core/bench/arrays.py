"""What is compressed: activations and gradients of the climate model, and a smooth field.

Suffixes: B batch, C channel, H height, W width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scadl_core.comm import World
from scadl_core.config.apps import find_app
from scadl_core.config.build import build
from scadl_core.config.compose import compose_run
from scadl_core.workflow.pipeline import make_source, make_task, resolve

SMALLEST = 1 << 16  # elements; smaller tensors say nothing about speed


def model_arrays(maps: int, steps: int) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Trains the climate U-Net on its sample for some steps and looks into the last one.

    Args:
        maps: How many maps the sample has; a batch is half of it.
        steps: Of the optimizer.

    Returns:
        What autograd saved in the last forward pass, each storage once, and the gradients of all
        parameters over the last 16 steps. float32.
    """
    task, batches = climate_task(maps, maps // 2)
    optimizer = task.make_optimizer(task.parameters())
    saved = Saved(task)
    gradients: list[list[NDArray[Any]]] = []
    for step in range(steps):
        saved.clear()
        optimizer.zero_grad()
        with saved.hooks:
            loss: Any = task.training_step(batches[step % len(batches)], 0)
        loss.backward()
        gradients.append([p.grad.numpy().copy() for p in task.parameters() if p.grad is not None])
        optimizer.step()
    stacked = [np.stack(of_one) for of_one in zip(*gradients[-16:], strict=True)]
    return saved.arrays, stacked


def climate_task(maps: int, batch_size: int, *overrides: str) -> tuple[Any, list[Any]]:
    """The climate U-Net's task on its sample, and the batches of an epoch.

    Args:
        maps: How many maps the sample has.
        batch_size: Of them in a batch.
        overrides: Further ones.
    """
    size = [f"data.sample.train_maps={maps}", "data.sample.test_maps=2"]
    words = [*size, f"loader.batch_size={batch_size}", *overrides]
    config = resolve(compose_run(find_app("climate"), words))
    world = World.start()
    source = make_source(config, world)
    task: Any = make_task(config, source.facts(), world)
    task.log = _unlogged  # there is no Trainer to log to
    loaders = build(config, "loader", seed=config.seed, world=world)
    return task, list(loaders.training(source.samples("train")))


class Saved:
    """Copies of what autograd saves, without parameters and buffers.

    Args:
        module: Whose parameters and buffers are left out.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        held = [*module.parameters(), *module.buffers()]
        self._held = {tensor.untyped_storage().data_ptr() for tensor in held}
        self._seen: dict[int, Tensor] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def clear(self) -> None:
        """Forgets the last step's."""
        self._seen.clear()

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The float32 ones that are large enough, in the order of the forward pass."""
        large = [t for t in self._seen.values() if t.numel() >= SMALLEST]
        return [t.numpy().copy() for t in large if t.dtype == torch.float32]

    def _pack(self, tensor: Tensor) -> Tensor:
        key = tensor.untyped_storage().data_ptr()
        if key not in self._held:
            self._seen.setdefault(key, tensor.detach())  # held, so the address is not used again
        return tensor.detach()


def smooth_field(*shape: int) -> NDArray[np.float32]:
    """A random field with the spectrum of turbulence, k**(-11/3) in three dimensions (Kolmogorov
    1941), like a temperature: mean 280, standard deviation 15.

    Args:
        shape: Three lengths.
    """
    noise = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    spectrum = np.fft.rfftn(noise)
    axes = [np.fft.fftfreq(n) for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1])]
    grids = np.meshgrid(*axes, indexing="ij", sparse=True)
    wavenumber = np.sqrt(np.sum([grid**2 for grid in np.broadcast_arrays(*grids)], axis=0))
    wavenumber.flat[0] = np.inf
    field = np.fft.irfftn(spectrum * wavenumber ** (-11 / 6), s=shape, axes=(0, 1, 2))
    scaled: NDArray[np.float32] = (field / field.std() * 15 + 280).astype(np.float32)
    return scaled


def _unlogged(*values: Any, **options: Any) -> None:
    """Takes the place of LightningModule.log."""
