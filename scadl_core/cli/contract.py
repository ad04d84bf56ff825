"""What every pipeline keeps, as tests: of ours, and of yours.

`scadl new` writes a test file with this class in it; `python -m pytest` runs it. Everything is
tried on the pipeline's own example, made small by its page ``configs/debug/tiny.yaml``.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from scadl_core.cli import main
from scadl_core.cli.new import folder_of
from scadl_core.comm import World
from scadl_core.config.apps import find_app, find_apps
from scadl_core.config.compose import choices, compose_run, require
from scadl_core.config.keys import leaves
from scadl_core.record.datareport import DataReport
from scadl_core.record.runfolder import RunFolder
from scadl_core.workflow.pipeline import make_source, make_task, resolve, restore_task
from scadl_core.workflow.task import Task

TINY = ("debug=tiny", "trainer.accelerator=cpu")
WORDS = (
    *(f"data.{word}" for word in ("path", "inputs", "target", "split", "weight")),
    *("model", "optimizer", "memory", "comm", "solver", "trainer", "seed"),
    *("run.dir", "input", "output"),
)
IN_ALL = (
    "train/seconds",
    "train/epochs",
    "memory/saved_bytes",
    "memory/saved_bytes_uncompressed",
    "comm/sent_bytes",
)


class Outcome(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


def apps_in(folder: Path) -> list[str]:
    """The pipelines that lie in ``apps/`` of a folder."""
    sys.path.insert(0, str(folder))  # also where the tests are started from elsewhere
    return [name for name, app in find_apps().items() if folder_of(app).parent == folder / "apps"]


def call(*words: str) -> Outcome:
    """The command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["scadl", *words])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(words)
    return Outcome(status, out.getvalue(), err.getvalue())


def done(*words: str) -> str:
    """What a command prints; it has to do what it is asked, and to have nothing to complain of."""
    outcome = call(*words)
    assert (outcome.status, outcome.err) == (0, ""), outcome
    return outcome.out


