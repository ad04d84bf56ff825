"""Blocks of a network that may be computed again in the backward pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from scadl_core.errors import ActivationError, nearest
from scadl_core.memory.ledger import Ledger
from scadl_core.memory.planner import Recomputable


def find_blocks(module: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    """The blocks of a network.

    Args:
        module: The network.
        names: Of its modules; a list of modules means each in it. Empty: what is in the outermost
            lists and sequences and has parameters, without those that count batches, whose running
            statistics would see a batch twice.

    Raises:
        ActivationError: There is no such module.
    """
    known = {name: it for name, it in module.named_modules() if name}
    for name in names:
        if name not in known:
            raise ActivationError(f"blocks: there is no module {name!r}{nearest(name, known)}")
    roots = [(name, known[name]) for name in names] if names else list(_outermost(module, ""))
    found: dict[str, nn.Module] = {}
    for name, root in roots:
        if isinstance(root, nn.ModuleList) or not names:
            inner = {f"{name}.{key}".lstrip("."): it for key, it in root.named_children()}
            found |= {key: it for key, it in inner.items() if names or _is_suitable(it)}
        else:
            found[name] = root
    return found


def _outermost(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        yield name, module
        return
    for key, child in module.named_children():
        yield from _outermost(child, f"{name}.{key}".lstrip("."))


def _is_suitable(block: nn.Module) -> bool:
    counts = any(isinstance(it, _BatchNorm) for it in block.modules())
    return not counts and next(block.children(), None) is not None


class Blocks:
    """Watches blocks at work, and computes those again that the plan says.

    Args:
        modules: By name.
        ledger: Where what a block holds while it is computed again is counted.

    Attributes:
        known: Seconds and input bytes of each.
        recompute: Names of those to be computed again.
        raw: Bytes that each saves uncompressed.
    """

    def __init__(self, modules: dict[str, nn.Module], ledger: Ledger) -> None:
        self.modules, self.ledger = modules, ledger
        self.known: dict[str, Recomputable] = {}
        self._local = threading.local()
        self._watchers = 0
        self._had: dict[str, Any] = {}
        self.recompute: frozenset[str] = frozenset()
        self.raw: dict[str, int] = {}
        self._transient = 0

    @property
    def running(self) -> str | None:
        """The block that is at work in this thread."""
        return getattr(self._local, "running", None)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Replaces the blocks' forward methods for a while, once for all threads."""
        with self.ledger.lock:
            self._watchers += 1
            if self._watchers == 1:
                self._had = {name: it.__dict__.get("forward") for name, it in self.modules.items()}
                for name, module in self.modules.items():
                    module.forward = self._around(name, module.forward)
        try:
            yield
        finally:
            with self.ledger.lock:
                self._watchers -= 1
                if self._watchers == 0:
                    for name, module in self.modules.items():
                        _give_back(module, self._had[name])

    def release(self) -> None:
        """What was computed again is gone."""
        self.ledger.add(-self._transient, "")
        self._transient = 0

    def _twice(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A forward pass that may come a second time, from the same buffers as the first."""
        changed: list[tuple[Tensor, Tensor]] | None = None

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal changed
            if changed is None:
                buffers = [(it, it.clone()) for it in self.modules[name].buffers()]
                output = forward(*args, **kwargs)
                # Batch normalisation does not count what it changes as a new version.
                changed = [(it, value) for it, value in buffers if not torch.equal(it, value)]
                return output
            self.release()
            self._transient = self.raw.get(name, 0)
            self.ledger.add(self._transient, "")
            with _as_before(changed):
                return forward(*args, **kwargs)

        return run

    def _around(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            outer, self._local.running = self.running, name
            began, coded = perf_counter(), self.ledger.seconds
            try:
                if name not in self.recompute:
                    return forward(*args, **kwargs)
                again = self._twice(name, forward)
                return checkpoint(again, *args, use_reentrant=False, **kwargs)
            finally:
                self._local.running = outer
                if name not in self.recompute:
                    leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
                    seconds = perf_counter() - began - (self.ledger.seconds - coded)
                    inputs = sum(t.nbytes for t in leaves)
                    if name in self.known:
                        seconds = min(seconds, self.known[name].seconds)
                    self.known[name] = Recomputable(name, seconds, inputs)

        return run


@contextmanager
def _as_before(before: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Buffers are for a while what they were; what a batch has changed in them stays, once.

    Args:
        before: Buffers, and their values then.
    """
    after = [(buffer, buffer.clone()) for buffer, _ in before]
    try:
        _copy(before)
        yield
    finally:  # the checkpoint leaves early, by an exception, when it has all it needs
        _copy(after)


@torch.no_grad()
def _copy(values: Sequence[tuple[Tensor, Tensor]]) -> None:
    for buffer, value in values:
        buffer.copy_(value)


def _give_back(module: nn.Module, had: Any) -> None:
    if had is None:
        del module.forward
    else:
        module.forward = had
