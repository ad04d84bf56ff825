"""``scadl new``: a pipeline of one's own, begun as a copy of another."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from rich.console import Console

from scadl_core.cli.arguments import take_flags
from scadl_core.config.apps import App, find_app, find_apps
from scadl_core.errors import ConfigError
from scadl_core.files import folder_aside, write_text

_TEXTS = (".py", ".yaml", ".md")
_TEST = '''"""The contract of all pipelines, on those in apps/ beside this folder."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("scadl_core.cli.contract")
from scadl_core.cli.contract import Contract, apps_in  # noqa: E402

APPS = apps_in(Path(__file__).resolve().parents[1])


@pytest.mark.parametrize("app", APPS, scope="class")
class TestContract(Contract):
    """Every law is a test."""
'''


def new(words: list[str], console: Console) -> Path:
    """Copies a pipeline to ``apps/NAME`` of the working directory, and beside it, where there is
    none, the test of the contract.

    Args:
        words: What follows the verb: ``NAME --from APP``.
        console: Where to say what to do next.

    Returns:
        The new folder.

    Raises:
        ConfigError: A name that cannot be used, or no such pipeline.
    """
    rest, flags = take_flags(words, {"--from": "APP"})
    if len(rest) != 1 or not flags:
        raise ConfigError(f"scadl new NAME --from APP; there is: {', '.join(find_apps())}")
    name, origin = rest[0], find_app(flags["--from"])
    _check_name(name)
    root = Path.cwd()
    folder = root / "apps" / name
    if folder.exists() or name in find_apps():
        raise ConfigError(f"there is a pipeline {name!r} already; choose another name")
    with folder_aside(folder) as aside:
        count = _copy(origin, name, aside)
    console.print(f"made: {folder} ({count} files), a copy of {origin.name}", soft_wrap=True)
    test = root / "tests" / "test_contract.py"
    if not test.exists():
        test.parent.mkdir(exist_ok=True)
        write_text(test, _TEST)
        console.print(f"made: {test}", soft_wrap=True)
    console.print(f"see it run: scadl train {name} debug=tiny")
    console.print(f"test it: python -m pytest tests/test_contract.py -k {name}")
    return folder


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or iskeyword(name):
        raise ConfigError(
            f"{name!r} cannot name a pipeline: small letters, figures and _ are needed, such as "
            "permafrost or ice_floes"
        )


def _copy(origin: App, name: str, folder: Path) -> int:
    """Copies the files of a pipeline, renamed where they name it; how many."""
    source = folder_of(origin)
    files = [
        it for it in sorted(source.rglob("*")) if it.is_file() and "__pycache__" not in str(it)
    ]
    for file in files:
        path = folder / file.relative_to(source)
        if path.relative_to(folder) == Path("configs", f"{origin.name}.yaml"):
            path = path.with_name(f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in _TEXTS:
            text = renamed(file.read_text(encoding="utf-8"), origin, name)
            path.write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(file, path)
    return len(files)


def renamed(text: str, origin: App, name: str) -> str:
    """The text of a file of one pipeline, for another.

    Args:
        text: Of a module, a configuration or a page.
        origin: Whose it is.
        name: Of the other, ``apps.<name>``.
    """
    old = re.escape(origin.name)
    module, path = re.escape(origin.module), re.escape(origin.module.replace(".", "/"))
    for pattern, by in (
        (rf"(?<![\w.]){module}(?!\w)", f"apps.{name}"),
        (rf"(?<![\w/]){path}/", f"apps/{name}/"),
        (rf"\b(scadl (?:study )?\w+) {old}\b", rf"\1 {name}"),
        (rf"(?m)^app: {old}$", f"app: {name}"),
        (rf"(\$\{{paths\.data\}})/{old}/", rf"\1/{name}/"),
    ):
        text = re.sub(pattern, by, text)
    return text


def folder_of(app: App) -> Path:
    """Where the modules of a pipeline are."""
    spec = find_spec(app.module)
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))
