"""Pipelines are found: installed, in the working directory, by entry point."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scadl_core.config.apps import App, find_app, find_apps
from scadl_core.errors import ConfigError


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another working directory; what is imported there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = {name: module for name, module in sys.modules.items() if name.startswith("apps")}
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("apps", "icefloes")]:
        del sys.modules[name]
    sys.modules.update(before)
    importlib.invalidate_caches()


def write_app(folder: Path, name: str) -> Path:
    (folder / "configs").mkdir(parents=True)
    (folder / "__init__.py").write_text('raise RuntimeError("imported without being chosen")\n')
    (folder / "configs" / f"{name}.yaml").write_text("app: x\n")
    return folder / "configs"


def test_the_shipped_pipelines_are_found() -> None:
    root = Path(__file__).resolve().parents[2] / "apps"
    shipped = sorted(p.parent.name for p in root.glob("*/__init__.py"))
    assert [name for name in find_apps() if (root / name).is_dir()] == shipped
    assert find_app("climate") == App("climate", "apps.climate")
    assert find_app("climate").configs == root / "climate" / "configs"


def test_a_folder_in_the_working_directory_is_a_pipeline(elsewhere: Path) -> None:
    configs = write_app(elsewhere / "apps" / "icefloes", "icefloes")
    (elsewhere / "apps" / "notes").mkdir()  # not a package
    assert {"climate", "icefloes"} <= find_apps().keys()
    assert "notes" not in find_apps()
    assert find_app("icefloes").configs == configs


def test_the_worked_example_is_found_from_its_folder(elsewhere: Path) -> None:
    assert "seismic" not in find_apps()
    example = Path(__file__).resolve().parents[2] / "examples" / "seismic" / "apps"
    shutil.copytree(example, elsewhere / "apps", ignore=shutil.ignore_patterns("__pycache__"))
    assert find_app("seismic") == App("seismic", "apps.seismic")
    assert find_app("seismic").configs == elsewhere / "apps" / "seismic" / "configs"


def test_an_entry_point_is_a_pipeline(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = elsewhere / "site"
    configs = write_app(site / "icefloes", "floes")
    about = site / "icefloes-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: icefloes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[scadl.apps]\nfloes = icefloes\n")
    monkeypatch.syspath_prepend(site)
    assert find_app("floes") == App("floes", "icefloes")
    assert find_app("floes").configs == configs


def test_a_regular_package_called_apps_is_named(elsewhere: Path) -> None:
    (elsewhere / "apps").mkdir()
    guilty = elsewhere / "apps" / "__init__.py"
    guilty.touch()
    for name in [name for name in sys.modules if name.split(".")[0] == "apps"]:
        del sys.modules[name]
    with pytest.raises(ConfigError) as caught:
        find_apps()
    assert str(caught.value) == (
        f"`apps` is the regular package {guilty}; ScaDL's apps is a namespace package. "
        "Remove that __init__.py, or start scadl from another folder."
    )


def test_a_pipeline_without_a_front_page_is_named(elsewhere: Path) -> None:
    write_app(elsewhere / "apps" / "icefloes", "other")
    with pytest.raises(ConfigError, match=r"'icefloes' \(apps.icefloes\) has no configs/icefloes"):
        _ = find_app("icefloes").configs


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(
        ConfigError, match=r"^no pipeline is called 'climat'; did you mean 'climate"
    ):
        find_app("climat")
