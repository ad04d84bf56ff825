"""A layer of the closed-form rule: an affine map, which may be anything that is linear in its
input, and an activation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from scadl_core.errors import ConfigError

_MAPS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
    nn.ConvTranspose3d, nn.Flatten, nn.Unflatten, nn.Identity, nn.AvgPool1d, nn.AvgPool2d,
    nn.AdaptiveAvgPool2d, nn.PixelShuffle, nn.PixelUnshuffle, nn.UpsamplingNearest2d, nn.ZeroPad2d,
)  # fmt: skip
_SHUFFLES = (nn.Flatten, nn.Unflatten, nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle)


class Affine:
    """m = A(p; W) + b, followed by f: ReLU, leaky ReLU, or nothing.

    Adjoints are taken by automatic differentiation inside the map, so that the adjoint of a
    convolution is a transposed convolution and no image is unfolded. A module of one's own takes
    part if it has a ``weight``, perhaps a ``bias``, and ``is_affine = True``.

    Args:
        block: Its modules in order; exactly one has a weight.
        name: Of the block, for messages.

    Raises:
        ConfigError: A module that is not linear, with what to do instead.
    """

    def __init__(self, block: nn.Module, name: str) -> None:
        modules = list(block) if isinstance(block, nn.Sequential) else [block]
        self.slope = _slope(modules[-1])
        if self.slope is not None:
            modules = modules[:-1]
        for module in modules:
            if not isinstance(module, _MAPS) and not getattr(module, "is_affine", False):
                raise ConfigError(
                    f"ADMM: {name}: {type(module).__name__} is not a linear map that rule=pdadmm "
                    "can train; use rule=block_admm, which takes any module, or ReLU or LeakyReLU "
                    "behind layers such as Linear and Conv2d"
                )
        own = [it for it in modules if any(True for _ in it.parameters())]
        if len(own) != 1:
            raise ConfigError(
                f"ADMM: {name}: rule=pdadmm needs one layer with a weight a block, got {len(own)}; "
                "leave blocks out (blocks=None) or use rule=block_admm"
            )
        after = modules[modules.index(own[0]) + 1 :]
        if not all(isinstance(it, _SHUFFLES) for it in after):
            raise ConfigError(
                f"ADMM: {name}: between a layer and its activation rule=pdadmm takes what reorders "
                f"elements; move {type(after[0]).__name__} behind the activation"
            )
        self.map = nn.Sequential(*modules)
        self.layer = own[0]
        self.weight: nn.Parameter = self.layer.weight  # type: ignore[assignment]
        self.bias: nn.Parameter | None = getattr(self.layer, "bias", None)
        self._names = {id(p): n for n, p in self.map.named_parameters()}

    @torch.no_grad()
    def __call__(self, p: Tensor) -> Tensor:
        """m, of any p of shape (B, ...)."""
        output: Tensor = self.map(p)
        return output

    @torch.no_grad()
    def linear(self, p: Tensor) -> Tensor:
        """A(p; W), without the bias."""
        return self._with(p, self.weight)

    @torch.no_grad()
    def by_weight(self, p: Tensor, weight: Tensor) -> Tensor:
        """A(p; weight), without the bias."""
        return self._with(p, weight)

    def adjoint(self, r: Tensor, p: Tensor) -> Tensor:
        """The transposed map of a residual of the shape of m: d<r, A(p)>/dp."""
        with torch.enable_grad():
            p = p.detach().requires_grad_()
            return torch.autograd.grad(self.map(p), p, r)[0]

    def adjoint_weight(self, r: Tensor, p: Tensor) -> Tensor:
        """d<r, A(p; W)>/dW."""
        with torch.enable_grad():
            return torch.autograd.grad(self.map(p), self.weight, r)[0]

    def mean_bias(self, r: Tensor, p: Tensor) -> Tensor:
        """The mean of a residual over what each bias is added to."""
        assert self.bias is not None, "asked of a layer with a bias"
        with torch.enable_grad():
            total = torch.autograd.grad(self.map(p), self.bias, r)[0]
        return total * (self.bias.numel() / r.numel())

    def activation(self, z: Tensor) -> Tensor:
        """f(z)."""
        return z if self.slope is None else torch.where(z > 0, z, self.slope * z)

    def _with(self, p: Tensor, weight: Tensor) -> Tensor:
        values = {self._names[id(self.weight)]: weight}
        if self.bias is not None:
            values[self._names[id(self.bias)]] = torch.zeros_like(self.bias)
        output: Tensor = functional_call(self.map, values, (p,))
        return output


def _slope(module: nn.Module) -> float | None:
    if isinstance(module, nn.ReLU):
        return 0.0
    return float(module.negative_slope) if isinstance(module, nn.LeakyReLU) else None
