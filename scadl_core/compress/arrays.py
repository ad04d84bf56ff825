"""Arrays of NumPy and torch as one run of elements in memory order, and back.

Axes are taken from the outermost to the innermost in memory, so that a channels-last tensor is read
as it lies and neighbours are neighbours; an axis of stride 0 (an expanded view) is read once.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scadl_core.compress.formats import Format, format_of
from scadl_core.errors import CodecError

_warned: set[str] = set()


@dataclass(frozen=True)
class Layout:
    """Where the elements of a run belong.

    Attributes:
        shape: Of the array.
        order: Its axes from the outermost to the innermost in memory.
        repeated: The axes along which one element is seen many times.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    repeated: tuple[int, ...] = ()

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """The shape without repetitions."""
        return tuple(1 if axis in self.repeated else n for axis, n in enumerate(self.shape))

    @cached_property
    def size(self) -> int:
        """How many elements are stored."""
        return math.prod(self.stored)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The stored shape in memory order."""
        return tuple(self.stored[axis] for axis in self.order)

    @cached_property
    def width(self) -> int:
        """Elements a row: the innermost axis that is longer than 1."""
        return next((n for n in reversed(self.sizes) if n > 1), 1)


@lru_cache(4096)
def layout_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
    """How an array lies in memory.

    Args:
        shape: Of the array.
        strides: In any unit.
    """
    repeated = tuple(
        axis for axis, (n, stride) in enumerate(zip(shape, strides, strict=True))
        if n > 1 and stride == 0
    )  # fmt: skip
    # Axes of length 1 have a stride without meaning: they stay before the axis that follows them.
    meaning, inner = [0] * len(shape), 0
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1 and axis not in repeated:
            inner = abs(strides[axis])
        meaning[axis] = inner
    order = tuple(sorted(range(len(shape)), key=lambda axis: (-meaning[axis], axis)))
    return Layout(tuple(shape), order, repeated)


@dataclass(frozen=True)
class Run:
    """The elements of an array in memory order.

    Attributes:
        values: 1-D; patterns (uint16) for 16-bit types.
        form: Type of the elements.
        layout: Where they belong.
        library: "numpy", "cupy" or "torch".
    """

    values: NDArray[Any]
    form: Format
    layout: Layout
    library: str


def is_tensor(array: Any) -> bool:
    """Whether it is torch's, which is not imported to find out."""
    return "torch" in sys.modules and isinstance(array, sys.modules["torch"].Tensor)


def is_cupy(array: Any) -> bool:
    """Whether it is CuPy's, which is not imported to find out."""
    return "cupy" in sys.modules and isinstance(array, sys.modules["cupy"].ndarray)


def is_on_gpu(array: Any) -> bool:
    """Whether the kernels for a GPU take it: an array of CuPy, or of torch where CuPy is there."""
    if not is_tensor(array):
        return is_cupy(array)
    if array.device.type != "cuda":
        return False
    try:
        import cupy  # noqa: F401
    except ImportError:
        return False
    return True


def take(array: Any) -> Run:
    """Reads an array without a copy where it is dense in some order of its axes.

    Args:
        array: A NumPy or CuPy array or torch tensor of float16, bfloat16, float32 or float64.

    Raises:
        CodecError: It is something else.
    """
    if is_tensor(array):
        return _take_tensor(array)
    if is_cupy(array):
        form = format_of(array.dtype.name)
        return Run(*_run_of(array, form, array.strides), "cupy")
    if not isinstance(array, (np.ndarray, np.generic)):
        raise CodecError(f"expected a NumPy array or torch tensor, got {type(array).__name__}")
    array = np.asarray(array)
    form = format_of(array.dtype.name)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return Run(
        *_run_of(array.view(form.values) if array.size else array, form, array.strides), "numpy"
    )


def _take_tensor(tensor: Any) -> Run:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise CodecError(f"expected a dense tensor, got one of layout {tensor.layout}")
    form = format_of(str(tensor.dtype).removeprefix("torch."))
    tensor = tensor.detach()
    if is_on_gpu(tensor):
        import cupy

        array = cupy.from_dlpack(_plain(tensor, form))
        return Run(*_run_of(array, form, array.strides), "torch")
    if tensor.device.type != "cpu":
        _warn_once(tensor.device.type)
        tensor = tensor.cpu()
    array = _plain(tensor, form).numpy()
    return Run(*_run_of(array.view(form.values), form, array.strides), "torch")


