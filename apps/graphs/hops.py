"""Propagation of features over a graph, in blocks of rows, so that nothing but what is read and
written need be in memory.

Suffixes: N node, F feature, K hop, M message (an edge one way), R row of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apps.graphs.csr import CSR
from apps.graphs.product import times
from scadl_core.errors import ConfigError, DataError, nearest

Floats = NDArray[np.float32]
NORMS = ("sym", "row", "none")


class Scales(NamedTuple):
    """A propagation matrix is diag(left) (W + loop I) diag(right), with W of the graph.

    Attributes:
        left_N: float32.
        right_N: float32.
        loop: The weight of the loop that every node is given, 0 for none.
    """

    left_N: Floats
    right_N: Floats
    loop: float


def scales(graph: CSR, norm: str = "sym") -> Scales:
    """How a graph's matrix is normalised.

    Args:
        graph: Its weights must not be negative, except for ``none``.
        norm: ``sym``: (D + I)^-1/2 (W + I) (D + I)^-1/2, Kipf and Welling 2017, arXiv:1609.02907,
            with D the row sums of W; ``row``: D^-1 W, the mean of the neighbours, 0 where there
            are none; ``none``: W itself, for networks that normalise it themselves.

    Raises:
        ConfigError: Another word.
        DataError: A negative weight.
    """
    if norm not in NORMS:
        raise ConfigError(f"data.norm: got {norm!r}{nearest(norm, NORMS)}")
    if norm == "none":
        ones_N = np.ones(graph.num_nodes, np.float32)
        return Scales(ones_N, ones_N, 0.0)
    if graph.weight is not None and len(graph.weight) and graph.weight.min() < 0:
        raise DataError(
            f"an edge weight is negative ({graph.weight.min():g}), of which no mean can be taken; "
            "set data.weight=null to count edges, or data.norm=none, or mend the weights"
        )
    if norm == "row":
        left_N = 1 / np.where(graph.strength_N > 0, graph.strength_N, np.inf)
        return Scales(left_N.astype(np.float32), np.ones(graph.num_nodes, np.float32), 0.0)
    root_N = (1 / np.sqrt(graph.strength_N + 1)).astype(np.float32)
    return Scales(root_N, root_N, 1.0)


def propagate(graph: CSR, by: Scales, x_NF: Any, out_NF: Any = None) -> Any:
    """One hop: the matrix of ``by`` times ``x_NF``.

    Args:
        graph: The graph.
        by: Its normalisation.
        x_NF: float32, C-contiguous, in memory or mapped from a file; or an array of CuPy, which
            is worked on where it is.
        out_NF: Where to write; None: a new array of the same kind.

    Returns:
        The result, the same for any number of threads.
    """
    if not isinstance(x_NF, np.ndarray):
        return _propagate_on_device(graph, by, x_NF)
    weight_M = graph.weight if graph.weight is not None else np.empty(0, np.float32)
    scales = by.left_N, by.right_N, by.loop
    return times(graph.indptr, graph.indices, weight_M, *scales, x_NF, out_NF)


def _propagate_on_device(graph: CSR, by: Scales, x_NF: Any) -> Any:
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    weight = cupy.ones(len(graph.indices), "f4") if graph.weight is None else graph.weight
    arrays = (cupy.asarray(it) for it in (weight, graph.indices, graph.indptr))
    matrix = csr_matrix(tuple(arrays), shape=(graph.num_nodes, graph.num_nodes))
    left_N1, right_N1 = (cupy.asarray(it)[:, None] for it in (by.left_N, by.right_N))
    scaled_NF = right_N1 * x_NF
    return left_N1 * (matrix @ scaled_NF + by.loop * scaled_NF)


def hops(
    graph: CSR, by: Scales, x_NF: Floats, num_hops: int, make: Callable[[int], Floats]
) -> list[Floats]:
    """Features after 0, 1, .., ``num_hops`` hops.

    Args:
        graph: The graph.
        by: Its normalisation.
        x_NF: float32.
        num_hops: K.
        make: Gives the array, of the shape of ``x_NF``, into which hop 1, 2, .. is written.
    """
    found_KNF = [x_NF]
    for hop in range(1, num_hops + 1):
        found_KNF.append(propagate(graph, by, found_KNF[-1], make(hop)))
    return found_KNF


def in_files(folder: Path, name: str, shape: tuple[int, int]) -> Callable[[int], Floats]:
    """Makes arrays that lie in files, for ``make`` of :func:`hops`."""
    folder.mkdir(parents=True, exist_ok=True)
    return lambda hop: np.lib.format.open_memmap(
        folder / f"{name}-{hop}.npy", "w+", np.float32, shape=shape
    )


def edge_weights(graph: CSR, by: Scales, row_M: Any, column_M: Any, entry_M: Any) -> Floats:
    """Entries of the normalised matrix, without the loops; see :meth:`CSR.subgraph`."""
    weight_M = by.left_N[row_M] * by.right_N[column_M]
    return weight_M if graph.weight is None else weight_M * graph.weight[entry_M]
