"""A trace file is what Chrome's format asks for, and shows what was measured."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from scadl_core.admm.trace import Span, Trace, chrome, expected_pipeline


def test_the_newest_spans_are_kept() -> None:
    trace = Trace(most=2)
    for name in "abc":
        began = time.perf_counter()
        time.sleep(0.01)
        assert trace.add(name, began) >= 0.01
    spans = trace.since_zero()
    assert [it.name for it in spans] == ["b", "c"]
    assert 0 < spans[0].began < spans[0].ended <= spans[1].began < spans[1].ended


def test_ranks_and_a_pipeline_side_by_side() -> None:
    ranks = [("rank 0", [Span("step", 5.0, 5.5)]), ("rank 1", [Span("waits", 5.25, 5.75)])]
    expected = expected_pipeline([0.3, 0.3], 1)
    events = json.loads(json.dumps(chrome(ranks, expected)))["traceEvents"]
    spans = [it for it in events if it["ph"] == "X"]
    assert [(it["pid"], it["name"], it["ts"], it["dur"]) for it in spans[:2]] == [
        (0, "step", 0, 500_000),
        (1, "waits", 250_000, 500_000),
    ]
    names = {it["pid"]: it["args"]["name"] for it in events if it["name"] == "process_name"}
    assert names[2].startswith("rank 0 of a pipeline, predicted: ")
    # (P - 1) of (M + P - 1) slots are empty; on each rank spans follow one another.
    assert expected.bubble == pytest.approx(1 / 5)
    ends = []
    for rank in (2, 3):
        own = sorted((it["ts"], it["ts"] + it["dur"]) for it in spans if it["pid"] == rank)
        assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(own))
        ends.append(own[-1][1])
    assert max(ends) == pytest.approx(expected.makespan * 1e6, rel=1e-6)


def test_nothing_to_show() -> None:
    assert chrome([])["traceEvents"] == []
