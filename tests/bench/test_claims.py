"""The claims table: against numbers done by hand, stopped and gone on with, and failures shown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.stats import t

from scadl_core.bench import claims
from scadl_core.bench.claims import METHODS, PLAIN, Job, at_equal_time, bench_into, jobs, summary
from scadl_core.bench.journal import Journal
from scadl_core.bench.rows import value_of
from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run
from scadl_core.errors import ConfigError, DataError, RunError

QUIET = Console(quiet=True)


def outcome(score: float, seconds: float = 10, sent: float = 1000, saved: float = 400,
            curve: tuple[float, ...] = (0.4, 0.5)) -> dict[str, Any]:  # fmt: skip
    metrics = {
        "test/accuracy": score, "baseline/accuracy": 0.3, "train/seconds": seconds,
        "comm/sent_bytes": sent, "memory/saved_bytes": saved,
    }  # fmt: skip
    return {"metrics": metrics, "curve": list(curve), "failed": None}


def filled(folder: Path, scores: dict[str, list[float]], **values: Any) -> Journal:
    journal = Journal(folder / "claims.jsonl")
    for method, found in scores.items():
        for seed, score in enumerate(found):
            job = Job("graphs", method, 1.0, seed, False)
            more = values if method != PLAIN else {}
            journal.add(job.key, **job._asdict(), words=[], **outcome(score, **more))
    return journal


def test_a_line_is_what_was_done_by_hand(tmp_path: Path) -> None:
    plain, other = [0.50, 0.52, 0.54], [0.53, 0.53, 0.59]
    journal = filled(tmp_path, {PLAIN: plain, "compression": other}, seconds=20, sent=50, saved=100)
    rows = summary(journal, quick=False)

    def value(metric: str) -> float | None:
        return value_of(rows, "graphs", "compression", metric)

    assert value("score") == pytest.approx(0.55)
    assert value("difference") == pytest.approx(0.03)  # .03, .01, .05
    half = t.ppf(0.975, 2) * 0.02 / math.sqrt(3)
    assert (value("low"), value("high")) == pytest.approx((0.03 - half, 0.03 + half))
    assert value("sent") == pytest.approx(20) and value("activations") == pytest.approx(4)
    assert value("time") == pytest.approx(2) and value("failed") == 0
    # Two epochs of 10 s each, against 10 s for all of plain training, which got to 0.5.
    assert value("at equal time") == pytest.approx(0.4 - 0.5)
    assert value_of(rows, "graphs", "simple rule", "score") == pytest.approx(0.3)
    claims.write_page(tmp_path, journal, quick=False)
    page = (tmp_path / "claims.md").read_text()
    assert "| compression: inconclusive | 3 | 1 | 0.5500 | +0.0300 |" in page


def test_what_loses_is_called_so(tmp_path: Path) -> None:
    journal = filled(tmp_path, {PLAIN: [0.5, 0.6], "second order": [0.4, 0.501]})
    claims.write_page(tmp_path, journal, quick=False)
    assert "second order: **worse**" in (tmp_path / "claims.md").read_text()


def test_no_epoch_in_time_is_no_score() -> None:
    assert at_equal_time(outcome(1, seconds=100), outcome(1)) == -math.inf


def test_the_rate_is_chosen_by_validation_for_every_method(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "claims.jsonl")
    for method in METHODS:
        for factor in claims.RATES:
            job = Job("graphs", method, factor, 0, False)
            score = 0.9 if factor == (3.0 if method == PLAIN else 0.3) else 0.5
            journal.add(job.key, **job._asdict(), words=[], **outcome(1 - score, curve=(score,)))
    left = list(jobs("graphs", False, journal))
    assert [job.seed for job in left] == [seed for seed in range(1, 5) for _ in METHODS]
    assert {job.method: job.factor for job in left} == {
        name: 3.0 if name == PLAIN else 0.3 for name in METHODS
    }


def test_a_stopped_bench_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def trained(job: Job, folder: Path) -> dict[str, Any]:
        if len(seen) == 4:
            seen.append("stopped")
            raise RunError("ended from outside")
        seen.append(job.key)
        failed = {"metrics": {}, "curve": [], "failed": "no longer finite"}
        return failed if job.method == "gradient-free" else outcome(0.5 + 0.1 * job.seed)

    monkeypatch.setattr(claims, "trained", trained)
    with pytest.raises(RunError):
        bench_into(tmp_path, ["graphs"], True, QUIET)
    assert len((tmp_path / "claims.jsonl").read_text().splitlines()) == 4
    assert "graphs" in (tmp_path / "claims-quick.md").read_text()
    rows = bench_into(tmp_path, ["graphs"], True, QUIET)
    seen.remove("stopped")
    assert len(seen) == len(set(seen)) == 2 * len(METHODS)
    assert value_of(rows, "graphs", "gradient-free", "failed") == 2
    assert value_of(rows, "graphs", "all three", "seeds") == 2
    page = (tmp_path / "claims-quick.md").read_text()
    assert "no longer finite" in page and "**Quick:" in page
    assert summary(Journal(tmp_path / "claims.jsonl"), quick=False) == [], "not mixed with others"


@pytest.mark.parametrize("app", ["climate"])
def test_the_words_of_every_job_compose(app: str) -> None:
    for method in ("all three",):
        words = Job(app, method, 0.3, 2, True).words
        config, plain = (compose_run(find_app(app), it) for it in (words, METHODS[method]))
        assert config.seed == 2
        assert config.optimizer.lr == pytest.approx(0.3 * plain.optimizer.lr)


def test_a_command_that_is_refused_is_a_failure_and_one_that_is_killed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("graphs", PLAIN, 1.0, 0, True)

    class Done:
        returncode, stdout, stderr = 2, "", "noise\nscadl: ADMM: block 1 is no longer finite\n"

    monkeypatch.setattr(claims.subprocess, "run", lambda *_, **__: Done)
    assert claims.trained(job, tmp_path)["failed"] == "ADMM: block 1 is no longer finite"
    Done.returncode = 137
    with pytest.raises(RunError, match="status 137; see"):
        claims.trained(job, tmp_path)


def test_other_pipelines_and_damaged_journals_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'weather' is none of graphs, hep, climate"):
        bench_into(tmp_path, ["weather"], True, QUIET)
    (tmp_path / "claims.jsonl").write_text('{"key": "a"}\n{"ke')
    with pytest.raises(DataError, match=r"claims\.jsonl, line 2: expected an object with a key"):
        bench_into(tmp_path, ["graphs"], True, QUIET)


@pytest.mark.soak
def test_quick_claims_of_graphs(scadl: Callable[..., Any], tmp_path: Path) -> None:
    done = scadl("bench", "claims", "graphs", "--quick", "--out", "out")
    assert done.status == 0, done.err
    rows = json.loads(Path("out/claims.json").read_text())
    found = {(row["method"], row["metric"]): row["value"] for row in rows}
    assert {method for method, _ in found} == {*METHODS, "simple rule"}
    assert all(found[method, "seeds"] == 2 for method in METHODS)
    assert found["compression", "sent"] > 1
