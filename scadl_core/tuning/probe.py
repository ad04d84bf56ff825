"""Measures a machine in about two seconds, once for each host, backend and number of ranks.

All ranks do the same at a time, so that what they share is shared as in a training; of each number
that of the slowest rank counts. The answers are kept as plain JSON in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scadl_core.admm.steptime import Link
from scadl_core.comm import World
from scadl_core.compress import Absolute, decode, encode, from_bytes, to_bytes
from scadl_core.errors import ScadlError
from scadl_core.files import write_json
from scadl_core.memory.budget import device_bytes
from scadl_core.tuning.machine import Machine

VERSION = 1  # of the file; another one is measured again
_SMALL, _LARGEST, _ENOUGH = 1024, 2**24, 0.1  # bytes, bytes, seconds
_SIZES = (64, 256, 768)


def probe(world: World, device: torch.device, again: bool = False) -> Machine:
    """The machine of this run, measured or from the cache; every rank calls it.

    Args:
        world: The processes.
        device: Of this rank.
        again: Measures also where the cache has an answer.
    """
    path = cache_folder() / f"{_key(world, device)}.json"
    known = None if again else world.first(lambda: _read(path))
    if known is not None:
        return known
    machine = measure(world, device)
    world.first(lambda: _write(path, machine))
    return machine


def cache_folder() -> Path:
    """``scadl`` in ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scadl"


def measure(world: World, device: torch.device) -> Machine:
    """The machine of this run, measured; every rank calls it."""
    rates = world.gather(_rates(world, device))
    lowest: dict[str, Any] = {name: min(rate[name] for rate in rates) for name in rates[0]}
    machine = Machine(
        ranks=world.size, ranks_per_node=max(1, world.size // world.num_nodes),
        factor=_factor(world, device), memory=min(world.gather(_memory(world, device))),
        **lowest, **_links(world, device),
    )  # fmt: skip
    # A fit differs in its last bit from rank to rank, and plans with it.
    return world.first(lambda: machine)


def best_of(
    function: Callable[[], Any], device: torch.device, times: int = 3,
    before: Callable[[], Any] = lambda: None,
) -> float:  # fmt: skip
    """Seconds of the fastest call, after one that does not count.

    Args:
        function: What to call.
        device: Where it works.
        times: How often.
        before: Called before each, outside of the clock.
    """
    function()
    found = []
    for _ in range(times):
        before()
        _wait(device)
        began = perf_counter()
        function()
        _wait(device)
        found.append(perf_counter() - began)
    return min(found)


def fit_link(small: tuple[float, float], large: tuple[float, float], ranks: int) -> Link:
    """Latency and bandwidth from two all-reduces, by the law of
    :meth:`scadl_core.tuning.machine.Machine.all_reduce` on one level.

    Args:
        small: Bytes and seconds of one.
        large: Of another one.
        ranks: That took part, p.
    """
    share = 2 * (ranks - 1) / ranks
    slope = max(1e-15, (large[1] - small[1]) / (large[0] - small[0]) / share)
    rounds = 2 * (ranks - 1).bit_length()
    return Link(max(1e-9, (small[1] - share * small[0] * slope) / rounds), 1 / slope)


def _rates(world: World, device: torch.device) -> dict[str, float]:
    """Of products, passes and the codec."""
    square = torch.randn(512, 512, device=device)
    flat = torch.randn(2**22, device=device)
    values = torch.randn(2**20)
    packed = to_bytes(encode(values, Absolute(0.1), predictor="none"), zstd=1)
    world.barrier()

    def compress() -> bytes:
        return to_bytes(encode(values / 1.0, Absolute(0.1), predictor="none"), zstd=1)

    def restore() -> Tensor:
        found: Tensor = decode(from_bytes(packed))
        return found * 1.0

    return {
        "matmul": 2 * 512**3 / best_of(lambda: square @ square, device, 6),
        "stream": flat.nbytes / best_of(lambda: flat * 1.0, device, 10),
        "encode": values.nbytes / best_of(compress, torch.device("cpu"), 6),
        "decode": values.nbytes / best_of(restore, torch.device("cpu"), 6),
    }


def _factor(world: World, device: torch.device) -> tuple[float, float]:
    """Least squares, relative, of seconds = constant + cubic n^3."""

    def invert(matrix: Tensor) -> Tensor:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrix))

    seconds = []
    for size in _SIZES:
        matrix = torch.eye(size, device=device) + 0.1
        seconds.append(max(world.gather(best_of(lambda m=matrix: invert(m), device, 5))))  # type: ignore[misc]
    times = torch.tensor(seconds, dtype=torch.float64)
    sizes = torch.tensor(_SIZES, dtype=torch.float64)
    terms = torch.stack([torch.ones(len(sizes), dtype=torch.float64), sizes**3], 1) / times[:, None]
    found = torch.linalg.lstsq(terms, torch.ones_like(times)[:, None]).solution[:, 0]
    constant, cubic = found.clamp_min(0).tolist()
    return constant, cubic or times[-1].item() / _SIZES[-1] ** 3