@pytest.mark.usefixtures("place")
class Contract:
    """The tests, of ``@pytest.mark.parametrize("app", ["mine"], scope="class")``."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, app: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
        """An empty working directory, in which examples and runs are made."""
        find_app(app)  # while its folder is still the working directory
        folder = tmp_path_factory.mktemp(app)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("SCADL_DATA", str(folder / "data"))
            patch.setenv("SCADL_RUNS", str(folder / "runs"))
            yield folder

    @pytest.fixture(scope="class")
    @classmethod
    def config(cls, app: str, place: Path) -> Any:
        """The composed configuration of the small example."""
        return resolve(compose_run(find_app(app), TINY))

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, app: str, place: Path) -> Path:
        """A finished training."""
        done("train", app, *TINY, "run.dir=run")
        return place / "run"

    def test_the_same_words_in_every_app(self, app: str) -> None:
        """Scripts and people rely on them."""
        config = compose_run(find_app(app), [])
        require(config)
        assert set(WORDS) <= set(leaves(config))
        assert config.app == app

    def test_every_page_composes(self, app: str) -> None:
        """Each choice of data, model and experiment, with a path of the user's."""
        found = find_app(app)
        for group in ("data", "model", "experiment"):
            for choice in choices(found, group):
                assert compose_run(found, [f"{group}={choice}", "data.path=/x"]).app == app
        assert {"sample"} < set(choices(found, "data")), "the example, and a page for users' data"

    def test_it_stands_on_the_core_alone(self, app: str) -> None:
        """No module and no page names another pipeline."""
        found = find_app(app)
        named = {
            name
            for file in sorted(folder_of(found).rglob("*"))
            if file.suffix in (".py", ".yaml")
            for name in re.findall(r"\bapps\.[a-z]\w*", file.read_text(encoding="utf-8"))
        }
        assert named <= {found.module, "apps"}

    def test_a_source_keeps_its_contract(self, config: Any) -> None:
        """Plain facts, a report, files that are there."""
        source = make_source(config, World())
        facts = source.facts()
        assert json.loads(json.dumps(facts)) == facts, "plain numbers, texts and lists"
        assert facts["model"] == source.dimensions()
        report = source.report()
        assert isinstance(report, DataReport)
        assert all(len(row) == len(table.columns) for table in report.tables for row in table.rows)
        files = [Path(file) for file in source.files()]
        assert files
        assert all(file.exists() for file in files)
        assert source.example()
        assert {Path(file) for file in source.example()} <= set(files)

    @pytest.mark.parametrize("split", ["train", "val", "test"])
    def test_samples_are_functions_of_index_and_generator(self, config: Any, split: str) -> None:
        """Read twice, or drawn twice with one seed, they are the same."""
        samples = make_source(config, World()).samples(split)
        assert len(samples) > 0
        first, again = samples.read(0, None), samples.read(0, None)
        drawn = [samples.read(0, np.random.default_rng(3)) for _ in range(2)]
        assert first.keys() == again.keys() == drawn[0].keys()
        for name, value in first.items():
            np.testing.assert_array_equal(value, again[name])
            np.testing.assert_array_equal(drawn[0][name], drawn[1][name])
            assert np.shape(drawn[0][name]) == np.shape(value)
            assert np.asarray(drawn[0][name]).dtype == np.asarray(value).dtype

    def test_a_task_depends_on_the_seed_alone_and_comes_back_from_its_state(
        self, config: Any
    ) -> None:
        """Weights are equal for equal seeds, and only for these."""
        facts, config = make_source(config, World()).facts(), config.copy()
        one, same = make_task(config, facts, World()), make_task(config, facts, World())
        config.seed = 1
        other = make_task(config, facts, World())
        assert isinstance(one, Task)

        def equal(task: Task) -> bool:
            pairs = zip(one.network.parameters(), task.network.parameters(), strict=True)
            return all(torch.equal(a, b) for a, b in pairs)

        assert equal(same)
        assert not equal(other)
        other.load_state_dict(one.state_dict())
        assert equal(other)

    def test_a_run_leaves_what_is_promised(self, run: Path) -> None:
        """Scores beside those of the simple rule, accounts, figures, a prediction, the report."""
        metrics = json.loads((run / "metrics.json").read_text())
        assert all(isinstance(v, (int, float)) and math.isfinite(v) for v in metrics.values())
        assert set(IN_ALL) <= metrics.keys()
        test, rule = (
            {name.removeprefix(of) for name in metrics if name.startswith(of)}
            for of in ("test/", "baseline/")
        )
        assert test & rule, "the simple rule is scored by scores of the model"
        assert metrics["train/epochs"] == 1
        assert metrics["memory/saved_bytes"] > 0
        for part in ("figures", "predictions"):
            assert any((run / part).iterdir())
        pictures = [path for path in (run / "figures").iterdir() if path.suffix == ".png"]
        page = (run / "report.html").read_text(encoding="utf-8")
        assert page.count('<img src="data:image/png;base64,') == len(pictures)

    def test_an_evaluation_gives_the_scores_of_the_run(self, app: str, run: Path) -> None:
        """To all digits: the checkpoint holds what was scored."""
        done("evaluate", app, f"run.dir={run}", "output=scores.json")
        again = json.loads(Path("scores.json").read_text())
        del again["provenance"]
        metrics = json.loads((run / "metrics.json").read_text())
        assert again == {
            name.removeprefix("test/"): value
            for name, value in metrics.items()
            if name.startswith("test/")
        }

    def test_predictions_of_the_example_are_written(self, app: str, run: Path) -> None:
        """From files to a file."""
        example = make_source(RunFolder(run).load_config(), World()).example()
        inputs = "[" + ", ".join(f"'{path}'" for path in example) + "]"
        out = done("predict", app, f"run.dir={run}", f"input={inputs}", "output=out")
        assert Path(out.splitlines()[-1].removeprefix("written: ")).stat().st_size > 0

    @pytest.mark.parametrize("kind", ["pt2", "onnx"])
    def test_what_is_exported_gives_what_the_task_says(
        self, app: str, run: Path, kind: str
    ) -> None:
        """Run by another program, on other sizes than the example's."""
        if kind == "onnx":
            pytest.importorskip("onnxruntime")
        folder, config = RunFolder(run), RunFolder(run).load_config()
        checkpoint = folder.load_checkpoint("best", app)
        offered = restore_task(config, checkpoint, World()).exportable()
        done("export", app, f"run.dir={run}", f"format={kind}", f"output=model.{kind}")
        about = json.loads(Path("model.json").read_text())
        assert list(about["inputs"]) == list(offered.inputs)
        whole = tuple(it if offered.free else torch.cat([it, it + 1]) if it.is_floating_point()
                      else torch.cat([it, it]) for it in offered.inputs.values())  # fmt: skip
        with torch.inference_mode():
            expected = offered.module.eval()(*whole)
        assert bool(expected.isfinite().all())
        found = _run_exported(Path(f"model.{kind}"), about, whole)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)

    def test_check_writes_a_page_that_composes(self, app: str, run: Path) -> None:
        """What `scadl check` found in the example is a configuration."""
        data = RunFolder(run).load_config().data
        done("check", app, "debug=tiny", f"data.path={data.path}", "output=mine/data/page.yaml")
        config = compose_run(find_app(app), ["data=page", *TINY], Path("mine"))
        require(config)
        ours, trained = resolve(config), RunFolder(run).load_config()
        one, other = (make_source(it, World()).dimensions() for it in (ours, trained))
        assert one == other

    def test_the_powers_are_one_word_each(self, app: str, place: Path) -> None:
        """Compressed activations and second-order steps, together."""
        done("train", app, *TINY, "memory=adaptive", "optimizer=kfac", "run.dir=powers")
        metrics = json.loads((place / "powers" / "metrics.json").read_text())
        assert 0 < metrics["memory/saved_bytes"] <= metrics["memory/saved_bytes_uncompressed"]

    def test_a_path_that_is_not_there_is_named(self, app: str) -> None:
        """One message, exit status 2, and nothing begun."""
        outcome = call("train", app, *TINY, "data.path=/nowhere/at/all", "run.dir=none")
        assert (outcome.status, outcome.out.count("Traceback")) == (2, 0)
        assert outcome.err.startswith("scadl: ")
        assert outcome.err.count("\n") == 1
        assert "/nowhere/at/all" in outcome.err
        assert not Path("none").exists()

    def test_a_damaged_file_is_named(self, app: str, config: Any, place: Path) -> None:
        """One message that says which; whatever the reader raises."""
        source = make_source(config, World())
        path = Path(source.example()[0])
        # Another file of that name: a library that has the whole one open would mix the two.
        kept = path.rename(path.with_name(f"{path.name}.kept"))
        try:
            path.write_bytes(bytes(64))
            outcome = call("train", app, *TINY, "run.dir=damaged")
        finally:
            kept.replace(path)
        assert outcome.status == 2, outcome
        assert outcome.err.startswith("scadl: ")
        assert outcome.err.count("\n") == 1
        assert path.stem in outcome.err


def _run_exported(path: Path, about: dict[str, Any], inputs: tuple[torch.Tensor, ...]) -> Any:
    if path.suffix == ".pt2":
        with torch.inference_mode():
            return torch.export.load(path).module()(*inputs).numpy()
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    given = dict(zip(about["inputs"], (it.numpy() for it in inputs), strict=True))
    taken = {it.name for it in session.get_inputs()}
    return session.run([about["output"]], {n: it for n, it in given.items() if n in taken})[0]
