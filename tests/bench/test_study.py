"""The memory study: cases, summaries against numbers done by hand, resumption."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scadl_core.bench import memory, study
from scadl_core.bench.cases import Case, measured, parse_case, peer, quantiser
from scadl_core.compress import Absolute, PointwiseRelative, Relative
from scadl_core.errors import ConfigError

INPUT_BCHW = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    blocks = (nn.Sequential(nn.Conv2d(i, 8, 3), nn.GroupNorm(2, 8), nn.ReLU()) for i in (3, 8, 8))
    return nn.Sequential(*blocks)


@pytest.mark.parametrize("name", ["sz3", "zfp"])
@pytest.mark.parametrize("bound", [Absolute(0.01), Relative(0.01), PointwiseRelative(0.01)])
def test_peers_keep_their_bounds(name: str, bound: Any) -> None:
    pytest.importorskip({"sz3": "pysz", "zfp": "zfpy"}[name])
    values = torch.randn(4, 8, 16, 16).clamp_min(-0.5)
    values[0, 0] = 0
    restored = peer(name)(values, bound, None).restore()
    limit = {
        Absolute: torch.full_like(values, 0.01), PointwiseRelative: 0.01 * values.abs(),
        Relative: torch.full_like(values, 0.01 * float(values.max() - values.min())),
    }[type(bound)]  # fmt: skip
    assert restored.dtype is torch.float32
    assert bool(((restored - values).abs() <= 1.001 * limit).all())
    assert not torch.equal(restored, values)


def test_quantised_blocks() -> None:
    values = torch.randn(4, 8, 16, 16)
    kept = quantiser(8)(values, Absolute(1), 3)
    assert kept.nbytes == values.numel() * 9 // 8
    assert float((kept.restore() - values).abs().max()) <= float(values.abs().max()) / 127


@pytest.mark.parametrize("case", study.cases(quick=False))
def test_every_case_is_one(case: str) -> None:
    assert parse_case(case)[2] in ("activations", "gradients", "weights")


@pytest.mark.parametrize("case", ["", "scadl_0.1", "sz4_relative_0.1", "quantise_x", "none_1"])
def test_no_cases(case: str) -> None:
    with pytest.raises(ConfigError, match="expected such as"):
        parse_case(case)


def gradient(net: nn.Module, word: str) -> Tensor:
    case = Case(net, word)
    case.open()
    loss = net(INPUT_BCHW).square().sum()
    case.close()
    net.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


@pytest.mark.parametrize("word", ["checkpoint", "save_on_cpu", "adaptive_0.0"])
def test_peers_that_lose_nothing(word: str) -> None:
    assert torch.equal(gradient(network(), word), gradient(network(), "none"))


@pytest.mark.parametrize("target", ["gradients", "weights"])
def test_gradients_are_rounded(target: str) -> None:
    exact = gradient(network(), "none")
    ours = gradient(network(), f"scadl_relative_0.05_{target}")
    assert 1e-4 < float((ours - exact).norm() / exact.norm()) < 0.5


def test_bytes_of_a_checkpoint_are_boundaries_and_the_largest_block() -> None:
    net = network()
    stored, raw = measured(Case(net, "checkpoint"), lambda: net(INPUT_BCHW))
    boundary = 4 * 4 * (3 * 16 * 16 + 8 * 14 * 14 + 8 * 12 * 12)
    inside = 4 * 4 * (3 * 16 * 16 + 2 * 8 * 14 * 14 + 2 * 2), 4 * 4 * (8 * (196 + 2 * 144) + 4)
    assert stored == boundary + max(inside)
    plain, same = measured(Case(net, "none"), lambda: net(INPUT_BCHW))
    assert plain == same == raw > stored


def result(case: str, seed: int, scores: list[float], slower: float = 1.0, kept: int = 100) -> Any:
    times = [slower * (n + 1) for n in range(len(scores))]
    return {"case": case, "seed": seed, "scores": scores, "times": times, "steps": 4 * len(scores),
            "stored": kept, "raw": 1000}  # fmt: skip


def test_differences_are_paired_by_seed() -> None:
    rows = []
    for seed, base in enumerate((0.5, 0.6, 0.7)):
        rows.append(result("none", seed, [0.1, base]))
        rows.append(result("scadl_relative_0.01", seed, [0.1, base - 0.01 - 0.001 * seed], 2.0))
        rows.append(result("scadl_relative_0.1", seed, [0.1, base - 0.2]))
    found = {line.case: line for line in study.lines(rows)}
    near = found["scadl_relative_0.01"]
    assert near.difference == pytest.approx(-0.011)
    # Student's t of two degrees of freedom, 4.3027, times .001 / sqrt(3)
    assert near.low == pytest.approx(-0.011 - 4.30265 * 0.001 / math.sqrt(3), rel=1e-4)
    assert near.verdict == "same"
    assert found["scadl_relative_0.1"].verdict == "worse"
    assert near.throughput == pytest.approx(0.5)
    assert near.at_equal_time == pytest.approx(0.1 - 0.6)  # one of its two epochs
    assert near.reduction == pytest.approx(10)
    assert math.isinf(near.epochs)
    assert found["none"].epochs == 2
    assert study.falls_at(list(found.values()), "scadl_relative") == "falls from 0.1 on"


def test_one_seed_tells_nothing() -> None:
    rows = [result("none", 0, [0.5]), result("scadl_relative_0.1", 0, [0.5])]
    assert study.lines(rows)[1].verdict == "inconclusive"


@pytest.mark.soak
def test_a_study_goes_on_where_it_was(
    scadl: Callable[..., Any], workplace: Path, tiny: tuple[str, ...]
) -> None:
    words = (
        "study",
        "memory",
        "climate",
        *tiny[:-1],
        "trainer.max_epochs=1",
        "run.dir=st",
        "seed=0",
    )
    done = scadl(*words, "memory.case=none,scadl_relative_0.1")
    assert done.status == 0, done.err
    assert "holds up to 0.1" in done.out or "falls from 0.1 on" in done.out
    path = workplace / "st" / "none-seed0" / "result.json"
    first = json.loads(path.read_text())
    assert (first["steps"], len(first["scores"])) == (first["steps"], 1)
    before = path.stat().st_mtime_ns
    assert scadl(*words, "memory.case=none,scadl_relative_0.1,quantise_8").status == 0
    assert path.stat().st_mtime_ns == before
    rows = (workplace / "st" / "study.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["none", "quantise_8", "scadl_relative_0.1"]
    assert (workplace / "st" / "study.png").stat().st_size > 1000
    kept = {row.split(",")[0]: float(row.split(",")[7]) for row in rows[1:]}
    assert kept["none"] == 1.0
    assert kept["quantise_8"] > 2


def test_the_benchmarks_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    monkeypatch.setattr(memory, "METHODS", ("none", "adaptive_0.01", "quantise_4", "checkpoint"))
    # Not the sum of squares, which the norms hold constant: its gradient is all cancellation.
    weights_BCHW = torch.randn(4, 8, 10, 10)
    rows = memory.measure("c", net, lambda: (net(INPUT_BCHW) * weights_BCHW).sum(), 1, 2)
    found = {(row.method, row.metric): row.value for row in rows}
    assert found["none", "ratio"] == 1
    assert found["none", "gradient error"] == found["checkpoint", "gradient error"] == 0
    assert 0 < found["adaptive_0.01", "gradient error"] < 0.05
    assert found["quantise_4", "ratio"] > 2
    assert np.isfinite([row.value for row in rows]).all()


def test_mistakes(scadl: Callable[..., Any]) -> None:
    assert "there is: memory" in scadl("study", "accuracy").err
    assert "expected such as" in scadl("study", "memory", "climate", "memory.case=nothing").err
