"""Bounds through JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scadl_core.compress import L2, Absolute, Bound, PointwiseRelative, Relative
from scadl_core.compress.bounds import bound_from_json
from scadl_core.errors import CodecError


@pytest.mark.parametrize("kind", [Absolute, Relative, PointwiseRelative, L2])
def test_json(kind: type[Bound]) -> None:
    bound = kind(np.float32(0.1))
    again = bound_from_json(json.loads(json.dumps(bound.to_json())))
    assert again == bound
    assert type(again) is kind
    assert again.eps == float(np.float32(0.1))


@pytest.mark.parametrize("value", [{"kind": "absolut", "eps": 1}, {"eps": 1}, [], "absolute"])
def test_what_is_no_bound(value: object) -> None:
    with pytest.raises(CodecError, match=r"did you mean 'absolute'|expected \{"):
        bound_from_json(value)
