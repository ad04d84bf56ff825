"""Documentation says what is so: links lead somewhere, commands compose, Python runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scadl_core.bench import modules
from scadl_core.bench.convergence import BENCHMARKS
from scadl_core.cli import main
from scadl_core.cli.arguments import Words, read_words, take_flags
from scadl_core.config.apps import find_apps
from scadl_core.config.compose import compose_run, each_choice
from scadl_core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "apps/*/README.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
POWERS = sorted(ROOT.glob("docs/powers/*.md"))
LESSONS = sorted(ROOT.glob("docs/lessons/*.md"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
COMMAND = re.compile(r"^(?:mpirun|srun|torchrun|\S*/?scadl|make|python)\b")
WITH_APP = ("train", "evaluate", "predict", "export", "check", "config", "plan", "tune")
ALONE = ("list", "doctor", "new", "rerun", "compare")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Command(NamedTuple):
    """A command of the documentation."""

    page: str
    words: tuple[str, ...]


def commands_of(path: Path) -> Iterator[Command]:
    """Those in blocks and between backticks."""
    text = path.read_text(encoding="utf-8")
    blocks = [code for language, code in FENCED.findall(text) if language in ("", "bash")]
    rest = FENCED.sub("", text)
    lines = [line for code in blocks for line in code.splitlines()]
    lines += [it[4:] for it in rest.splitlines() if it.startswith("    ")]
    lines += re.findall(r"`([^`\n]+)`", rest)
    for line in lines:
        if not COMMAND.match(line):
            continue
        words = shlex.split(line, comments=True)
        at = next((n for n, it in enumerate(words) if it.split("/")[-1] == "scadl"), None)
        if words[0] == "make" or at is not None:
            yield Command(name_of(path), tuple(["make", *words[1:]] if at is None else words[at:]))


COMMANDS = sorted({command for path in PAGES for command in commands_of(path)})


def test_the_commands_were_found() -> None:
    verbs = {it.words[1] for it in COMMANDS if it.words[0] != "make" and len(it.words) > 1}
    assert {*WITH_APP, *ALONE, "bench", "study"} <= verbs
    assert len(COMMANDS) > 100


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages that `scadl check` would have written: an app's own, under other names."""
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize(
    "merged", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["merged", "each"]
)
def test_every_command_composes(
    merged: bool, workplace: Path, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules by which it would run; what it would do is left out, and so are Slurm's jobs
    where their launcher is not installed.

    Merged: commands of one kind of run that do not set a key differently, at once, and of a sweep
    the first run.
    """
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "seismic"))
    monkeypatch.chdir(ROOT / "examples" / "seismic")  # its app is found there
    slurm = find_spec("hydra_plugins.hydra_submitit_launcher") is not None
    known = [it for it in COMMANDS if slurm or "hydra/launcher=slurm" not in it.words]
    runs = [(it, run) for it in known if (run := run_of_command(it, pages)) is not None]
    wrong = []
    for commands, run in merge(runs) if merged else [([it], run) for it, run in runs]:
        try:
            compose_run(run.app, run.overrides, run.config_dir)
        except ConfigError as error:
            wrong += [f"{it.page}: {' '.join(it.words)}\n    {error}" for it in commands]
    forget_example()
    assert not wrong, "\n".join(wrong)


def forget_example() -> None:
    """The next test may find the example elsewhere."""
    for name in [it for it in sys.modules if it.startswith("apps.seismic")]:
        del sys.modules[name]


def merge(runs: list[tuple[Command, Words]]) -> list[tuple[list[Command], Words]]:
    found: list[tuple[list[Command], Words]] = []
    for command, run in runs:
        parsed = [each_choice(override)[0] for override in run.parsed]
        words = [f"{it.key_or_group}=/x" if it.key_or_group in PATHS else it.input_line
                 for it in parsed]  # fmt: skip
        run = replace(run, overrides=list(map(str, words)))
        for commands, other in found:
            if fits(run, other):
                commands.append(command)
                new = [it for it in run.overrides if it not in other.overrides]
                other.overrides.extend(new)
                break
        else:
            found.append(([command], run))
    return found


def fits(one: Words, other: Words) -> bool:
    """Whether both are of one app, data, model and experiment, and set no key differently."""
    mine, known = (dict(it.split("=", 1) for it in run.overrides if "=" in it)
                   for run in (one, other))  # fmt: skip
    bases = [[run.get(part) for part in ("data", "model", "experiment")] for run in (mine, known)]
    return (
        (one.app, one.config_dir) == (other.app, other.config_dir)
        and bases[0] == bases[1]
        and all(known.get(key, value) == value for key, value in mine.items())
    )


def run_of_command(command: Command, pages: Path) -> Words | None:
    """The run that a command is about, after a look at whatever else it says."""
    first, *rest = command.words
    if first == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(rest[:1]) <= set(targets), command
        return None
    verb, *rest = rest or [""]
    if verb in ("", *ALONE) or "..." in rest or not rest or rest[0] in ("APP", "NAME"):
        return None
    if verb == "bench":
        names, _ = take_flags(rest, {"--quick": "", "--out": "DIR"})
        assert names[0] in {*modules(), "all"}, command
        return None
    rest = rest[1:] if verb == "study" else rest
    assert verb in (*WITH_APP, "study"), command
    if not rest or rest[0] in ("permafrost", "mine"):  # that the reader has just made
        return None
    assert rest[0] in find_apps(), command
    kept = [it for it in rest if not it.startswith("--") or it.startswith("--config-dir")]
    if "--simulate" in rest:
        kept = [it for it in kept if it.split("=")[0] not in SIMULATED]
    given = read_words("train", kept)
    named = [it.removeprefix("benchmark=") for it in given.overrides if it.startswith("benchmark=")]
    assert set(named) <= {"NAME", *BENCHMARKS}, command
    words = [it for it in given.overrides if it != "..." and not it.startswith("benchmark=")]
    given = replace(given, overrides=words)
    return written_page(given, pages) if given.config_dir is not None else given


PATHS = ("run.dir", "data.path", "input", "output")
SIMULATED = ("nodes", "gpus_per_node", "link", "gpu")


def written_page(given: Words, pages: Path) -> Words:
    """With the page that its ``data=`` names, as `scadl check` would have written it."""
    (chosen,) = [o for o in given.overrides if o.startswith("data=")]
    name = chosen.removeprefix("data=").strip("<>")
    folder = pages / given.app.name
    (folder / "data").mkdir(parents=True, exist_ok=True)
    source = next(it for it in sorted((given.app.configs / "data").glob("*.yaml"))
                  if it.stem == "sample")  # fmt: skip
    (folder / "data" / f"{name}.yaml").write_text(source.read_text())
    overrides = [f"data={name}" if it == chosen else it for it in given.overrides]
    return replace(given, config_dir=folder, overrides=overrides)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_resolve(path: Path) -> None:
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        place, _, anchor = target.partition("#")
        linked = (path.parent / place).resolve() if place else path
        assert linked.exists(), f"{name_of(path)} links {target}"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.M)
            found = {re.sub(r"[^\w\- ]", "", it.lower()).strip().replace(" ", "-") for it in heads}
            assert anchor in found, f"{name_of(path)} links {target}"


def test_every_page_is_in_the_site() -> None:
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    there = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    assert listed == there


def run_python(path: Path) -> None:
    """All Python of a page, one block after the other."""
    space: dict[str, Any] = {}
    code = [code for kind, code in FENCED.findall(path.read_text()) if kind == "python"]
    assert code
    for number, block in enumerate(code):
        exec(compile(block, f"{path}[{number}]", "exec"), space)


@pytest.mark.parametrize("path", POWERS, ids=name_of)
def test_python_of_a_power_runs(path: Path, run_ranks: Callable[..., list[Any]]) -> None:
    if path.stem == "comm":  # needs somebody to talk to
        assert run_ranks(2, lambda: run_python(path)) == [None, None]
    else:
        run_python(path)


@pytest.mark.soak
@pytest.mark.parametrize("path", LESSONS, ids=name_of)
def test_a_lesson_leads_from_files_to_a_report(
    path: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Path(sys.executable).parent
    for _, block in FENCED.findall(path.read_text()):
        for line in block.splitlines():
            words = shlex.split(line)
            if words[0] == "mpirun":
                at = words.index("scadl")
                command = [beside / "mpirun", *words[1:at], sys.executable, "-m", "scadl_core.cli"]
                assert subprocess.run([*command, *words[at + 1 :]], check=False).returncode == 0
            else:
                monkeypatch.setattr(sys, "argv", words)
                assert main(words[1:]) == 0, line
    reports = {it.parent.name for it in workplace.rglob("report.html")}
    assert len(reports) >= 2