def _plain(tensor: Any, form: Format) -> Any:
    """A view on a tensor as a type that every library has."""
    return tensor.view(sys.modules["torch"].int16) if form.bits == 16 else tensor


def _run_of(
    array: Any, form: Format, strides: tuple[int, ...]
) -> tuple[NDArray[Any], Format, Layout]:
    layout = layout_of(array.shape, strides)
    once = array[
        tuple(slice(0, 1) if axis in layout.repeated else slice(None) for axis in range(array.ndim))
    ]
    if is_cupy(array):
        import cupy

        values = cupy.ascontiguousarray(once.transpose(layout.order)).reshape(-1)
        return values.view(form.values), form, layout
    values = np.ascontiguousarray(once.transpose(layout.order)).reshape(-1)
    if values.ctypes.data % values.itemsize:
        values = values.copy()
    return values.view(form.values), form, layout


def _warn_once(device: str) -> None:
    if device not in _warned:
        _warned.add(device)
        hint = "; install CuPy to code them there" if device == "cuda" else ""
        warnings.warn(f"tensors on {device} are coded on the CPU{hint}", UserWarning, stacklevel=4)


def place(out: Any, form: Format, layout: Layout) -> Any:
    """The memory of an array as a run to write to; None where it lies in another order.

    Args:
        out: An array of the caller's.
        form: Type that it must have.
        layout: Shape that it must have.

    Raises:
        CodecError: It has another type or shape, cannot be written, or repeats elements.
    """
    if not is_tensor(out) and not is_cupy(out) and not isinstance(out, np.ndarray):
        raise CodecError(f"out: expected a NumPy array or torch tensor, got {type(out).__name__}")
    name = str(out.dtype).removeprefix("torch.")
    if name != form.name or tuple(out.shape) != layout.shape:
        raise CodecError(
            f"out: expected {form.name} of shape {layout.shape}, got {name} of {tuple(out.shape)}"
        )
    if is_tensor(out):
        on_gpu = is_on_gpu(out)
        if out.device.type != "cpu" and not on_gpu:
            return None
        plain = _plain(out.detach(), form)
        out = sys.modules["cupy"].from_dlpack(plain) if on_gpu else plain.numpy()
    if not is_cupy(out) and not out.flags.writeable:
        raise CodecError("out: the array is read-only; give one that can be written")
    run = out.transpose(layout.order)
    if is_cupy(run) and run.flags.c_contiguous and not layout.repeated:
        return run.reshape(-1).view(form.values)
    if layout.repeated or not run.flags.c_contiguous or run.ctypes.data % run.itemsize:
        return None
    target: NDArray[Any] = run.reshape(-1).view(form.values)
    return target


def give(values: NDArray[Any], form: Format, layout: Layout, library: str) -> Any:
    """The array of a run, a view on it.

    Args:
        values: What :attr:`Run.values` was.
        form: Type of the elements.
        layout: Where they belong.
        library: "numpy", "cupy" or "torch".
    """
    inverse = tuple(int(axis) for axis in np.argsort(layout.order))
    if library == "torch":
        import torch
        from torch.utils.dlpack import from_dlpack

        plain = values.view(np.int16 if form.bits == 16 else values.dtype)
        flat = from_dlpack(plain) if is_cupy(values) else torch.from_numpy(plain)
        typed = flat.view(getattr(torch, form.name))
        return typed.reshape(layout.sizes).permute(inverse).expand(layout.shape)
    array = values.view(_numpy_type(form)).reshape(layout.sizes).transpose(inverse)
    library_of = sys.modules["cupy"] if is_cupy(values) else np
    return library_of.broadcast_to(array, layout.shape) if layout.repeated else array


def _numpy_type(form: Format) -> np.dtype[Any]:
    if form.name != "bfloat16":
        return np.dtype(form.name)
    try:
        import ml_dtypes
    except ImportError:
        raise CodecError(
            "NumPy has no bfloat16 of its own; install ml_dtypes, or decode into a torch tensor"
        ) from None
    bfloat: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat
