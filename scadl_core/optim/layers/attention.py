"""nn.MultiheadAttention, whose four projections no hook can see.

It projects by functions, within one function. While it trains it is therefore computed by
:func:`_attend`, which gives the same and shows each projection to an observer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scadl_core.optim.layers.linear import Linear

Observe = Callable[[Linear, Tensor, Tensor], None]
Project = Callable[[int, Tensor, Tensor | None], Tensor]


def is_covered(module: nn.MultiheadAttention) -> bool:
    """Whether :func:`_attend` knows all that the module does."""
    return module.bias_k is None and not module.add_zero_attn


def projections(
    name: str, module: nn.MultiheadAttention, reduced: bool, max_size: int
) -> list[Linear]:
    """The layers of queries, keys, values and outputs, in this order.

    Args:
        name: Of the module.
        module: One that :func:`is_covered`.
        reduced: Reduce instead of expand.
        max_size: Above which a factor is diagonal.
    """
    size, bias = module.embed_dim, module.in_proj_bias
    if module._qkv_same_embed_dim:
        weights = [module.in_proj_weight] * 3
    else:
        weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    found = []
    for number, (part, weight) in enumerate(zip("qkv", weights, strict=True)):
        part_rows = slice(number * size, (number + 1) * size)
        rows = part_rows if module._qkv_same_embed_dim else None
        found.append(
            Linear(f"{name}.{part}", module, reduced, max_size, weight, bias, rows, part_rows)
        )
    out = module.out_proj
    found.append(Linear(f"{name}.out_proj", out, reduced, max_size))
    return found


def attach(
    module: nn.MultiheadAttention, layers: list[Linear], observe: Observe
) -> Callable[[], None]:
    """Lets the module show its projections while it trains.

    Args:
        module: The attention.
        layers: Its :func:`projections`.
        observe: Called with layer, input and output.

    Returns:
        Undoes it.
    """
    module.forward = _Forward(module, partial(_project, layers, observe))  # type: ignore[method-assign]

    def detach() -> None:
        module.__dict__.pop("forward", None)

    return detach


class _Forward:
    """Stands in for the method of one module; a copy of that module gets the plain method."""

    def __init__(self, module: nn.MultiheadAttention, project: Project) -> None:
        self.module, self.project = module, project

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        if self.module.training:
            return _attend(self.module, self.project, *args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _plain(memo[id(self.module)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _plain, (self.module,)


def _plain(module: nn.MultiheadAttention) -> Any:
    return MethodType(type(module).forward, module)


def _project(
    layers: list[Linear], observe: Observe, number: int, values: Tensor, bias: Tensor | None
) -> Tensor:
    layer = layers[number]
    output = F.linear(values, layer.weight[layer.rows], bias)
    observe(layer, values, output)
    return output


def _attend(
    module: nn.MultiheadAttention,
    project: Project,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """:meth:`torch.nn.MultiheadAttention.forward`; ``is_causal`` is a hint beside the mask."""
    inputs = [query, key, value]
    is_batched = query.dim() == 3
    if not is_batched:
        inputs = [x[None] for x in inputs]
    elif not module.batch_first:
        inputs = [x.transpose(0, 1) for x in inputs]
    bias, size = module.in_proj_bias, module.embed_dim
    biases = [None] * 3 if bias is None else list(bias.split(size))
    heads = [
        project(n, x, b).unflatten(2, (module.num_heads, -1)).transpose(1, 2)
        for n, (x, b) in enumerate(zip(inputs, biases, strict=True))
    ]
    q_NHLD, k_NHSD, v_NHSD = heads
    mask = _mask(attn_mask, key_padding_mask, q_NHLD, k_NHSD.shape[2])
    weights = None
    if need_weights:
        scores = q_NHLD @ k_NHSD.mT / q_NHLD.shape[3] ** 0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, module.dropout)
        context = weights @ v_NHSD
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        context = F.scaled_dot_product_attention(q_NHLD, k_NHSD, v_NHSD, mask, module.dropout)
    output = project(3, context.transpose(1, 2).flatten(2), module.out_proj.bias)
    if not is_batched:
        return output[0], None if weights is None else weights[0]
    return output if module.batch_first else output.transpose(0, 1), weights


def _mask(given: Tensor | None, padding: Tensor | None, query: Tensor, keys: int) -> Tensor | None:
    """One additive mask of (N, H, L, S), or what broadcasts to it."""
    samples, heads, length = query.shape[:3]
    parts = []
    if given is not None:
        parts.append(given.view(samples, heads, length, keys) if given.dim() == 3 else given)
    if padding is not None:
        parts.append(padding.view(samples, 1, 1, keys))
    added = [
        torch.zeros_like(m, dtype=query.dtype).masked_fill(m, -torch.inf)
        if m.dtype == torch.bool
        else m.to(query.dtype)
        for m in parts
    ]
    return sum(added[1:], added[0]) if added else None
