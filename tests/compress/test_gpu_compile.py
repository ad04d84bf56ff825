"""The kernels as NVIDIA's compiler sees them (`pip install nvidia-cuda-nvrtc`); needs no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path

import pytest

import scadl_core.compress.gpu

SOURCES = Path(scadl_core.compress.gpu.__file__).parent


def _find() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    found = [path for place in places or [] for path in Path(place).glob("*/lib/libnvrtc.so.*")]
    return min(found, default=None)


NVRTC = _find()


def compiled(arch: str) -> str:
    """What the compiler and the assembler say."""
    assert NVRTC is not None
    for helper in NVRTC.parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(helper), mode=ctypes.RTLD_GLOBAL)
    library, program, size = ctypes.CDLL(str(NVRTC)), ctypes.c_void_p(), ctypes.c_size_t()
    source = (SOURCES / "kernels.cu").read_bytes()
    assert not library.nvrtcCreateProgram(
        ctypes.byref(program), source, b"kernels.cu", 0, None, None
    )
    options = (
        f"--gpu-architecture={arch}", "-std=c++17", "-DSCADL_LANES=32", "--fmad=false",
        f"-I{SOURCES}", "--ptxas-options=-v",
    )  # fmt: skip
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = library.nvrtcCompileProgram(program, len(options), given)
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, log.value.decode()
    return log.value.decode()


@pytest.mark.skipif(NVRTC is None, reason="no NVRTC to compile them with")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_no_local_memory(arch: str) -> None:
    """Nothing is spilled, no stack, and 1,024 lanes of a multiprocessor can be at work."""
    log = compiled(arch)
    stacks = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", log)
    assert stacks == [("0", "0", "0")] * 12
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == 12
    assert max(registers) <= 64
