"""Who averages which elements of which parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_WHOLE = 256  # elements a rank, below which cutting a parameter costs more than it balances


class Piece(NamedTuple):
    """Some elements of one parameter of a bucket.

    Attributes:
        place: Of the parameter in the bucket.
        start: The first element of its flat tensor.
        stop: One behind the last.
    """

    place: int
    start: int
    stop: int


def shares(sizes: Sequence[int], numbers: Sequence[int], ranks: int) -> list[list[Piece]]:
    """Cuts the parameters of a bucket into one share a rank.

    Who has which elements depends on the parameter alone and not on its bucket: a resumed run,
    which begins with other buckets, computes the same numbers.

    Args:
        sizes: Of the bucket's parameters, in elements.
        numbers: Which parameters of the model they are; a small one falls to one rank.
        ranks: How many.

    Returns:
        The pieces of each rank.
    """
    found: list[list[Piece]] = [[] for _ in range(ranks)]
    for place, (size, number) in enumerate(zip(sizes, numbers, strict=True)):
        if size < _WHOLE * ranks:
            found[number % ranks].append(Piece(place, 0, size))
            continue
        cuts = [size * rank // ranks for rank in range(ranks + 1)]
        for rank in range(ranks):
            found[rank].append(Piece(place, cuts[rank], cuts[rank + 1]))
    return found
