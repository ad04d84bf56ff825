"""A run folder is never shared, never overwritten, and never believed blindly."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from scadl_core.errors import RunError
from scadl_core.files import write_json
from scadl_core.record.runfolder import RunFolder, differences, new_name, unfinished


def config(**values: Any) -> DictConfig:
    names = ("data", "loader", "model", "optimizer", "paths", "task", "trainer")
    parts: dict[str, Any] = {name: {} for name in names}
    plain = {"app": "climate", "seed": 0, "run": {"dir": None}, "build": {"allow": []}}
    return OmegaConf.create(plain | parts | values)


def refusal(function: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(RunError) as caught:
        function(*arguments, **named)
    return str(caught.value)


def begun(path: Path, **values: Any) -> RunFolder:
    """The folder of a run that was begun, and is in nobody's use."""
    folder = RunFolder(path)
    folder.open(config(**values), resume=False)
    folder.begin(config(**values), {"command": "a", "data": {"x.nc": "11"}})
    folder.close()
    return folder


def test_a_new_run_has_its_parts_and_its_configuration(tmp_path: Path) -> None:
    folder = begun(tmp_path / "deep" / "run", seed=5)
    there = sorted(p.name for p in folder.path.iterdir())
    parts = ["checkpoints", "config.yaml", "figures", "predictions", "provenance.json"]
    assert there == [".lock", *parts]
    assert folder.load_config() == config(seed=5)
    assert (folder.exists, folder.is_complete, folder.last_checkpoint) == (True, False, None)


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    again = RunFolder(tmp_path / "run")
    assert refusal(again.open, config(), resume=False) == (
        f"run folder {tmp_path / 'run'} already holds a run; choose another run.dir, leave it out "
        "for a new folder, or continue that run with resume=auto"
    )


def test_it_is_taken_up_again_only_as_it_was(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    other = RunFolder(tmp_path / "run")
    assert refusal(other.open, config(seed=1), resume=True) == (
        f"run folder {tmp_path / 'run'} holds a run with another seed (0, now 1); "
        "resume it as it was, or choose another run.dir"
    )
    same = RunFolder(tmp_path / "run")
    same.open(config(run={"dir": "x"}, resume="auto"), resume=True)
    same.close()
    assert same.load_config() == config()


def test_another_process_in_it_is_noticed(tmp_path: Path) -> None:
    begun_pipe, end_pipe = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        first = begun(tmp_path / "run")
        first.open(config(), resume=True)
        os.write(begun_pipe[1], b"x")
        os.read(end_pipe[0], 1)
        os._exit(0)
    os.read(begun_pipe[0], 1)
    second = RunFolder(tmp_path / "run")
    try:
        assert refusal(second.open, config(), resume=True) == (
            f"run folder {tmp_path / 'run'} is in use by another process; "
            "wait for it or choose another run.dir"
        )
    finally:
        os.write(end_pipe[1], b"x")
        os.waitpid(child, 0)
    after = RunFolder(tmp_path / "run")
    after.open(config(), resume=True)  # the lock ended with the process
    after.close()


def test_a_mistake_before_the_run_began_leaves_no_trace(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open(config(), resume=False)
    folder.close()
    assert not folder.path.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "run"
    assert refusal(RunFolder(path).open, config(), resume=False) == (
        f"run folder {path}: cannot be written (Not a directory); "
        "set run.dir or paths.runs to a folder that you can write to"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "run.dir={path}: not a run folder (it has no config.yaml)"),
        (b"- 1\n", "{path}/config.yaml: not the configuration of a run (it names no app)"),
        (b"seed: 1\n", "{path}/config.yaml: not the configuration of a run (it names no app)"),
        (b"app: [\n", "{path}/config.yaml: cannot be read (while parsing a flow node)"),
        (b"\xff\xfe\xff", "{path}/config.yaml: cannot be read ("),
    ],
)
def test_a_configuration_that_is_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_bytes(content)
    text = refusal(RunFolder(tmp_path).load_config)
    assert text.startswith(message.format(path=tmp_path))
    assert "\n" not in text


