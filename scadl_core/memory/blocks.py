"""Blocks of a network that may be computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    known = dict(module.named_modules())
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
        running: The block that is at work.
        recompute: Names of those to be computed again.
        raw: Bytes that each saves uncompressed.
    """

    def __init__(self, modules: dict[str, nn.Module], ledger: Ledger) -> None:
        self.modules, self.ledger = modules, ledger
        self.known: dict[str, Recomputable] = {}
        self.running: str | None = None
        self.recompute: frozenset[str] = frozenset()
        self.raw: dict[str, int] = {}
        self._transient = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Replaces the blocks' forward methods for a while."""
        with ExitStack() as stack:
            for name, module in self.modules.items():
                had = module.__dict__.get("forward")
                module.forward = self._around(name, module.forward)
                stack.callback(_give_back, module, had)
            yield

    def release(self) -> None:
        """What was computed again is gone."""
        self.ledger.add(-self._transient, "")
        self._transient = 0

    def _around(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def again(*args: Any, **kwargs: Any) -> Any:
            if is_first[0]:
                is_first[0] = False
                return forward(*args, **kwargs)
            self.release()
            self._transient = self.raw.get(name, 0)
            self.ledger.add(self._transient, "")
            with _counting_once(self.modules[name]):
                return forward(*args, **kwargs)

        is_first = [True]

        def run(*args: Any, **kwargs: Any) -> Any:
            outer, self.running = self.running, name
            began, coded = perf_counter(), self.ledger.seconds
            try:
                if name not in self.recompute:
                    return forward(*args, **kwargs)
                is_first[0] = True
                return checkpoint(again, *args, use_reentrant=False, **kwargs)
            finally:
                self.running = outer
                if name not in self.recompute:
                    leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
                    seconds = perf_counter() - began - (self.ledger.seconds - coded)
                    inputs = sum(t.nbytes for t in leaves)
                    if name in self.known:
                        seconds = min(seconds, self.known[name].seconds)
                    self.known[name] = Recomputable(name, seconds, inputs)

        return run


@contextmanager
def _counting_once(block: nn.Module) -> Iterator[None]:
    """Running statistics of a batch that was seen before stay as they are."""
    norms = [it for it in block.modules() if isinstance(it, _BatchNorm)]
    before = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    try:
        yield
    finally:  # the checkpoint leaves early, by an exception, when it has all it needs
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _give_back(module: nn.Module, had: Any) -> None:
    if had is None:
        del module.forward
    else:
        module.forward = had
