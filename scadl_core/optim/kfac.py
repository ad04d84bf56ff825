"""K-FAC: an optimizer around an optimizer.

    optimizer = KFAC(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    ...
    optimizer.zero_grad(); loss(model(x), y).backward(); optimizer.step()

Every gradient is multiplied by the inverse of a Kronecker-factored approximation of the Fisher
matrix (Martens & Grosse 2015; Grosse & Martens 2016 for convolutions) before the inner optimizer
sees it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from scadl_core.comm import World
from scadl_core.optim import arguments
from scadl_core.optim.arguments import at
from scadl_core.optim.capture import Capture
from scadl_core.optim.curvature import Curvature, make_groups
from scadl_core.optim.exchange import Exchange
from scadl_core.optim.explain import Report, explain
from scadl_core.optim.factors import Tally
from scadl_core.optim.fisher import sample_fisher
from scadl_core.optim.layers import Coverage, Layer, find_layers
from scadl_core.optim.reduction import (
    CHECKED_SAMPLES,
    compare_reduction,
    gradient_scale,
    softmax_normaliser,
    warn_of_normaliser,
)
from scadl_core.optim.renewal import Renewal
from scadl_core.optim.state import load_state, save_state

Schedule = float | Callable[[int], float]
Period = int | Callable[[int], int]


class KFAC(Optimizer):
    """Preconditions gradients, then lets the inner optimizer step.

    Laws: the step works in any loop and under Lightning; no exception leaves it because a factor is
    ill-conditioned; a gradient that is not finite changes nothing but a counter; a model's modules
    are not changed (an nn.MultiheadAttention computes the same through other functions).

    Args:
        model: Whose layers are preconditioned; wrapped or compiled too.
        inner: An optimizer of the model's parameters, or what makes one from (parameters, lr=...);
            by default SGD with Nesterov momentum 0.9. Its learning rate is this optimizer's.
        lr: Of an inner optimizer that is made here.
        damping: Added to the Fisher matrix, in units of the squared gradient of the loss.
        decay: Of the averages of factors.
        factor_period: Steps between statistics; in the first ``burn_in`` steps each counts.
        inverse_period: Steps between inversions.
        refresh_above: With a residual above it old inverses are renewed at those times, else kept;
            0 renews always.
        burn_in: Steps at the beginning, at whose end all is inverted besides.
        kl_clip: Bounds ``lr^2 g^T F^-1 g``, by which a step changes the model (Ba et al. 2017);
            None does not.
        approximation: Of weight sharing: "expand", "reduce", or "auto" (reduce for convolutions).
        positions: How many positions of a sample expand looks at, at random; None for all.
        inverse: "cholesky", "eigen" or "ekfac".
        fisher: "empirical", from the gradients of the loss, or "sampled", from
            :meth:`sample_fisher`, which the loop then calls between forward and backward.
        loss_reduction: "mean" over samples; "sum"; "positions": a mean over samples and positions,
            each with its own loss. A cross-entropy is checked at the first step.
        max_size: Rows of a factor above which only its diagonal is used.
        skip: Patterns of names or classes of modules left to the inner optimizer.
        fraction: Of all ranks, those that precondition a layer: from 1 (least communication) to
            one over their number (least memory and computation; KAISA, Pauloski et al. 2021).
        local_factors: Factors from the owner's own samples alone: no factor is sent.
        compression: None, or eps in (0, 1): factors are sent with an error that changes an inverse
            by at most eps/(1-eps) of its norm.
        scaler: The GradScaler of automatic mixed precision, if one scales the loss.
        world: The processes; by default those of torch.distributed, if it is initialised.
        seed: Of positions and sampled labels.

    Raises:
        ConfigError: An argument that is none of these.
    """

    takes_model = True  # made from a model, where others are from parameters

    def __init__(
        self,
        model: nn.Module,
        inner: Optimizer | Callable[..., Optimizer] | None = None,
        *,
        lr: float = 0.1,
        damping: Schedule = 1e-2,
        decay: float = 0.95,
        factor_period: Period = 1,
        inverse_period: Period = 10,
        refresh_above: float = 0.0,
        burn_in: int = 10,
        kl_clip: Schedule | None = 1e-3,
        approximation: str = "auto",
        positions: int | None = 256,
        inverse: str = "cholesky",
        fisher: str = "empirical",
        loss_reduction: str = "mean",
        max_size: int = 4096,
        skip: Sequence[str] = (),
        fraction: float = 1.0,
        local_factors: bool = False,
        compression: float | None = None,
        scaler: Any = None,
        world: World | None = None,
        seed: int = 0,
    ) -> None:
        arguments.check(locals())
        arguments.check_model(model)
        arguments.check_skip(skip, model)
        self.inner = arguments.make_inner(inner, model, lr)
        super().__init__(self.inner.param_groups, self.inner.defaults)
        self._share()
        self.damping, self.decay, self.kl_clip = damping, decay, kl_clip
        self.factor_period, self.inverse_period = factor_period, inverse_period
        self.burn_in = burn_in
        self.loss_reduction, self.scaler, self.seed = loss_reduction, scaler, seed
        self.inverse, self.fisher = inverse, fisher
        self.steps, self.counters = 0, dict.fromkeys(("skipped", "retried", "kept", "refreshed"), 0)
        rates = {id(p): n for n, group in enumerate(self.param_groups) for p in group["params"]}
        self.coverage: Coverage = find_layers(model, approximation, max_size, skip)
        layers = [x for x in self.coverage.layers if all(id(p) in rates for p in x.parameters)]
        self.exchange = Exchange(layers, fraction, local_factors, compression, world)
        self.groups = make_groups(
            layers, lambda layer: (rates[id(layer.parameters[0])], self.exchange.column(layer))
        )
        self.curvature = Curvature(self.exchange.owned, self.exchange.worked, self.groups, inverse)
        self._covered = {id(p) for layer in layers for p in layer.parameters}
        self.layers = {layer.name: layer for layer in layers}
        self.renewal = Renewal(
            self.groups, self.curvature, self.exchange, refresh_above, seed, self.counters
        )
        self.capture = Capture(self.coverage, positions, self.exchange.arrived)
        self.capture.listens = fisher == "empirical"
        self.overlap(model)
        self.ready: set[str] = set()
        self._is_checked = fisher == "sampled"
        self._skipped_on_device: Tensor | int = 0
        self._prepare()

    def _share(self) -> None:
        """Groups and state are the inner optimizer's, for schedulers and for whoever moves them."""
        self.param_groups, self.state = self.inner.param_groups, self.inner.state

    def _prepare(self) -> None:
        """Makes ready for the statistics of the coming step."""
        period = int(at("factor_period", self.factor_period, self.steps))
        self.capture.clear()
        self.capture.is_on = self.steps < self.burn_in or self.steps % period == 0
        self.capture.seed = self.seed * 1_000_003 + self.steps
        self.capture.remembers = not self._is_checked

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Preconditions the gradients and takes the inner optimizer's step.

        Args:
            closure: Computes the loss and its gradients first; the inner optimizer gets none.

        Returns:
            The loss of the closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        damping = float(at("damping", self.damping, self.steps))
        if self.capture.is_on:
            self._check_reduction()
            self._take_statistics()
        self.renewal.step(self.steps, self.ready, self._when(), damping)
        is_finite = self._precondition(damping)
        self._inner_step(is_finite)
        self._prepare()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients, and statistics that no step has used (a step that AMP has skipped)."""
        self.capture.clear()
        self.inner.zero_grad(set_to_none)

    def sample_fisher(
        self,
        output: Tensor,
        likelihood: str = "categorical",
        samples: int | None = 1,
        weight: float | None = None,
    ) -> None:
        """Takes statistics of the Fisher matrix of the model, between forward and backward pass.

        For ``fisher="sampled"``. Gradients of parameters are not touched.

        Args:
            output: (N, K, ...) of the model, with its graph.
            likelihood: See :func:`scadl_core.optim.fisher.output_gradients`.
            samples: Labels drawn from the model; None for the exact Fisher matrix, at the cost of
                K backward passes.
            weight: By what the loss multiplies that of one position, if it is not one of PyTorch's
                with ``loss_reduction``.
        """
        if self.capture.is_on:
            sample_fisher(self, output, likelihood, samples, weight)

    def check_reduction(self, loss: Callable[[slice], Tensor], samples: int) -> float:
        """Compares the curvature with gradients of single samples; warns when it is off by ten.

        Args:
            loss: The training loss of a slice of a batch.
            samples: In that batch; 8 of them are used.

        Returns:
            tr(A) tr(G) over the mean squared gradient of a sample, summed over layers.
        """
        return compare_reduction(self, loss, min(samples, CHECKED_SAMPLES))

    def _check_reduction(self) -> None:
        seen = self.capture.seen_output
        if self._is_checked or seen is None:
            return
        self._is_checked, self.capture.remembers, self.capture.seen_output = True, False, None
        output, gradient, layer, call = seen
        found = softmax_normaliser(output[:CHECKED_SAMPLES], gradient[:CHECKED_SAMPLES])
        if found is not None:
            found /= float(self._loss_scale(output.device) or 1.0)
            samples = self.capture.tallies[layer.name].samples  # of all micro-batches
            warn_of_normaliser(found, self.loss_reduction, samples, call.positions)

    def _loss_scale(self, device: torch.device) -> Tensor | None:
        """By what AMP has multiplied the loss, left on the device."""
        if self.scaler is None or self.fisher == "sampled":
            return None
        scale: Tensor = self.scaler.scale(torch.ones((), device=device))
        return scale

    def _take_statistics(self) -> None:
        tallies = self.capture.take()
        self._samples = max((tally.samples for tally in tallies.values()), default=0)
        new = [name for name in self.layers if name not in self.ready]
        if len(new) == len(self.layers):
            self._warn_of_silence(tallies)
        if new:
            found = self.exchange.any([tallies[name].samples > 0 for name in new])
            self.ready |= {name for name, is_there in zip(new, found, strict=True) if is_there}
        parts = 1 if self.exchange.local_factors else self.exchange.world.size
        for name, totals in self.exchange.collect(tallies).items():
            scales = self._scales(self.layers[name], totals.samples, totals.rows, parts)
            self.curvature.averages.update(self.layers[name], totals.sums, scales, self.decay)

    def _warn_of_silence(self, tallies: dict[str, Tally]) -> None:
        has_gradients = any(layer.has_gradient for layer in self.layers.values())
        if has_gradients and not any(tally.samples for tally in tallies.values()):
            advice = "layers are watched in training mode: call model.train(), and eval() of the "
            advice += "modules alone that are to stay frozen"
            if self.fisher == "sampled":
                advice = "call sample_fisher between forward and backward pass"
            warnings.warn(
                f"KFAC: no layer was seen in this step, so no gradient is preconditioned; {advice}",
                stacklevel=4,
            )

    def _scales(
        self, layer: Layer, samples: Tensor | float, rows: Tensor | float, parts: int
    ) -> dict[str, Tensor | float]:
        """What sums over that many samples and rows, of so many ranks, are multiplied by."""
        terms = self.capture.last[1].positions if self.capture.last else 1
        scale = gradient_scale(self.loss_reduction, samples / parts, rows, terms)
        loss_scale = self._loss_scale(layer.device)
        if loss_scale is not None:
            scale = scale / loss_scale.square()
        return {"A": 1 / samples, "G": scale}

    def _local_scales(self, layer: Layer, counts: Sequence[float]) -> dict[str, float] | None:
        samples, rows = counts
        if not samples:
            return None
        return {name: float(s) for name, s in self._scales(layer, samples, rows, 1).items()}

    def _when(self) -> str:
        """Which factors are looked at in this step."""
        if self.steps == self.burn_in:
            return "all"
        if self.steps % self.period_of_inversion():
            return "new"
        return "probe" if self.renewal.refresh_above else "all"

    def _precondition(self, damping: float) -> Tensor:
        """Replaces the gradients; returns whether all were finite, on the device."""
        gradients = [group.matrices() for group in self.groups]
        products = []
        for group, gradient in zip(self.groups, gradients, strict=True):
            if not self.exchange.works(group):
                products.append(torch.empty_like(gradient))
                continue
            if self.curvature.is_corrected and self.capture.is_on:
                samples = self._samples * self.exchange.world.size
                self.curvature.correct(group, gradient, samples, self.decay)
            products.append(self.curvature.precondition(group, gradient, damping))
        self.exchange.share_gradients(self.groups, products)
        rates = [float(self.param_groups[group.rate]["lr"]) ** 2 for group in self.groups]
        total = sum(
            (
                r * torch.dot(p.flatten(), g.flatten()).double()
                for r, p, g in zip(rates, products, gradients, strict=True)
            ),
            torch.zeros((), dtype=torch.float64),
        )
        is_finite = total.isfinite()
        if others := self._other_gradients():
            is_finite = is_finite & torch.stack(torch._foreach_norm(others)).isfinite().all()
        if self.kl_clip is not None and products:
            limit = float(at("kl_clip", self.kl_clip, self.steps))
            torch._foreach_mul_(
                products,
                (limit / (total.abs() + 1e-30)).sqrt().clamp(max=1.0).to(products[0].dtype),
            )
        for group, product in zip(self.groups, products, strict=True):
            group.assign(product, lambda layer: layer.name in self.ready)
        return is_finite

    def _other_gradients(self) -> list[Tensor]:
        """Values of the gradients that are not preconditioned; groups may have been added."""
        every = (p for group in self.param_groups for p in group["params"])
        found = [p.grad for p in every if p.grad is not None and id(p) not in self._covered]
        return [it.coalesce().values() if it.is_sparse else it for it in found]

    def _inner_step(self, is_finite: Tensor) -> None:
        if self.inner.defaults.get("fused"):  # skips by itself, and nobody waits for the device
            self.inner.grad_scale, self.inner.found_inf = None, (~is_finite).float()  # type: ignore[attr-defined]
            self._skipped_on_device = self._skipped_on_device + ~is_finite
        elif not bool(is_finite):
            self.counters["skipped"] += 1
            return
        self.inner.step()
        self.steps += 1

    def report(self) -> dict[str, float]:
        """What has happened so far: steps ``skipped`` for gradients that were not finite; factors
        ``retried`` with more damping, ``kept`` from before, ``refreshed``; statistics ``refused``
        by this rank; ``factor_bytes`` it has sent, ``factor_ratio`` of full float32 matrices to
        them; with compression ``factor_error``, the largest error over the damping.
        """
        refused = sum(int(n) for n in self.curvature.averages.refused.values())
        skipped = self.counters["skipped"] + int(self._skipped_on_device)
        return {**self.counters, "skipped": skipped, "refused": refused, **self.exchange.report()}

    def explain(self) -> Report:
        """What is preconditioned, by whom and at what price, and what is not."""
        return explain(self)

    def overlap(self, ddp: nn.Module) -> None:
        """Sends statistics while the backward passes of this DistributedDataParallel go on; done by
        itself when the optimizer is made from one.
        """
        self.exchange.listen(self.capture.tallies, ddp, self._local_scales)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, and under "kfac" all factors and inverses, which ranks that
        have them send to all: every rank calls this.
        """
        return {**self.inner.state_dict(), "kfac": save_state(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on exactly where the state was saved, by any number of ranks.

        Raises:
            RunError: It is not the state of K-FAC on such a model.
        """
        rest = dict(state_dict)
        load_state(self, rest.pop("kfac", None))
        self.inner.load_state_dict(rest)
        self._share()
        self._prepare()

    def period_of_inversion(self) -> int:
        """Steps between inversions, at present."""
        return int(at("inverse_period", self.inverse_period, self.steps))

    def close(self) -> None:
        """Removes the hooks from the model, which is then as it was."""
        self.capture.close()