class Evil:
    """Would make a folder if it were unpickled without care."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


def test_checkpoints_are_refused_with_a_reason(tmp_path: Path) -> None:
    folder, path = begun(tmp_path / "run"), tmp_path / "run" / "checkpoints" / "best.ckpt"
    assert refusal(folder.load_checkpoint, "best", "climate") == (
        f"no checkpoint {path}; train to the end, or choose checkpoint=best, checkpoint=last "
        "or a path"
    )
    torch.save({"scadl": {"app": "climate", "facts": {}, "provenance": {}, "step": 3}}, path)
    assert folder.load_checkpoint("best", "climate")["scadl"]["step"] == 3
    assert refusal(folder.load_checkpoint, str(path), "hep") == (
        f"checkpoint {path} is of the pipeline 'climate', not of 'hep'"
    )
    path.write_bytes(path.read_bytes()[:-40])
    assert refusal(folder.load_checkpoint, "best", "climate").startswith(
        f"checkpoint {path}: cannot be read, it is broken or not a ScaDL checkpoint ("
    )
    for foreign in ({"state_dict": {}}, [1], {"scadl": 3}, {"scadl": {"app": "climate"}}):
        torch.save(foreign, path)
        assert refusal(folder.load_checkpoint, "best", "climate") == (
            f"checkpoint {path}: not a ScaDL checkpoint; give one that `scadl train climate` wrote"
        )


def test_loading_executes_nothing(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    path = folder.checkpoints / "best.ckpt"
    torch.save({"scadl": {"app": "climate"}, "evil": Evil(tmp_path / "pwned")}, path)
    assert "cannot be read" in refusal(folder.load_checkpoint, "best", "climate")
    path.write_bytes(pickle.dumps(Evil(tmp_path / "pwned")))
    assert "cannot be read" in refusal(folder.load_checkpoint, "best", "climate")
    assert not (tmp_path / "pwned").exists()


def test_provenance_is_kept_and_added_to(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    for command in ("b", "c"):
        folder.begin(config(), {"command": command, "data": {"x.nc": "11"}})
    assert json.loads(folder.provenance.read_text()) == {
        "command": "a",
        "data": {"x.nc": "11"},
        "resumed": [{"command": "b"}, {"command": "c"}],
    }
    for data, which in (
        ({"x.nc": "22"}, "x.nc"),
        ({"x.nc": "11", "y.nc": "1"}, "y.nc"),
        ({}, "x.nc"),
    ):
        assert refusal(folder.begin, config(), {"command": "d", "data": data}) == (
            f"run folder {folder.path}: {which} has changed since this run was begun; "
            "start a new run"
        )


def test_metrics_are_those_of_a_complete_run(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    assert refusal(folder.load_metrics) == (
        f"run folder {folder.path}: the run is not complete; continue it with resume=auto"
    )
    write_json(folder.metrics, {"test/iou": 0.5})
    assert folder.load_metrics() == {"test/iou": 0.5}


def test_differences_are_named_by_key_and_leave_out_what_is_not_the_run() -> None:
    one = config(model={"width": 4, "kind": {}}, gone=1, resume="never", build={"allow": []})
    other = config(model={"width": 8, "kind": {}}, new=[1], resume="auto", build={"allow": ["x"]})
    other.paths = {"runs": "/another/place", "data": "/and/another"}
    assert differences(one, other) == [
        "gone (1, now None)",
        "model.width (4, now 8)",
        "new (None, now [1])",
    ]
    assert differences(one, one) == []


def test_the_newest_unfinished_run_of_the_same_kind_is_found(tmp_path: Path) -> None:
    assert unfinished(tmp_path, config()) is None
    for name, seed in (("20260101-1", 0), ("20260102-1", 0), ("20260103-1", 0), ("20260104-1", 1)):
        begun(tmp_path / name, seed=seed)
    write_json(tmp_path / "20260103-1" / "metrics.json", {})
    (tmp_path / "notes").mkdir()
    assert unfinished(tmp_path, config()) == tmp_path / "20260102-1"


def test_names_of_one_second_differ() -> None:
    assert len({new_name() for _ in range(50)}) > 45
