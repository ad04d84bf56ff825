"""Kernels of different arguments share no file of the cache: processes compile side by side."""

from __future__ import annotations

import numpy as np

from scadl_core.compress.cpu.chunks import Kernel


def test_each_kind_of_arguments_is_compiled_and_kept_by_itself() -> None:
    @Kernel
    def total(values):  # type: ignore[no-untyped-def]
        found = values[0]
        for i in range(1, values.size):
            found += values[i]
        return found

    frozen = np.arange(5.0)
    frozen.flags.writeable = False
    arrays = [np.arange(5, dtype=kind) for kind in ("f4", "f8", "u2", "i8")] + [frozen]
    assert [float(total(array)) for array in arrays * 2] == [10.0] * 10
    assert len(total.compiled) == len(arrays)
    names = {it._cache._impl.filename_base for it in total.compiled.values()}
    assert len(names) == len(arrays)
    assert all(len(it.signatures) == 1 for it in total.compiled.values())
