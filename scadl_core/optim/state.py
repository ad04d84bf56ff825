"""The state of K-FAC as a value: whole on every rank, whichever rank owns what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scadl_core.errors import RunError
from scadl_core.optim.layers import Layer

if TYPE_CHECKING:
    from scadl_core.optim.kfac import KFAC

_NUMBERS = ("steps", "counters")


def save_state(optimizer: KFAC) -> dict[str, Any]:
    """All but the inner optimizer's state: numbers, and tensors on the CPU; every rank calls it.

    Args:
        optimizer: Between two steps.
    """
    due = optimizer.renewal.pending()
    layers = {}
    for name, layer in optimizer.layers.items():
        owner = optimizer.exchange.placement.owners[name]
        parts = _parts(optimizer, layer) if owner == optimizer.exchange.world.rank else None
        layers[name] = optimizer.exchange.from_owner(parts, layer, owner)
    moments = {
        group.layers[0].name: optimizer.exchange.from_owner(
            None if group.moments is None else {"moments": group.moments.cpu()},
            group.layers[0],
            optimizer.exchange.placement.owners[group.layers[0].name],
        )
        for group in optimizer.groups
        if optimizer.curvature.is_corrected
    }
    return {
        "steps": optimizer.steps,
        "counters": dict(optimizer.counters),
        "inverse": optimizer.inverse,
        "due": due,
        "levels": dict(optimizer.curvature.levels),
        "ready": sorted(optimizer.ready),
        "started": sorted(optimizer.curvature.started),
        "layers": layers,
        "moments": moments,
    }


def _parts(optimizer: KFAC, layer: Layer) -> dict[str, Tensor]:
    """What the owner of a layer has of it."""
    curvature = optimizer.curvature
    parts = {
        "weight": curvature.averages.weight[layer.name],
        "refused": curvature.averages.refused[layer.name],
    }
    for name in layer.sides:
        parts[f"{name}.average"] = curvature.averages.bank.view(layer, name)
        parts[f"{name}.inverse"] = curvature.inverses.view(layer, name)
        if curvature.values:
            parts[f"{name}.values"] = curvature.eigenvalues(layer, name)
    return {name: value.detach().cpu().clone() for name, value in parts.items()}


def load_state(optimizer: KFAC, state: Any) -> None:
    """The reverse of :func:`save_state`; each rank takes what it needs.

    Raises:
        RunError: The state is of another optimizer, method or model.
    """
    if not isinstance(state, dict) or "layers" not in state:
        raise RunError("this optimizer state is not of K-FAC: start anew, or choose its optimizer")
    if state["inverse"] != optimizer.inverse:
        raise RunError(
            f"the optimizer state was saved with inverse={state['inverse']!r}, not "
            f"{optimizer.inverse!r}: set it so"
        )
    saved, own = set(state["layers"]), set(optimizer.layers)
    if saved != own:
        raise RunError(
            "the optimizer state is of another model: it preconditions "
            f"{', '.join(sorted(saved ^ own)[:4])} here or there, not both"
        )
    curvature = optimizer.curvature
    owned = {layer.name for layer in optimizer.exchange.owned}
    for layer in optimizer.exchange.worked:
        parts = state["layers"][layer.name]
        for name in layer.sides:
            _copy(curvature.inverses.view(layer, name), parts[f"{name}.inverse"], layer)
            if curvature.values:
                _copy(curvature.eigenvalues(layer, name), parts[f"{name}.values"], layer)
            if layer.name in owned:
                _copy(curvature.averages.bank.view(layer, name), parts[f"{name}.average"], layer)
        if layer.name in owned:
            _copy(curvature.averages.weight[layer.name], parts["weight"], layer)
            _copy(curvature.averages.refused[layer.name], parts["refused"], layer)
    for group in optimizer.groups:
        found = state["moments"].get(group.layers[0].name)
        if found and optimizer.exchange.works(group):
            group.moments = found["moments"].to(group.layers[0].device)
    optimizer.steps, optimizer.ready = state["steps"], set(state["ready"])
    optimizer.counters.update(state["counters"])
    curvature.levels, curvature.started = dict(state["levels"]), set(state["started"])
    optimizer.renewal.resume(state["due"])


def _copy(target: Tensor, value: Tensor, layer: Layer) -> None:
    if target.shape != value.shape:
        raise RunError(
            f"the optimizer state of {layer.name} has shape {tuple(value.shape)}, not "
            f"{tuple(target.shape)}: it is of another model, or of another max_size"
        )
    with torch.no_grad():
        target.copy_(value)
