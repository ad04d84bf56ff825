"""Hooks that ``torch.compile`` takes into the graphs that it makes.

Hooks written in Python would run outside of a compiled graph: all tensors would be unpacked at once
when the backward pass begins, and nothing be saved. Graph modules are inlined instead, which needs
a codec of fixed size; it quantises blocks with stochastic rounding and has no bound that could be
set.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, fx, nn

from scadl_core.compress.blockscaled import dequantise_blocks, quantise_blocks

_QUANTISED = (torch.float32, torch.float16, torch.bfloat16)


def is_compiled(module: nn.Module) -> bool:
    """Whether a module, or one in it, was compiled."""
    optimized = torch._dynamo.OptimizedModule
    return any(
        isinstance(it, optimized) or it._compiled_call_impl is not None for it in module.modules()
    )


def inlined_hooks(bits: int, smallest: int, seed: int) -> AbstractContextManager[Any]:
    """Saved-tensor hooks for the compilation and the calls of a compiled module.

    Args:
        bits: 2, 4 or 8, of each value.
        smallest: Elements; smaller tensors are kept as they are.
        seed: Of the rounding.
    """

    def pack(tensor: Tensor) -> tuple[Any, ...]:
        if tensor.dtype not in _QUANTISED or tensor.numel() < smallest:
            return (tensor,)
        return (quantise_blocks(tensor, bits, seed), list(tensor.shape), tensor.dtype)

    def unpack(kept: tuple[Any, ...]) -> Tensor:
        tensor: Tensor = kept[0]
        return tensor if len(kept) == 1 else dequantise_blocks(*kept, bits)

    return torch.autograd.graph.saved_tensors_hooks(_graph_of(pack), _graph_of(unpack))


def _graph_of(function: Callable[..., Any]) -> fx.GraphModule:
    """A graph of one call, whose inside is traced with each tensor's type and shape."""
    graph = fx.Graph()
    graph.output(graph.call_function(function, (graph.placeholder("saved"),)))
    return fx.GraphModule(nn.Module(), graph)