def _links(world: World, device: torch.device) -> dict[str, Any]:
    """Between nodes, in a node, and between neighbours."""
    if world.size == 1:
        return {}
    places = world.gather((world.node_rank, world.local_rank))
    if len({node for node, _ in places}) < world.num_nodes:  # hosts of one name
        on_node = world.size // world.num_nodes
        places = [divmod(rank, on_node) for rank in range(world.size)]
    nodes = _grouped(places, lambda place: place[0])
    across = _grouped(places, lambda place: place[1])
    own = {"local": _own_group(world, nodes), "link": _own_group(world, across)}
    found = {name: _all_reduces(world, device, *group) for name, group in own.items() if group}
    if "link" in found:  # all ranks of a node send at once
        latency, bandwidth = found["link"]
        found["link"] = Link(latency, bandwidth * max(map(len, nodes)))
    found["pair"] = _pair(world, device)
    return found


def _grouped(
    places: list[tuple[int, int]], key: Callable[[tuple[int, int]], int]
) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(key(place), []).append(rank)
    return list(groups.values())


def _own_group(world: World, lists: list[list[int]]) -> tuple[Any, int] | None:
    """The process group of this rank among groups of equal size; None where they are single."""
    made = [(dist.new_group(ranks), ranks) for ranks in lists if len(ranks) > 1]
    own = next(((group, len(ranks)) for group, ranks in made if world.rank in ranks), None)
    return own if all(world.gather(own is not None)) else None


def _all_reduces(world: World, device: torch.device, group: Any, ranks: int) -> Link:
    def seconds(nbytes: int, times: int) -> float:
        values = torch.ones(nbytes // 4, device=device)
        # Without a barrier a rank that comes late finds what the other has sent meanwhile.
        own = best_of(lambda: dist.all_reduce(values, group=group), device, times, world.barrier)
        return max(world.gather(own))

    small, large = (_SMALL, seconds(_SMALL, 10)), (0, 0.0)
    for nbytes in (2**18, 2**20, 2**22, _LARGEST):
        large = (nbytes, seconds(nbytes, 2))
        if large[1] > _ENOUGH:
            break
    return fit_link(small, large, ranks)


def _pair(world: World, device: torch.device) -> Link:
    """There and back between ranks 2k and 2k + 1, all at once; the last may have no partner."""
    other = world.rank ^ 1

    def there_and_back(values: Tensor) -> None:
        steps = (dist.send, dist.recv) if world.rank < other else (dist.recv, dist.send)
        for step in steps:
            step(values, other)

    def seconds(nbytes: int) -> float:
        values = torch.ones(nbytes // 4, device=device)
        own = 0.0
        if other < world.size:
            own = best_of(lambda: there_and_back(values), device, 2) / 2
        return max(world.gather(own))

    small, nbytes = seconds(_SMALL), 2**18
    while (large := seconds(nbytes)) < _ENOUGH / 2 and nbytes < _LARGEST:
        nbytes *= 4
    slope = max(1e-15, (large - small) / (nbytes - _SMALL))
    return Link(max(1e-9, small - slope * _SMALL), 1 / slope)


def _memory(world: World, device: torch.device) -> float:
    """Of the device, or this rank's share of the machine."""
    whole = device_bytes(device)
    return float(whole if device.type == "cuda" else whole // world.local_size)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _key(world: World, device: torch.device) -> str:
    backend = dist.get_backend() if world.size > 1 else "alone"
    words = (platform.node(), device.type, backend, f"{world.size}x{world.num_nodes}",
             f"{torch.get_num_threads()}threads", torch.__version__)  # fmt: skip
    return "-".join("".join(c if c.isalnum() or c in "._" else "_" for c in w) for w in words)


def _read(path: Path) -> Machine | None:
    """What was measured before; None where there is nothing, or nothing that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Machine.from_json(found["machine"]) if found["version"] == VERSION else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, machine: Machine) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"version": VERSION, "machine": machine.to_json()})
    except (OSError, ScadlError):  # a cache that cannot be written is measured again
        return
