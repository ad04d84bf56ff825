"""The reference codec: numba kernels on the CPU, imported when the first array is coded."""
