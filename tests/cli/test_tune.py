"""scadl plan and scadl tune on a small run."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from scadl_core.cli import main
from scadl_core.cli.tune import page, read
from scadl_core.config.apps import find_app
from scadl_core.config.compose import compose_run
from scadl_core.errors import ConfigError
from scadl_core.tuning import Curvature, Plan
from scadl_core.workflow.tuner import Tuning


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_tune_tries_plans_and_falls_back(
    scadl: Callable[..., object], tiny: tuple[str, ...], workplace: Path
) -> None:
    done = scadl("tune", "climate", *tiny, "--plans=1", "--steps=2")
    assert (done.status, done.err) == (0, "")
    assert "comm off <- pick" in done.out or "experiment=tuned" in done.out
    assert not (workplace / "runs").exists()  # a trial is no run
    written = workplace / "tuned" / "climate" / "experiment" / "tuned.yaml"
    assert written.exists() == ("experiment=tuned" in done.out)


def test_a_memory_that_nothing_fits_into(
    scadl: Callable[..., object], tiny: tuple[str, ...]
) -> None:
    done = scadl("tune", "climate", *tiny, "--memory=1KiB", "--steps=1")
    assert done.status == 2
    assert "no plan stays within 0.0 MiB a rank" in done.err


def test_plan_shows_each_power(scadl: Callable[..., object], tiny: tuple[str, ...]) -> None:
    words = ("--simulate", "nodes=2", "gpus_per_node=1", "link=ethernet")
    done = scadl("plan", "climate", *tiny, *words)
    assert (done.status, done.err) == (0, "")
    for power in ("as configured", "comm=bf16", "comm=compressed", "memory=adaptive",
                  "optimizer=kfac", "all three"):  # fmt: skip
        assert power in done.out
    assert "predicted, 2 ranks" in done.out


def test_the_simulator_writes_curves(
    scadl: Callable[..., object], tiny: tuple[str, ...], workplace: Path
) -> None:
    done = scadl(
        "tune", "climate", *tiny, "--out", "curves", "--simulate", "nodes=4", "link=ethernet"
    )
    assert (done.status, done.err) == (0, "")
    rows = list(csv.DictReader((workplace / "curves" / "scaling.csv").read_text().splitlines()))
    assert {row["method"] for row in rows} == {"plain", "bf16", "compressed", "K-FAC", "ADMM"}
    assert {int(row["ranks"]) for row in rows} == {1, 2, 4, 8, 16}
    assert (workplace / "curves" / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--eror=1"], "unknown flag '--eror'; did you mean '--error'"),
        (["--steps=none"], "--steps: expected a number above 0, got 'none'"),
        (["--steps"], "--steps needs a value"),
        (["--simulate", "nodes=-1"], "nodes: expected a number above 0"),
    ],
)
def test_mistakes(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read("tune", ["climate", *words])


def test_the_written_page_is_a_hydra_override(tmp_path: Path) -> None:
    plan = Plan("compressed", 0.015, 5.0, 2, True, Curvature(1.0))
    base = Plan(kfac=Curvature())
    found = Tuning(base, [], 0, plan, plan.overrides(base, 4))
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "tuned.yaml").write_text(page(found))
    config = compose_run(
        find_app("climate"), ["optimizer=kfac", "data.path=x", "experiment=tuned"], tmp_path
    )
    assert config.comm.bound == 0.015
    assert config.solver.bucket == 5
    assert config.trainer.accumulate_grad_batches == 2
    assert config.loader.batch_size == 2
    assert config.memory["_target_"].endswith("ActivationMemory")


def test_what_a_plan_chooses_takes_the_place_of_what_was_typed() -> None:
    asked = read("tune", ["climate", "comm=compressed", "comm.bound=2", "seed=3"])
    assert asked.compose().comm.bound == 2
    other = asked.compose(["comm=off"])
    assert dict(other.comm) == {} and other.seed == 3


@pytest.mark.soak
def test_two_ranks_agree(
    run_ranks: Callable[..., list[object]], tiny: tuple[str, ...], workplace: Path
) -> None:
    def run() -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            words = ["tune", "climate", *tiny, "--plans=2", "--steps=2", "--error=1"]
            assert main(words) == 0
        return out.getvalue()

    first, second = run_ranks(2, run, timeout=240)
    assert "<- pick" in first and second == ""
    assert first.count("comm ") >= 3
    print(first)
