"""A pipeline of one's own: copied, found, and in the shape that its tests ask for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scadl_core.cli.new import folder_of, renamed
from scadl_core.config.apps import App, find_app

Scadl = Callable[..., Any]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is imported from the working directory is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("apps."):
            del sys.modules[name]
    importlib.invalidate_caches()


def test_a_copy_is_a_pipeline_that_runs(scadl: Scadl, workplace: Path) -> None:
    done = scadl("new", "permafrost", "--from", "hep")
    assert (done.status, done.err) == (0, "")
    assert find_app("permafrost").configs == workplace / "apps" / "permafrost" / "configs"
    there, origin = folder_of(find_app("permafrost")), folder_of(find_app("hep"))
    assert {it.name for it in there.glob("*.py")} == {it.name for it in origin.glob("*.py")}
    for file in (it for it in there.rglob("*") if it.suffix in (".py", ".yaml")):
        assert "apps.hep" not in file.read_text(encoding="utf-8"), file
    assert "scadl train permafrost" in (there / "README.md").read_text()
    assert "class TestContract(Contract)" in (workplace / "tests" / "test_contract.py").read_text()
    done = scadl("train", "permafrost", "debug=tiny", "trainer.accelerator=cpu", "run.dir=run")
    assert (done.status, done.err) == (0, "")
    config = yaml.safe_load((workplace / "run" / "config.yaml").read_text())
    assert config["app"] == "permafrost"
    assert config["task"]["_target_"] == "apps.permafrost.task.Classification"
    assert "/permafrost/" in config["data"]["path"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "scadl new NAME --from APP; there is: climate, "),
        (("mine",), "scadl new NAME --from APP; there is: climate, "),
        (("mine", "--from", "climat"), "no pipeline is called 'climat'; did you mean 'climate'?"),
        (("My-App", "--from", "hep"), "'My-App' cannot name a pipeline: small letters"),
        (("class", "--from", "hep"), "'class' cannot name a pipeline: small letters"),
        (("../out", "--from", "hep"), "'../out' cannot name a pipeline: small letters"),
        (("graphs", "--from", "hep"), "there is a pipeline 'graphs' already; choose another"),
    ],
)
def test_what_cannot_be_made_is_refused(
    scadl: Scadl, workplace: Path, words: tuple[str, ...], message: str
) -> None:
    done = scadl("new", *words)
    assert done.status == 2
    assert done.err.startswith(f"scadl: {message}")
    assert not list(workplace.iterdir())


def test_only_what_names_the_pipeline_is_renamed() -> None:
    text = "apps.hep.x apps.heparin apps/hep/y scadl train hep # hep\napp: hep\n${paths.data}/hep/z"
    assert renamed(text, App("hep", "apps.hep"), "new") == (
        "apps.new.x apps.heparin apps/new/y scadl train new # hep\napp: new\n${paths.data}/new/z"
    )
    installed = App("floes", "icefloes")
    assert renamed("from icefloes.data import x", installed, "new") == "from apps.new.data import x"
