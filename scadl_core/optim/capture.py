"""Hooks that read inputs and output gradients of layers while a model trains."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scadl_core.optim.factors import Tally
from scadl_core.optim.layers import Call, Coverage, Layer, Picker, attention


class Capture:
    """Collects the statistics of all layers of a model.

    A forward pass counts when the gradient of its output arrives: passes without one (validation,
    the first of two under activation checkpointing) leave nothing. Hooks are on outputs, before
    whatever changes them in place; a hook on the module's backward would not allow that.

    Args:
        coverage: The layers and the modules that show them.
        positions: How many positions a sample are looked at by expand; None for all.
        on_arrival: Called with the layer after each gradient.
    """

    def __init__(
        self, coverage: Coverage, positions: int | None, on_arrival: Callable[[Layer], None]
    ) -> None:
        self.tallies = {layer.name: Tally(layer) for layer in coverage.layers}
        self.positions, self.on_arrival = positions, on_arrival
        self.is_on, self.listens, self.seed = True, True, 0
        self.last: tuple[Layer, Call] | None = None
        self.remembers = False
        self.seen_output: tuple[Tensor, Tensor, Layer, Call] | None = None
        self._undo: list[Callable[[], None]] = []
        for module, layers in coverage.modules:
            if isinstance(module, nn.MultiheadAttention):
                self._undo.append(attention.attach(module, layers, self.observe))  # type: ignore[arg-type]
            else:
                hook = _Hook(self, module, layers[0])
                handle = module.register_forward_hook(hook, with_kwargs=True)
                self._undo.append(handle.remove)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def observe(self, layer: Layer, inputs: Tensor, output: Tensor) -> None:
        """Reads one forward pass."""
        is_seen = self.is_on and torch.is_grad_enabled() and output.requires_grad
        if not is_seen or not output.numel():  # a rank may have no sample of the last batch
            return
        tally = self.tallies[layer.name]
        # Recomputation under checkpointing is a forward pass within a backward one.
        if tally.arrived and torch._C._current_graph_task_id() == -1:
            tally.fold()
        with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
            pick = Picker(self.positions, self.seed)
            call = layer.observe(inputs.detach(), output, pick)
            if not layer.reduced and not call.is_gram and call.input_rows is not None:
                assert layer.input_side is not None
                call.input_rows, call.is_gram = layer.input_side.gram(call.input_rows), True
        tally.waiting += 1
        self.last = layer, call
        seen = output.detach() if self.remembers else None
        output.register_hook(partial(self._arrive, layer, call, seen))

    def _arrive(self, layer: Layer, call: Call, output: Tensor | None, gradient: Tensor) -> None:
        if not self.listens:
            return
        if output is not None and self.last is not None and self.last[1] is call:
            self.seen_output = output, gradient.detach().clone(), layer, call
        with torch.no_grad(), torch.autocast(gradient.device.type, enabled=False):
            rows = layer.gradient_rows(gradient.detach(), call, Picker(self.positions, self.seed))
            self.tallies[layer.name].add(call, rows)
        self.on_arrival(layer)

    def end_pass(self) -> None:
        """Separates backward passes over the same forward pass."""
        for tally in self.tallies.values():
            tally.fold_gradients()

    def take(self) -> dict[str, Tally]:
        """The tallies of all layers, complete; :meth:`clear` empties them."""
        for tally in self.tallies.values():
            tally.fold()
        return self.tallies

    def clear(self) -> None:
        """Forgets what no step has used."""
        for tally in self.tallies.values():
            tally.clear()

    def close(self) -> None:
        """Removes the hooks."""
        for undo in self._undo:
            undo()
        self._undo.clear()


class _Hook:
    """A forward hook that does not travel with copies of its module, and keeps nothing alive."""

    def __init__(self, capture: Capture, module: nn.Module, layer: Layer) -> None:
        self.capture, self.module = weakref.ref(capture), weakref.ref(module)
        self.layer = weakref.ref(layer)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        capture, layer = self.capture(), self.layer()
        if (
            capture is not None
            and layer is not None
            and module is self.module()
            and module.training
        ):
            inputs = args[0] if args else next(iter(kwargs.values()))
            capture.observe(layer, inputs, output)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Silent, ()


class _Silent:
    """What a hook becomes in a pickled module."""

    def __call__(self, *_: Any) -> None:
        """Nothing."""
