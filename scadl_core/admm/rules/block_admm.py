"""Block-local ADMM: blocks of any layers, each trained by a few steps of any optimizer.

On a batch, all blocks at once, from messages of the iteration before:

    out = f(x);  phi = R(out; y) in the last block, else rho/2 ||out - t||^2
    W <- a step of the optimizer along grad_W phi / B
    x <- (rho c + tau x - grad_x phi) / (rho + tau)         c = o + lambda, from the block before
    lambda <- gamma (lambda + o - x)                        t = x - lambda, to the block before

No derivative crosses a cut, and only the last block sees targets. It is gsADMM (Wang et al. 2020,
"TSSM") with minibatches, a prox-linear x, and the majoriser tau measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scadl_core.admm.block import Block, Phase, Visit
from scadl_core.admm.rules.majoriser import curvature
from scadl_core.admm.rules.rule import Rule

MakeOptimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]
Precondition = Callable[[Block, torch.optim.Optimizer], torch.optim.Optimizer]


def adam(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with a rate of 1e-3."""
    return torch.optim.Adam(parameters, 1e-3)


@dataclass
class BlockADMM(Rule):
    """The block-local rule.

    Attributes:
        penalty: rho.
        steps: K, local steps an iteration.
        optimizer: Makes each block's optimizer from its parameters.
        precondition: Puts a second-order optimizer around it, such as K-FAC, which watches the
            block's layers; None: none.
        tau: Least majoriser, in units of rho.
        safety: The majoriser is at least this times the measured curvature of phi in x.
        every: Visits of a batch between two measurements of it (power iteration); 0: never.
        dual: gamma, 0 to 1; 0 is the pure penalty method.
        dual_below: Dual ascent begins in a boundary where ||o - x|| / ||o|| is below this.
        auxiliary: Weight of the heads' own loss, 0 to 1; more than 0 makes the rule a hybrid, whose
            blocks all see targets.
        follow: How much of a change of c moves x at once. With 0, as in gsADMM, x lags tau / rho
            iterations behind and holds the block before back where it was; with 1 what x keeps of
            the past is its difference from c.
    """

    penalty: float = 0.01
    steps: int = 1
    optimizer: MakeOptimizer = adam
    precondition: Precondition | None = None
    tau: float = 1.0
    safety: float = 2.0
    every: int = 20
    dual: float = 0.0
    dual_below: float = 0.05
    auxiliary: float = 0.0
    follow: float = 1.0
    staleness: int = 0

    hears_left = True
    hears_right = True

    @property
    def phases(self) -> Sequence[Phase]:
        """One."""
        return (self.step,)

    def check(self, block: Block) -> None:
        """Any module will do."""
        parameters = block.parameters()
        block.optimizer = self.optimizer(parameters) if parameters else None
        if block.optimizer is not None and self.precondition is not None:
            block.optimizer = self.precondition(block, block.optimizer)

    def begin(self, block: Block, visit: Visit, inputs: Tensor, outputs: Tensor) -> None:
        """All copies agree with the forward pass."""
        start = {} if block.is_first else {"x": inputs, "c": inputs}
        if not block.is_last:
            start["t"] = outputs
        if self.dual and not block.is_first:
            start["lambda"] = torch.zeros_like(inputs)
        block.variables.put(visit.batch, start)

    def step(self, block: Block, visit: Visit) -> None:
        """K local steps."""
        self._listen(block)
        v = block.variables.get(visit.batch)
        x = visit.inputs if block.is_first else v["x"]
        tau = self._majoriser(block, visit, v, x)
        if block.optimizer is not None:  # what has watched that
            block.optimizer.zero_grad()
        for _ in range(self.steps):
            out, phi, gradient = self._local_step(block, visit, v, x)
            if gradient is not None:
                rho = block.penalty
                x = (rho * self._consensus(v) + tau * x.detach() - gradient) / (rho + tau)
        if not block.is_last:
            block.send_right(visit.batch, out)
        block.facts = {"lagrangian": phi}
        if block.is_last:
            block.facts |= {"loss": phi, "samples": float(len(out))}
        if not block.is_first:
            self._settle(block, visit, v, x)

    def rescale(self, block: Block, penalty: float) -> None:
        """The scaled dual is u / rho."""
        for batch in block.variables.batches():
            v = block.variables.get(batch)
            if "lambda" in v:
                block.variables.put(batch, {"lambda": v["lambda"] * (block.penalty / penalty)})
        block.penalty = penalty

    def _listen(self, block: Block) -> None:
        for name, port in (("c", block.left), ("t", block.right)):
            for message in port.take_older_than(self.staleness) if port else ():
                moved = {name: message.value}
                if name == "c" and self.follow:
                    v = block.variables.get(message.batch)
                    moved["x"] = v["x"] + self.follow * (message.value - v["c"])
                block.variables.put(message.batch, moved)

    def _consensus(self, v: dict[str, Tensor]) -> Tensor:
        return v["c"] + v["lambda"] if "lambda" in v else v["c"]

    def _objective(self, block: Block, visit: Visit, v: dict[str, Tensor], out: Tensor) -> Tensor:
        if block.is_last:
            return block.loss(out, visit.targets)
        return 0.5 * block.penalty * (out - v["t"]).square().sum()

    def _local_step(
        self, block: Block, visit: Visit, v: dict[str, Tensor], x: Tensor
    ) -> tuple[Tensor, float, Tensor | None]:
        """One step of the block's weights; the output before it, phi, and the gradient in x."""
        if not block.is_first:  # the first one's may be a tuple
            x = x.detach().requires_grad_()
        out = block(x)
        phi = self._objective(block, visit, v, out)
        _show_curvature(block, out)
        parameters = block.parameters()
        gradient = None
        if not block.is_first:  # the heads' loss does not move x
            hybrid = self.auxiliary > 0 and block.head is not None
            wanted: list[Tensor] = [x] if hybrid else [x, *parameters]
            gradient, *slopes = torch.autograd.grad(
                phi, wanted, retain_graph=hybrid, allow_unused=True
            )
        if block.is_first or (self.auxiliary > 0 and block.head is not None):
            total = self._with_head(block, visit, out, phi)
            slopes = list(torch.autograd.grad(total, parameters, allow_unused=True))
        if block.optimizer is not None:
            for parameter, slope in zip(parameters, slopes, strict=True):
                parameter.grad = None if slope is None else slope / len(out)
            block.facts["samples"] = float(len(out))
            block.optimizer.step()
            block.optimizer.zero_grad()
        return out.detach(), float(phi.detach()), gradient

    def _with_head(self, block: Block, visit: Visit, out: Tensor, phi: Tensor) -> Tensor:
        if self.auxiliary == 0 or block.head is None:
            return phi
        local = block.loss(block.head(out), visit.targets)
        return (1 - self.auxiliary) * phi + self.auxiliary * local

    def _majoriser(
        self, block: Block, visit: Visit, v: dict[str, Tensor], x: Tensor
    ) -> Tensor | float:
        """tau, which has to majorise the curvature of phi in x: without, x explodes."""
        least = self.tau * block.penalty
        if block.is_first or not self.every:
            return least
        age = block.iteration - block.numbers.get(f"measured {visit.batch}", -math.inf)
        if age >= self.every * len(block.variables.batches()):
            block.numbers[f"measured {visit.batch}"] = block.iteration
            measured, _ = curvature(lambda at: self._objective(block, visit, v, block(at)), x)
            v["curvature"] = measured
            block.variables.put(visit.batch, {"curvature": measured})
        return (self.safety * v["curvature"]).clamp_min(least)

    def _settle(self, block: Block, visit: Visit, v: dict[str, Tensor], x: Tensor) -> None:
        x = x.detach()
        gap, scale = v["c"] - x, float(v["c"].square().sum())
        primal = float(gap.square().sum())
        moved = float((x - v["x"]).square().sum())
        kept = {"x": x}
        target = x
        if "lambda" in v:
            if primal <= self.dual_below**2 * scale or bool(v["lambda"].any()):
                v["lambda"] = self.dual * (v["lambda"] + gap)
            kept["lambda"], target = v["lambda"], x - v["lambda"]
        block.send_left(visit.batch, target)
        block.variables.put(visit.batch, kept)
        rho = block.penalty
        block.facts |= {
            "primal": primal, "dual": rho**2 * moved, "scale": scale,
            "lagrangian": block.facts["lagrangian"] + 0.5 * rho * primal,
        }  # fmt: skip


def _show_curvature(block: Block, out: Tensor) -> None:
    """To an optimizer that asks for it, of a block that is coupled to the next: its objective is
    that of a Gaussian likelihood, whose Fisher matrix is rho J^T J, wherever the target is.
    """
    optimizer: Any = block.optimizer
    if getattr(optimizer, "fisher", None) == "sampled":
        weight = math.sqrt(block.penalty / 2) / len(out)
        optimizer.sample_fisher(out, "gaussian", weight=weight)
