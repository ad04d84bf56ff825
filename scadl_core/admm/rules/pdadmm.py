"""pdADMM-G: every layer a block, every sub-problem solved by itself.

Wang et al. 2022, IEEE TNNLS, arXiv:2105.09837. Problem 2 of it:

    min R(z_L; y) + nu/2 (sum_l ||z_l - W_l p_l - b_l||^2 + sum_{l<L} ||q_l - f_l(z_l)||^2)
    s.t. p_{l+1} = q_l

Here the dual travels inside s_l = q_l - u_l / rho, since p_{l+1} needs q and u in this combination
alone: two tensors a boundary and iteration instead of three, and the same iterates.

Samples are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scadl_core.admm.block import Block, Phase, Visit
from scadl_core.admm.rules.affine import Affine
from scadl_core.admm.rules.output import solve_output
from scadl_core.admm.rules.rule import Rule
from scadl_core.errors import ConfigError

# Lemma 5 of the paper: the Lagrangian falls if rho > max(4 nu S^2, (sqrt(17) + 1) nu / 2), where S
# is the Lipschitz constant of the activation, here 1.
PROVEN = 4.0
_DOUBLINGS = 60


@dataclass
class PdADMM(Rule):
    """The closed-form rule; every iteration needs all samples.

    Attributes:
        penalty: rho. The default is in the proven range.
        nu: Penalty of the layers' equations; None: always rho, as the released code has it, which
            is outside of the proven range.
        weight_decay: mu, added as mu/2 ||W||^2 (released code only).
        first_step: Where backtracking begins each time, as published (20 in the code); None: from
            the last one's half, so that steps are as long as the test allows.
        tolerance: Of FISTA in the output block.
        fista_steps: Of it, at most.
        convergent: Checks the proven range, and solves the output block to 1e-12.
    """

    penalty: float = 0.05
    nu: float | None = 0.01
    weight_decay: float = 0.0
    first_step: float | None = None
    tolerance: float = 1e-3
    fista_steps: int = 50
    convergent: bool = False

    hears_left = True
    hears_right = False

    def __post_init__(self) -> None:
        if self.convergent:
            nu = self.penalty if self.nu is None else self.nu
            if not self.penalty > PROVEN * nu:
                raise ConfigError(
                    f"ADMM: rule=pdadmm with convergent=true needs rho > {PROVEN:g} nu, got "
                    f"rho={self.penalty:g} and nu={nu:g}"
                )
            self.tolerance, self.fista_steps = 1e-12, 2000

    @property
    def phases(self) -> Sequence[Phase]:
        """First p, W, b and z of all layers; then q and u."""
        return (self.primal, self.dual)

    def check(self, block: Block) -> None:
        """See :class:`Affine`; only the last layer goes without an activation."""
        affine = Affine(block.module, f"block {block.index}")
        if block.is_last != (affine.slope is None):
            expected = "no activation" if block.is_last else "ReLU or LeakyReLU"
            raise ConfigError(
                f"ADMM: block {block.index}: rule=pdadmm expects {expected} at its end; use "
                "rule=block_admm for other networks"
            )
        block.affine = affine

    @torch.no_grad()
    def begin(self, block: Block, visit: Visit, inputs: Tensor, outputs: Tensor) -> None:
        """Feasible: every equation holds, all duals are 0."""
        if visit.batch != 0:
            raise ConfigError(
                "ADMM: rule=pdadmm needs all samples in one batch, in each iteration; raise the "
                "batch size to their number, or use rule=block_admm"
            )
        m = block.affine(inputs)
        start = {"p": inputs, "z": m, "m": m}
        if not block.is_first:
            start["s"] = inputs
        if not block.is_last:
            start |= {"q": outputs, "u": torch.zeros_like(outputs)}
        block.variables.put(visit.batch, start)

    @torch.no_grad()
    def primal(self, block: Block, visit: Visit) -> None:
        """p, W, b, z in turn."""
        v, nu = block.variables.get(visit.batch), self._nu(block)
        if block.left is not None:
            for message in block.left.take_older_than(self.staleness):
                v["s"] = message.value
            self._update_p(block, v, nu)
            block.send_left(visit.batch, v["p"])
        self._update_weight(block, v, nu)
        if block.is_last:
            block.finite(v["m"])
            v["z"] = solve_output(
                block.loss, v["m"], visit.targets, nu, v["z"],
                steps=self.fista_steps, tolerance=self.tolerance,
            )  # fmt: skip
        else:
            v["z"] = update_z(v["m"], v["q"], v["z"], block.affine.slope or 0.0)
        block.variables.put(visit.batch, v)
        self._measure(block, v, visit, nu)

    @torch.no_grad()
    def dual(self, block: Block, visit: Visit) -> None:
        """Then q and u, by what the layer after has made of p."""
        block.penalty = block.numbers.pop("penalty", block.penalty)
        if block.is_last:
            return
        v, nu, rho = block.variables.get(visit.batch), self._nu(block), block.penalty
        p = block.take_right().value
        f = block.affine.activation(v["z"])
        q = (rho * p + v["u"] + nu * f) / (rho + nu)
        u = v["u"] + rho * (p - q)
        block.send_right(visit.batch, q - u / rho)
        gap = p - q
        block.facts |= {
            "primal": float(gap.square().sum()),
            "dual": rho**2 * float((q - v["q"]).square().sum()),
            "scale": float(q.square().sum()),
            "lagrangian": block.facts["lagrangian"]
            + 0.5 * nu * float((q - f).square().sum())
            + float((u * gap).sum())
            + 0.5 * rho * float(gap.square().sum()),
        }
        block.variables.put(visit.batch, {"q": q, "u": u})

    def rescale(self, block: Block, penalty: float) -> None:
        """From the next dual update on: what is under way was made with the old one."""
        block.numbers["penalty"] = penalty

    def _nu(self, block: Block) -> float:
        return block.penalty if self.nu is None else self.nu

    def _update_p(self, block: Block, v: dict[str, Tensor], nu: float) -> None:
        rho, affine = block.penalty, block.affine
        g = nu * affine.adjoint(v["m"] - v["z"], v["p"]) + rho * (v["p"] - v["s"])
        image = affine.linear(g)
        squares = float(g.square().sum())
        if squares > 0:
            curvature = (nu * float(image.square().sum())) / squares + rho
            tau = self._backtrack(block, "tau", curvature)
            v["p"] = v["p"] - g / tau
            v["m"] = v["m"] - image / tau

    def _update_weight(self, block: Block, v: dict[str, Tensor], nu: float) -> None:
        affine, mu = block.affine, self.weight_decay
        g = nu * affine.adjoint_weight(v["m"] - v["z"], v["p"]) + mu * affine.weight
        squares = float(g.square().sum())
        if squares > 0:
            image = affine.by_weight(v["p"], g)
            curvature = nu * float(image.square().sum()) / squares + mu
            theta = self._backtrack(block, "theta", curvature)
            affine.weight -= g / theta
            v["m"] = v["m"] - image / theta
        if affine.bias is not None:
            affine.bias -= affine.mean_bias(v["m"] - v["z"], v["p"])
        v["m"] = affine(v["p"])

    def _backtrack(self, block: Block, name: str, curvature: float) -> float:
        """The step that backtracking finds.

        The sub-problem is quadratic, so that the test phi(x - g/t) <= phi(x) - ||g||^2 / (2t) is
        g' H g <= t ||g||^2, and trials need not be evaluated.
        """
        step = self.first_step or block.numbers.get(name, 2 * curvature) / 2
        for _ in range(_DOUBLINGS):
            if step >= curvature:
                break
            step *= 2
        block.numbers[name] = step
        return step

    def _measure(self, block: Block, v: dict[str, Tensor], visit: Visit, nu: float) -> None:
        gap = float((v["z"] - v["m"]).square().sum())
        decay = self.weight_decay * float(block.affine.weight.square().sum())
        block.facts = {"lagrangian": 0.5 * nu * gap + 0.5 * decay}
        if block.is_last:
            loss = float(block.loss(v["z"], visit.targets))
            block.facts["lagrangian"] += loss
            block.facts |= {"loss": loss, "samples": float(len(v["z"]))}


def update_z(m: Tensor, q: Tensor, z: Tensor, slope: float) -> Tensor:
    """The minimum over z of (z - m)^2 + (q - f(z))^2 + (z - z_k)^2, elementwise, f leaky ReLU.

    The published code compares its two candidates without the last term; with it the update is the
    minimiser, which the proof of descent needs.

    Args:
        m: What the layer gives.
        q: Its output variable.
        z: z_k, the last one.
        slope: Of f below 0; 0 for ReLU.
    """
    below = ((m + z + slope * q) / (2 + slope * slope)).clamp_max(0)
    above = ((m + z + q) / 3).clamp_min(0)

    def value(at: Tensor, f: Tensor) -> Tensor:
        return (at - m).square() + (q - f).square() + (at - z).square()

    return torch.where(value(above, above) < value(below, slope * below), above, below)
