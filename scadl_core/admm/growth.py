"""Depth grown by layers that change nothing at first."""

from __future__ import annotations

from torch import nn

from scadl_core.errors import ConfigError


def grown(network: nn.Sequential, layers: int) -> nn.Sequential:
    """Adds layers with W = I, b = 0 and ReLU before the last, as pdADMM-G is started.

    What comes out of a ReLU passes such a layer unchanged, so the deeper network computes the same.

    Args:
        network: Linear layers with ReLU between them; its modules are used, not copied.
        layers: How many linear layers the result has.

    Raises:
        ConfigError: It is another network, or has more layers already.
    """
    linear = [module for module in network if isinstance(module, nn.Linear)]
    if len(linear) < 2 or not isinstance(network[-2], nn.ReLU) or network[-1] is not linear[-1]:
        raise ConfigError("ADMM: only a chain of Linear and ReLU, with Linear at its end, is grown")
    if layers < len(linear):
        raise ConfigError(f"ADMM: expected {len(linear)} layers or more, got {layers}")
    last, new = linear[-1], list[nn.Module]()
    for _ in range(layers - len(linear)):
        layer = nn.Linear(last.in_features, last.in_features, dtype=last.weight.dtype)
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
        new += [layer.to(last.weight.device), nn.ReLU()]
    return nn.Sequential(*list(network)[:-1], *new, last)
