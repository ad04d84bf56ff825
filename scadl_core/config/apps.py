"""Finds the pipelines.

None is registered: a pipeline is a folder. Looked for in the namespace package ``apps`` (the
installed ones and ``./apps`` of the working directory) and in the entry-point group ``scadl.apps``
of other distributions. Names are listed; a module is imported only when chosen.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from scadl_core.errors import ConfigError, nearest


@dataclass(frozen=True)
class App:
    """A pipeline.

    Attributes:
        name: What a person types; also the name of its front page, ``configs/<name>.yaml``.
        module: The package to import.
    """

    name: str
    module: str

    @property
    def configs(self) -> Path:
        """The app's configuration folder."""
        spec = importlib.util.find_spec(self.module)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (Path(folder) / "configs" / f"{self.name}.yaml").is_file():
                return Path(folder) / "configs"
        raise ConfigError(
            f"the app {self.name!r} ({self.module}) has no configs/{self.name}.yaml; write its "
            "front page, "
            "see 'Adding a pipeline' in the README"
        )


def find_apps() -> dict[str, App]:
    """All pipelines by name.

    Raises:
        ConfigError: A regular package called ``apps`` hides the namespace package.
    """
    if (Path.cwd() / "apps").is_dir() and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
        importlib.invalidate_caches()
    import apps

    if getattr(apps, "__file__", None):
        raise ConfigError(
            f"`apps` is the regular package {apps.__file__}; ScaDL's apps is a namespace package. "
            "Remove that __init__.py, or start scadl from another folder."
        )
    found = dict(_of_distributions(tuple(sys.path)))
    for module in pkgutil.iter_modules(apps.__path__):
        if module.ispkg:
            found.setdefault(module.name, App(module.name, f"apps.{module.name}"))
    return dict(sorted(found.items()))


@lru_cache(1)  # reading what all installed distributions offer takes 20 ms, and is asked for often
def _of_distributions(_path: tuple[str, ...]) -> dict[str, App]:
    points = entry_points(group="scadl.apps")
    return {point.name: App(point.name, point.value) for point in points}


def find_app(name: str) -> App:
    """The pipeline of that name.

    Args:
        name: What the person typed.

    Raises:
        ConfigError: There is none; the message names the closest.
    """
    found = find_apps()
    if name not in found:
        raise ConfigError(f"no pipeline is called {name!r}{nearest(name, found)}")
    return found[name]
