"""Stands in for CuPy: device arrays are NumPy's, kernels are compiled for the host.

Only what scadl_core/compress uses. Launches check what the hardware would punish without a word:
the number and the types of the arguments.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
FORMATS = ("float32", "float64", "float16", "bfloat16")
_C = {"u16": 2, "u32": 4, "u64": 8, "i64": 8, "double": 8}


class CudaArray(np.ndarray):
    @property
    def device(self) -> Any:
        return module.cuda.Device(0)


@functools.cache
def library(source: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """The kernels as a shared library, compiled once a test session."""
    folder = Path(next(o[2:] for o in options if o.startswith("-I")))
    headers = [*sorted(folder.glob("*.cu*")), HERE / "cuda_on_host.hpp"]
    key = hashlib.sha256(repr(options).encode() + b"".join(h.read_bytes() for h in headers))
    built = module.folder / f"{key.hexdigest()[:16]}.so"
    if not built.exists():
        exports = " ".join(f"EXPORT_TYPE({name})" for name in FORMATS)
        text = f'#include "cuda_on_host.hpp"\n{source}\n{exports}\n'
        defines = [o for o in options if o[:2] in ("-D", "-I")]
        subprocess.run(
            [
                shutil.which("g++") or "g++", "-std=c++17", "-O1", "-fPIC", "-shared",
                "-fno-strict-aliasing", "-ffp-contract=off", "-Wall", "-Werror",
                "-Wno-unknown-pragmas", f"-I{HERE}", *defines, "-x", "c++", "-", "-o", str(built),
            ],
            input=text, text=True, check=True,
        )  # fmt: skip
    return ctypes.CDLL(str(built))


class RawModule:
    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        assert "--fmad=false" in options or "-ffp-contract=off" in options
        self.code, self.options = code, options

    def get_function(self, name: str) -> Callable[..., None]:
        function = getattr(library(self.code, self.options), f"host_{name}")

        def launch(grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
            assert 0 < grid[0] < 2**31
            assert block == (256,)
            for arg, size in zip(args, _sizes(self.code, name.split("_")[0]), strict=True):
                if isinstance(arg, CudaArray):
                    assert arg.flags.c_contiguous
                    assert size is None
                else:
                    assert isinstance(arg, np.generic), "a Python number has no size"
                    assert arg.itemsize == (size or 8)
            held = [
                np.array(a.ctypes.data if isinstance(a, CudaArray) else a) for a in args
            ]  # as cuLaunchKernel takes them: pointers to the arguments
            pointers = (ctypes.c_void_p * len(held))(*(h.ctypes.data for h in held))
            assert f"-DSCADL_LANES={module.lanes}" in self.options
            module.launches.append((name, module.current))
            module.seed += 1
            function(grid[0], block[0], pointers, ctypes.c_uint64(module.seed))

        return launch


@functools.cache
def _sizes(source: str, kernel: str) -> list[int | None]:
    """Bytes of a kernel's parameters; None for a pointer."""
    flat = source.replace("\\\n", " ")
    law = re.search(r"#define LAW (.*)", flat).group(1)  # type: ignore[union-attr]
    found = re.search(kernel + r"_##name\(([^)]*)\)", flat).group(1)  # type: ignore[union-attr]
    parameters = re.sub(r"\bLAW\b", law, found).split(",")
    return [None if "*" in p else _C[p.split()[0]] for p in parameters]


@contextmanager
def _context(value: Any) -> Iterator[None]:
    before, module.current = module.current, value
    yield
    module.current = before


class Device:
    def __init__(self, index: int | None = None) -> None:
        self.id = 0
        self.attributes = {"WarpSize": module.lanes}

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None:
        return


def _on(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs).view(CudaArray)


def _garbage(shape: Any, dtype: Any) -> Any:
    """Memory of a device holds what was there before."""
    array = np.empty(shape, dtype)
    array.view(np.uint8)[...] = 0xA5
    return array.view(CudaArray)


def _plain(array: Any) -> Any:
    assert isinstance(array, CudaArray)
    return np.array(array, copy=True, subok=False)


module = types.ModuleType("cupy")
module.__dict__.update(
    ndarray=CudaArray, RawModule=RawModule, asnumpy=_plain, empty=_garbage,
    asarray=_on(np.array), zeros=_on(np.zeros), full=_on(np.full),
    ascontiguousarray=_on(np.ascontiguousarray), broadcast_to=_on(
        functools.partial(np.broadcast_to, subok=True)
    ),
    from_dlpack=_on(np.from_dlpack),
    cuda=types.SimpleNamespace(
        Device=Device, runtime=types.SimpleNamespace(getDevice=lambda: 0),
        Stream=types.SimpleNamespace(from_external=lambda s: _context(s.cuda_stream))
    ),
    lanes=32, seed=0, launches=[], current=None, folder=Path(),
)  # fmt: skip
