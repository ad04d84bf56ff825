"""Which modules K-FAC knows, and the layers that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import chain

from torch import nn
from torch.nn.parameter import is_lazy

from scadl_core.optim.layers import attention
from scadl_core.optim.layers.conv import CONVOLUTIONS, TRANSPOSED, Conv
from scadl_core.optim.layers.embedding import Embedding
from scadl_core.optim.layers.layer import Call, Layer, Picker, Side
from scadl_core.optim.layers.linear import Linear
from scadl_core.optim.layers.norm import NORMS, Norm

__all__ = ["Call", "Coverage", "Layer", "Picker", "Side", "find_layers"]


@dataclass
class Coverage:
    """What is preconditioned, and what is not.

    Attributes:
        layers: In the order of the model's modules; one where modules share all parameters.
        modules: Each module with the layers that it shows.
        uncovered: Parameter name to why it is left to the inner optimizer.
    """

    layers: list[Layer] = field(default_factory=list)
    modules: list[tuple[nn.Module, list[Layer]]] = field(default_factory=list)
    uncovered: dict[str, str] = field(default_factory=dict)


def find_layers(
    model: nn.Module, approximation: str, max_size: int, skip: Sequence[str] = ()
) -> Coverage:
    """Makes a layer for every module that can be preconditioned.

    Args:
        model: Any; wrapped by DistributedDataParallel or compiled too.
        approximation: "expand", "reduce", or "auto": reduce for convolutions, expand for others.
        max_size: Rows of a factor above which only its diagonal is used.
        skip: Patterns (``fnmatch``) of module names or class names that are left out.
    """
    coverage = Coverage()
    reasons: dict[int, str] = {}
    owners: dict[int, tuple[int, ...]] = {}
    shared: dict[tuple[int, ...], list[Layer]] = {}
    inner: set[nn.Module] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        name = clean(name)
        if module in inner or not own:
            continue
        words = (name, type(module).__name__)
        if any(fnmatch(word, pattern) for word in words for pattern in skip):
            made: list[Layer] | str = "skipped as asked"
        else:
            made = _layers_of(name, module, approximation, max_size)
        if isinstance(module, nn.MultiheadAttention) and not isinstance(made, str):
            inner.update(module.children())
        if isinstance(made, str):
            reasons.update({id(p): made for p in own})
            continue
        key = tuple(dict.fromkeys(id(p) for p in chain(*(layer.parameters for layer in made))))
        if key in shared and type(shared[key][0]) is type(made[0]):
            made = shared[key]  # used twice: one layer with twice the positions
        elif any(p in owners for p in key):
            reasons.update(dict.fromkeys(key, f"shared with another kind of layer, {name}"))
        shared.setdefault(key, made)
        owners.update(dict.fromkeys(key, key))
        coverage.modules.append((module, made))
    refused = {key for key in shared if any(reasons.get(p, "").startswith("shared") for p in key)}
    coverage.modules = [(m, ls) for m, ls in coverage.modules if not _keys(ls) & _flat(refused)]
    coverage.layers = list(dict.fromkeys(chain(*(layers for _, layers in coverage.modules))))
    covered = _keys(coverage.layers)
    for name, parameter in model.named_parameters():
        if id(parameter) not in covered:
            frozen = None if parameter.requires_grad else "frozen"
            reason = frozen or reasons.get(id(parameter), "its module is of no known kind")
            coverage.uncovered[clean(name)] = reason
    return coverage


def clean(name: str) -> str:
    """A name without what DistributedDataParallel and torch.compile put before it."""
    parts = name.split(".")
    while parts and parts[0] in ("module", "_orig_mod"):
        parts = parts[1:]
    return ".".join(part for part in parts if part != "_orig_mod")


def _keys(layers: Sequence[Layer]) -> set[int]:
    return {id(p) for layer in layers for p in layer.parameters}


def _flat(keys: set[tuple[int, ...]]) -> set[int]:
    return set(chain(*keys))


def _layers_of(
    name: str, module: nn.Module, approximation: str, max_size: int
) -> list[Layer] | str:
    """The layers of a module, or why there are none."""
    weight = module._parameters.get("weight")
    if isinstance(module, nn.MultiheadAttention):
        if not attention.is_covered(module) or not all(
            p.requires_grad for p in module.parameters()
        ):
            return "attention with bias_k, add_zero_attn or frozen parts"
        return list(attention.projections(name, module, approximation == "reduce", max_size))
    if weight is None or is_lazy(weight) or not weight.requires_grad:
        return "its module has no plain trained weight"
    if weight.is_complex():
        return "its weights are complex"
    for make, kinds in _MAKERS:
        for kind in kinds:
            if isinstance(module, kind):
                if type(module).forward is not kind.forward:
                    return f"{type(module).__name__} computes something of its own"
                return make(name, module, approximation, max_size)
    if type(module).__module__ == "torch_geometric.nn.dense.linear" and weight.dim() == 2:
        return [Linear(name, module, approximation == "reduce", max_size)]
    return f"{type(module).__name__} is of no known kind"


def _make_embedding(name: str, module: nn.Module, _: str, max_size: int) -> list[Layer] | str:
    assert isinstance(module, nn.Embedding)
    if module.sparse or module.max_norm is not None or module.scale_grad_by_freq:
        return "an embedding with sparse, rescaled or renormalised entries"
    return [Embedding(name, module, max_size)]


_Make = Callable[[str, nn.Module, str, int], "list[Layer] | str"]
_MAKERS: tuple[tuple[_Make, tuple[type[nn.Module], ...]], ...] = (
    (lambda n, m, how, most: [Linear(n, m, how == "reduce", most)], (nn.Linear,)),
    (lambda n, m, how, most: [Conv(n, m, how != "expand", most)], (*CONVOLUTIONS, *TRANSPOSED)),
    (lambda n, m, how, most: [Norm(n, m)], NORMS),
    (_make_embedding, (nn.Embedding,)),
)
