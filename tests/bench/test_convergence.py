"""scadl study convergence: pages of benchmarks, targets by hand, and going on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scadl_core.bench import convergence
from scadl_core.bench.claims import METHODS, PLAIN
from scadl_core.bench.convergence import BENCHMARKS, to_target
from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run, require


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_composes_on_published_data_and_on_the_sample(name: str) -> None:
    benchmark = BENCHMARKS[name]
    app = find_app(benchmark.app)
    config = compose_run(app, [*benchmark.words, "data.path=/data"])
    require(config)
    assert config.trainer.max_epochs >= 20
    assert "sample" not in config.data
    assert compose_run(app, benchmark.sample).data.sample is not None


def outcome(curve: list[float], seconds: float = 30, sent: float = 6e6) -> dict[str, Any]:
    metrics = {"train/seconds": seconds, "comm/sent_bytes": sent}
    return {"metrics": metrics, "curve": curve, "failed": None}


def test_to_target_by_hand() -> None:
    run = outcome([0.1, 0.5, 0.4])
    assert to_target(run, 0.5) == (2, pytest.approx(20), pytest.approx(4e6))
    assert to_target(run, 0.51) is None


def test_a_study_says_what_it_is_of_and_goes_on(
    scadl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def trained(job: Any, folder: Path) -> dict[str, Any]:
        seen.append(job.key)
        return outcome([0.2, 0.3] if job.method == "second order" else [0.2, 0.8])

    monkeypatch.setattr(convergence, "trained", trained)
    command = ("study", "convergence", "graphs", "benchmark=planetoid", "run.dir=out")
    assert scadl(*command, "seed=0,1").status == 0
    page = Path("out/convergence.md").read_text()
    assert "## planetoid: sample data, not the benchmark's" in page
    assert "| plain | 2 | 2 | 0.8000 | 0.7920 | 2 | 30 | 6.0 | 0 |" in page
    assert "| second order | 2 | 0 | 0.3000 | 0.7920 | - | - | - | 0 |" in page
    assert scadl(*command, "seed=0,1,2").status == 0
    assert len(seen) == len(set(seen)) == 3 * len(METHODS)

    done = scadl(*command[:-1], "run.dir=real", "data.path=/data/cora", "seed=0")
    assert done.status == 0, done.err
    page = Path("real/convergence.md").read_text()
    assert "Target: a validation score of 0.815. Accuracy of GCN" in page
    assert f"| {PLAIN} | 1 | 0 | 0.8000 | 0.8150 |" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("graphs",), "which benchmark? add benchmark=NAME; there is: planetoid, ogbn-arxiv"),
        (("graphs", "benchmark=div2k"), "benchmark=div2k: no such benchmark of graphs"),
        (("hep", "benchmark=top", "data.path=/x", "--quick"), "--quick is for sample data"),
        (("hep", "benchmark=top", "model.widht=3"), "unknown key 'model.widht'; did you mean"),
    ],
)
def test_mistakes_are_named(scadl: Callable[..., Any], words: tuple[str, ...], said: str) -> None:
    done = scadl("study", "convergence", *words)
    assert done.status == 2
    assert done.err.startswith(f"scadl: {said}")
