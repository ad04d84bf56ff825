"""From what a person typed to one checked configuration.

Hydra composes; this module knows where the configurations are and turns every mistake into one
message: a misspelt key is answered with the closest one (also behind ``+``, where Hydra would
accept it silently), a value of the wrong type names its key, and all missing values are listed at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from scadl_core.config.apps import App
from scadl_core.config.keys import check_key, check_values, is_hydras, one_message
from scadl_core.errors import ConfigError, nearest

_PACKAGE = Path(__file__).resolve().parents[1]
# In a wheel the shared groups lie inside the package, in a checkout beside it.
SHARED = next(
    (p for p in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if p.is_dir()), _PACKAGE
)


class SearchPath(SearchPathPlugin):
    """Adds the shared groups behind the app's own, and a person's ``--config-dir`` before both."""

    extra: ClassVar[Path | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra when it looks where configurations are."""
        search_path.append(provider="scadl", path=f"file://{SHARED}")
        if self.extra is not None:
            search_path.prepend(provider="--config-dir", path=f"file://{self.extra}")


@contextmanager
def hydra_for(app: App, config_dir: Path | None = None) -> Iterator[None]:
    """Opens Hydra on an app's configurations.

    Args:
        app: The pipeline.
        config_dir: A further folder of choices, searched first.

    Raises:
        ConfigError: ``config_dir`` is not a folder.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise ConfigError(f"--config-dir {config_dir}: no such folder")
    SearchPath.extra = config_dir.resolve() if config_dir else None
    Plugins.instance().register(SearchPath)
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(app.configs), version_base="1.3", job_name="scadl"):
        yield


def compose_run(app: App, overrides: Sequence[str], config_dir: Path | None = None) -> DictConfig:
    """Composes and checks the configuration of a run.

    Args:
        app: The pipeline.
        overrides: Hydra overrides; of a sweep the first choices are composed, and every choice is
            checked.
        config_dir: A further folder of choices.

    Returns:
        The configuration, with missing values still in it (see :func:`require`).

    Raises:
        ConfigError: The first mistake.
    """
    with hydra_for(app, config_dir), one_message():
        typed = parse(overrides)
        for override in (o for o in typed if _options(o.key_or_group)):
            _check_choice(override)
        ways = [each_choice(o) for o in typed]
        configs = [
            _compose_checked(app, [way[number % len(way)] for way in ways])
            for number in range(max(map(len, ways), default=1))
        ]
    return configs[0]


def _compose_checked(app: App, overrides: Sequence[Override]) -> DictConfig:
    groups = [o for o in overrides if _options(o.key_or_group)]
    values = [o for o in overrides if o not in groups]
    base = compose(app.name, [str(o.input_line) for o in groups])
    for override in values:
        if not is_hydras(override):
            check_key(override, base)
    config = compose(app.name, [str(o.input_line) for o in overrides])
    check_values(values, base, config)
    return config


def override_stored(
    stored: DictConfig, app: App, overrides: Sequence[str], config_dir: Path | None = None
) -> DictConfig:
    """Applies overrides to the configuration of a finished run, by the same rules as
    :func:`compose_run`.

    Args:
        stored: The resolved configuration in the run folder.
        app: The run's pipeline.
        overrides: Hydra overrides. A group (``data=netcdf``) replaces that whole part.
        config_dir: A further folder of choices.

    Raises:
        ConfigError: The first mistake.
    """
    base = stored.copy()
    OmegaConf.set_struct(base, True)
    with hydra_for(app, config_dir), one_message():
        parsed = parse(overrides)
        groups = [o for o in parsed if _options(o.key_or_group)]
        for override in groups:
            _check_choice(override)
            part = compose(app.name, [str(override.input_line)])[override.key_or_group]
            OmegaConf.update(base, override.key_or_group, part, merge=False, force_add=True)
        config = base.copy()
        for override in (o for o in parsed if o not in groups):
            check_key(override, base)
            OmegaConf.update(
                config, override.key_or_group, override.value(), force_add=override.is_add()
            )
    check_values([o for o in parsed if o not in groups], base, config)
    return config


def require(config: DictConfig, *sections: str) -> None:
    """Refuses a configuration in which mandatory values are missing, listing all of them.

    Args:
        config: The configuration.
        sections: The parts that will be used; all where none is named.

    Raises:
        ConfigError: Values are missing.
    """
    keys = sorted(
        k for k in OmegaConf.missing_keys(config) if not sections or k.split(".")[0] in sections
    )
    if keys:
        raise ConfigError(
            "missing: " + ", ".join(keys) + "; add " + " ".join(f"{key}=..." for key in keys)
        )


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parses overrides by Hydra's grammar.

    Raises:
        ConfigError: One that does not parse.
    """
    for text in overrides:
        if "=" not in text and not text.startswith("~"):
            raise ConfigError(
                f"cannot read {text!r}: expected key=value, such as optimizer=sgd or seed=1"
            )
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(
            f"cannot read the overrides ({_first_line(error)}); quote a value with spaces, commas, "
            "~, = or letters beyond ASCII twice: 'data.path=\"~/my data\"'"
        ) from None


def each_choice(override: Override) -> list[Override]:
    """An override of a sweep (``seed=1,2,3``) once for every choice, any other once as it is."""
    if not override.is_sweep_override():
        return [override]
    value: Any = override.value()
    if isinstance(value, Glob):
        found = value.filter(_options(override.key_or_group)) or ["null"]
    elif isinstance(value, IntervalSweep):  # any number in between, for a sweeper that searches
        found = [str(value.start), str(value.end)]
    else:
        found = list(override.sweep_string_iterator())
    return parse([f"{override.get_key_element()}={choice}" for choice in found])


def choices(app: App, group: str) -> list[str]:
    """The choices that an app has in a group, such as ``model``."""
    with hydra_for(app):
        return _options(group)


def _options(group: str) -> list[str]:
    return (
        GlobalHydra.instance().config_loader().get_group_options(group) if "." not in group else []
    )


def _check_choice(override: Override) -> None:
    known = _options(override.key_or_group)
    value: Any = override.value()
    if override.is_delete() or isinstance(value, Glob):
        return
    if override.is_sweep_override():
        value = list(override.sweep_string_iterator())
    for choice in map(str, value if isinstance(value, list) else [value or "null"]):
        if choice not in known:
            raise ConfigError(
                f"{override.key_or_group}={choice}: no such choice{nearest(choice, known)}"
            )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].removeprefix("LexerNoViableAltException: ")
