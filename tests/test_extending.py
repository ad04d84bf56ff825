"""The worked example of docs/extending.md keeps the contract, found by its entry point."""

from __future__ import annotations

import importlib
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.register_assert_rewrite("scadl_core.cli.contract")
from scadl_core.cli.contract import Contract  # noqa: E402
from scadl_core.config.apps import find_app  # noqa: E402

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "seismic"


@pytest.fixture(scope="module", autouse=True)
def by_entry_point(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where `pip install` would have put the example."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE / "apps", site / "apps", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    about = site / "scadl_seismic-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    points = project["entry-points"]["scadl.apps"].items()
    lines = ["[scadl.apps]", *(f"{name} = {module}" for name, module in points)]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        _forget()  # whatever test found it elsewhere
        yield site
    _forget()


def _forget() -> None:
    for name in [it for it in sys.modules if it.startswith("apps.seismic")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.mark.parametrize("app", ["seismic"], scope="class")
class TestInstalled(Contract):
    """The contract, on the example as it is when installed."""

    def test_it_is_found_by_its_entry_point(self, app: str, by_entry_point: Path) -> None:
        points = [it.value for it in entry_points(group="scadl.apps") if it.name == app]
        assert points == [find_app(app).module] == ["apps.seismic"]
        assert by_entry_point in find_app(app).configs.parents
