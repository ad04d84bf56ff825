"""Products against SciPy's, whatever the widths, types and numbers of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from apps.graphs.product import WIDTH, multiply, times
from scadl_core.compress.threads import get_num_threads, set_num_threads


def random_matrix(rng: np.random.Generator, nodes: int, kind: Any) -> sp.csr_matrix:
    """Some rows without a value, and one of many."""
    row, column = rng.integers(0, nodes, (2, 8 * nodes))
    row[: 2 * nodes] = 0
    values = rng.standard_normal(8 * nodes)
    return sp.csr_matrix((values, (row, column)), (nodes, nodes), dtype=kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("features", [1, WIDTH - 1, WIDTH, 3 * WIDTH + 5])
@pytest.mark.parametrize("nodes", [1, 40, 9000])
def test_products_are_scipys(kind: Any, features: int, nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    matrix = random_matrix(rng, nodes, kind)
    x = rng.standard_normal((nodes, features)).astype(kind)
    found, tolerance = multiply(matrix, x), 1e-4 if kind == np.float32 else 1e-11
    assert found.dtype == kind
    np.testing.assert_allclose(found, matrix @ x, rtol=tolerance, atol=tolerance)
    left, right = rng.random((2, nodes)).astype(np.float32)
    plain = sp.csr_matrix((np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
    expected = sp.diags(left) @ (plain + 0.5 * sp.identity(nodes)) @ sp.diags(right) @ x
    no_weights = np.empty(0, np.float32)
    found = times(matrix.indptr, matrix.indices, no_weights, left, right, 0.5, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_the_same_bits_for_any_number_of_threads() -> None:
    before = get_num_threads()
    rng = np.random.default_rng(3)
    matrix, x = random_matrix(rng, 20_000, np.float32), rng.random((20_000, 20), np.float32)
    found = []
    try:
        for count in (1, 3):
            set_num_threads(count)
            found.append(multiply(matrix, x))
    finally:
        set_num_threads(before)
    np.testing.assert_array_equal(*found)
