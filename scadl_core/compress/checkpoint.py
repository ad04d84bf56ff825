"""Checkpoints whose tensors are exact, or within a bound where one is given.

    save(state, path, {"optimizer.*.exp_avg": Relative(1e-3)})
    state = load(path)

The container is safetensors: tensors and one text, no code. The text is the tree of the state as
JSON; a compressed tensor is a uint8 tensor that holds its stream.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scadl_core.compress.bounds import Bound
from scadl_core.compress.codec import decode, encode
from scadl_core.compress.container import from_bytes, to_bytes
from scadl_core.compress.formats import FORMATS
from scadl_core.errors import CodecError, NewerStreamError, StreamError
from scadl_core.files import written_aside

VERSION = 1
_PLAIN = (bool, int, float, str)
_KEYS = (bool, int, str)


def save(
    state: Any, path: Path, bound_by_key: Mapping[str, Bound] | None = None, *, zstd: int | None = 3
) -> None:
    """Writes a state, whole or not at all.

    Args:
        state: Tensors and plain values in dicts, lists and tuples, such as ``state_dict()`` of a
            module or an optimizer. Tensors that are one stay one.
        path: Where to; its folder must exist.
        bound_by_key: The bound of every floating tensor whose key matches the pattern; the first
            match counts. Keys are joined by dots, patterns those of :mod:`fnmatch`. The others, by
            default all, are exact. For Adam's ``exp_avg_sq``, by whose root a step is divided, use
            :class:`PointwiseRelative`.
        zstd: Level of the second stage of compressed tensors; None for none.

    Raises:
        CodecError: The state holds something else, or a pattern matches nothing.
    """
    writer = _Writer(bound_by_key or {}, zstd)
    tree = writer.tree(state, ())
    if writer.unused:
        raise CodecError(
            f"bound_by_key: {', '.join(sorted(writer.unused))} matches none of "
            f"{', '.join(sorted(writer.keys)[:8])}, ..."
        )
    from safetensors.torch import save_file

    text = json.dumps({"version": VERSION, "tree": tree})
    with written_aside(path) as aside:
        save_file(writer.tensors, aside, {"scadl": text})


def load(path: Path) -> Any:
    """The state of :func:`save`, on the CPU.

    Args:
        path: The file.

    Raises:
        StreamError: It is damaged or no such file of ours.
        NewerStreamError: It is of a later version.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get("scadl")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StreamError(f"{path}: {error}; it is damaged or no checkpoint") from None
    try:
        found = json.loads(text or "")
        if found["version"] > VERSION:
            raise NewerStreamError(
                f"{path}: version {found['version']}, this reads up to {VERSION}"
            )
        return _Reader(tensors).value(found["tree"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StreamError(f"{path}: its tree is damaged ({error})") from None


class _Writer:
    """Takes a state apart."""

    def __init__(self, bounds: Mapping[str, Bound], zstd: int | None) -> None:
        self.bounds, self.zstd = bounds, zstd
        self.unused, self.keys = set(bounds), set[str]()
        self.tensors: dict[str, Tensor] = {}
        self._seen: dict[tuple[Any, ...], dict[str, Any]] = {}

    def tree(self, value: Any, path: tuple[str, ...]) -> dict[str, Any]:
        if isinstance(value, Tensor):
            return self._once(value, ".".join(path))
        if value is None or isinstance(value, _PLAIN):
            return {"value": value}
        if isinstance(value, Mapping):
            pairs = [[self._key(k, path), self.tree(v, (*path, str(k)))] for k, v in value.items()]
            return {"dict": pairs}
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.tree(v, (*path, str(i))) for i, v in enumerate(value)]}
        raise CodecError(
            f"{'.'.join(path)}: a checkpoint holds tensors, numbers, texts, dicts, lists and "
            f"tuples, got {type(value).__name__}"
        )

    def _key(self, key: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(key, _KEYS):
            raise CodecError(
                f"{'.'.join(path)}: expected keys that are texts or numbers, got {key!r}"
            )
        return key

    def _once(self, tensor: Tensor, key: str) -> dict[str, Any]:
        tensor = tensor.detach()
        place = (tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset())
        same = (*place, tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or same not in self._seen:
            self._seen[same] = self._kept(tensor, key)
        self.keys.add(key)
        return self._seen[same]

    def _kept(self, tensor: Tensor, key: str) -> dict[str, Any]:
        name = str(len(self.tensors))
        pattern = next((p for p in self.bounds if fnmatch.fnmatchcase(key, p)), None)
        if pattern is not None:
            self.unused.discard(pattern)
            if str(tensor.dtype).removeprefix("torch.") in FORMATS:
                stream = to_bytes(encode(tensor.cpu(), self.bounds[pattern]), zstd=self.zstd)
                self.tensors[name] = torch.frombuffer(bytearray(stream), dtype=torch.uint8)
                return {"compressed": name, "key": key}
        # safetensors keeps contiguous tensors that share nothing.
        self.tensors[name] = tensor.cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name, "key": key}


class _Reader:
    """Puts a state together."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self._decoded: dict[str, Tensor] = {}

    def value(self, tree: dict[str, Any]) -> Any:
        if "tensor" in tree:
            return self.tensors[tree["tensor"]]
        if "compressed" in tree:
            return self._decode(tree["compressed"])
        if "dict" in tree:
            return {key: self.value(value) for key, value in tree["dict"]}
        if "list" in tree:
            return [self.value(value) for value in tree["list"]]
        if "tuple" in tree:
            return tuple(self.value(value) for value in tree["tuple"])
        return tree["value"]

    def _decode(self, name: str) -> Tensor:
        if name not in self._decoded:
            self._decoded[name] = decode(from_bytes(self.tensors[name].numpy()))
        return self._decoded[name]
