"""The kernels for a GPU and what launches them."""
