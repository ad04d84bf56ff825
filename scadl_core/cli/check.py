"""``scadl check``: reads a user's files, says what is in them, and writes the configuration that
trains on them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from scadl_core.comm import World
from scadl_core.config.apps import App, find_app
from scadl_core.config.build import allowed, locate
from scadl_core.errors import ConfigError, DataError
from scadl_core.files import write_text
from scadl_core.workflow.pipeline import make_source, resolve

CONFIG_DIR = Path("scadl_configs")


def check(config: DictConfig, console: Console) -> bool:
    """Checks the configured data; where they are not what the configuration says, looks what they
    offer instead.

    Args:
        config: The composed configuration; of ``data`` only the path has to be there.
        console: Where the report is printed.

    Returns:
        Whether one can train on the data as they are configured.

    Raises:
        DataError: The files cannot be read at all.
    """
    given = OmegaConf.missing_keys(config)
    if "data.path" in given:
        raise ConfigError("missing: data.path; add data.path=<your files>")
    missing = sorted(key for key in given if key.startswith("data."))
    try:
        if missing:
            raise ConfigError(f"not yet configured: {', '.join(missing)}")
        resolved = resolve(config)
        source = make_source(resolved, World.start())
        report = source.report()
        data: Any = OmegaConf.to_container(resolved.data)
        values: dict[str, Any] = {**data, **getattr(source, "settings", {})}
        values.pop("sample", None)
        mistake = None
    except (ConfigError, DataError) as error:
        mistake = error
        maker = locate(config.data._target_, "data", allowed(config))
        report, offered = maker.propose(**_given(config))
        defaults = {
            k: None if OmegaConf.is_missing(config.data, k) else config.data[k] for k in config.data
        }
        values = {**defaults, "path": config.data.path, **offered}
        values.pop("sample", None)
        values = OmegaConf.to_container(OmegaConf.create(values), resolve=False)  # type: ignore[assignment]
    report.print(console)
    if mistake is not None:
        console.print(
            f"with the present settings these data cannot be used: {mistake}; the page has what "
            "the files offer instead",
            style="yellow",
            highlight=False,
            markup=False,
        )
    path = (
        Path(config.output).expanduser()
        if config.output
        else CONFIG_DIR / "data" / f"{_name(config.data.path)}.yaml"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    comments = comments_of(find_app(config.app))
    page = data_yaml(values, config.app, report.facts, mistake, comments)
    if not config.output:
        path = _beside(path, page)
    write_text(path, page)
    console.print(f"written: {path}", highlight=False, markup=False)
    if path.parent.name == "data":
        console.print(
            f"train on it: scadl train {config.app} --config-dir {path.parent.parent} "
            f"data={path.stem}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return mistake is None


def _given(config: DictConfig) -> dict[str, Any]:
    """The values of ``data`` that are there."""
    found: Any = OmegaConf.to_container(config.data, resolve=True)
    return {str(k): v for k, v in found.items() if k not in ("_target_", "sample") and v != "???"}


def comments_of(app: App) -> dict[str, str]:
    """What the app's own data pages say behind each key."""
    pages = (page.read_text(encoding="utf-8") for page in (app.configs / "data").glob("*.yaml"))
    found = [re.findall(r"^ *(\w+):[^#\n]*#\s*(.+)$", page, re.MULTILINE) for page in pages]
    return {key: comment for lines in found for key, comment in lines}


def data_yaml(
    values: dict[str, Any],
    app: str,
    facts: dict[str, str],
    mistake: Exception | None,
    comments: dict[str, str] | None = None,
) -> str:
    """A commented data configuration.

    Args:
        values: The ``data`` part; None stands for what the person still has to say.
        app: The pipeline.
        facts: What was found, as comments on top.
        mistake: Why the configuration from which the values come did not fit, if it did not.
        comments: What to say of a key.
    """
    lines = [
        f"# Data of yours for `scadl {app}`, written by `scadl check`. Edit freely; every key can "
        "be overridden."
    ]
    lines += [f"# {name}: {' '.join(str(value).split())}" for name, value in facts.items()]
    if mistake is not None:
        lines += [
            "# Proposed from what the files offer: look over inputs, target and classes before "
            "training."
        ]
    for name, value in values.items():
        if comments and name in comments:
            lines.append(f"# {comments[name]}")
        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
        lines.append(f"{name}: {text.removesuffix('...' + chr(10)).strip()}")
    return "\n".join(lines) + "\n"


def _beside(path: Path, page: str) -> Path:
    """The path, or where another page is there, which may have been edited, one with a number."""
    stem, number = path.stem, 1
    while path.exists() and path.read_text(encoding="utf-8") != page:
        number += 1
        path = path.with_stem(f"{stem}_{number}")
    return path


def _name(path: str | list[str]) -> str:
    first = Path(path if isinstance(path, str) else path[0])
    name = first.name if first.is_dir() else first.stem
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "mine"
